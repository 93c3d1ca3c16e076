"""The generator: a small vocabulary end to end, its errors, its determinism, and what an interrupted run keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlflow.errors import UsageError
from rlflow.rewrite import read_rules
from rlflow.synthesis.generate import (
    Effort,
    Findings,
    PhaseProgress,
    Recipe,
    generate_file,
    load_vocabulary,
    read_vocabulary,
)
from rlflow.synthesis.generate.generalise import generalise
from rlflow.synthesis.generate.graphs import Canon, Equation, Node
from rlflow.synthesis.generate.statement import Statement
from rlflow.synthesis.generate.vocabulary import Vocabulary
from rlflow.synthesis.prove import prove

SMALL: dict[str, Any] = {
    "worlds": [{"M": 2, "K": 3}, {"M": 3, "K": 2}],
    "inputs": {"x": {"shape": ["M", "K"], "count": 2}, "w": {"shape": ["K", "K"], "weight": True}},
    "ops": {
        "Relu": {"op": "Relu"},
        "Transpose": {"op": "Transpose", "attributes": {"perm": [1, 0]}},
        "MatMul": {"op": "MatMul", "operands": ["any", "weight"]},
        "Add": {"op": "Add"},
    },
    "groups": {"small": {"inputs": ["x", "w"], "ops": ["Relu", "Transpose", "MatMul", "Add"]}},
}


def small(ops: list[str] | None = None) -> Vocabulary:
    vocabulary = read_vocabulary("small", SMALL)
    return vocabulary.only(ops) if ops else vocabulary


def generated(out: Path, vocabulary: Vocabulary | None = None, **options: Any) -> Findings:
    settings = Recipe(vocabulary or small(["Relu", "Transpose"]), Effort(max_ops=2, jobs=1, samples=40), "2026-01-01")
    return generate_file(settings, out, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Findings]:
    out = tmp_path_factory.mktemp("generated") / "rules.json"
    return out, generated(out)


def test_known_identities_are_found(run: tuple[Path, Findings]) -> None:
    titles = {(rule.source, rule.target) for rule in read_rules([run[0]])}
    assert titles == {
        (("(Relu (Relu ?x))",), ("(Relu ?x)",)),
        (("(Transpose{..?a} (Transpose{..?a} ?x))",), ("?x",)),  # where rank(?x) == 2
        (("(Relu (Transpose{..?a} ?x))",), ("(Transpose{..?a} (Relu ?x))",)),
        (("(Transpose{..?a} (Relu ?x))",), ("(Relu (Transpose{..?a} ?x))",)),
    }


def test_every_rule_holds_on_other_samples(run: tuple[Path, Findings]) -> None:
    for rule in read_rules([run[0]]):
        assert prove(rule, samples=60, seed=17).proved, rule.title


def test_the_counts_add_up(run: tuple[Path, Findings]) -> None:
    total = run[1].summary()["total"]
    assert total["pairs"] == total["parts"] + total["renamed"] + total["context"] + total["kept"]
    tried = sum(total.get(k, 0) for k in ("proved", "unproved", "implied", "implied_by_unproved"))
    assert total["distinct"] == tried
    assert total["rules"] == len(read_rules([run[0]]))


def test_a_rule_file_says_where_it_comes_from_and_shows_examples(run: tuple[Path, Findings]) -> None:
    for rule in read_rules([run[0]]):
        assert rule.origin == "generated 2026-01-01: generator 2, vocabulary small, 2 operators, seed 0"
        assert rule.fires and rule.proof is not None and rule.proof.stale(rule.core) is None


def test_another_process_hash_seed_and_worker_count_write_the_same_bytes(
    run: tuple[Path, Findings], tmp_path: Path
) -> None:
    vocabulary, out = tmp_path / "small.json", tmp_path / "rules.json"
    vocabulary.write_text(json.dumps(SMALL))
    command = ["rules", "generate", "--vocabulary", str(vocabulary), "--ops", "Relu,Transpose", "--max-ops", "2", "-q"]
    command += ["--jobs", "2", "--samples", "40", "--date", "2026-01-01", "--out", str(out)]
    env = {**os.environ, "PYTHONHASHSEED": "123"}
    subprocess.run([sys.executable, "-m", "rlflow", *command], check=True, env=env, stdout=subprocess.DEVNULL)
    assert out.read_bytes() == run[0].read_bytes()
    assert not out.with_name("rules.json.work").exists()


@pytest.mark.parametrize("phase", ["enumerate", "prove"])
def test_resuming_gives_what_an_uninterrupted_run_gives(run: tuple[Path, Findings], tmp_path: Path, phase: str) -> None:
    out = tmp_path / "rules.json"

    def interrupt(progress: PhaseProgress) -> None:
        if progress.phase == phase:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generated(out, report=interrupt)
    assert not out.exists() and any(out.with_name("rules.json.work").iterdir())
    generated(out, resume=True)
    assert out.read_bytes() == run[0].read_bytes()


def test_a_work_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "rules.json"
    generated(out, small(["Relu"]), keep_work=True)
    with pytest.raises(UsageError, match="other settings"):
        generated(out, small(["Transpose"]), resume=True)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Effort(max_ops=0), "--max-ops 0: a graph has 1 to 5 operators"),
        (lambda: Effort(memory_mb=0), "at least 1"),
        (lambda: small().only(["Softmax"]), "has no operator 'Softmax'; it has Relu, Transpose, MatMul, Add"),
        (lambda: small().only_groups(["big"]), "has no group 'big'; it has small"),
        (lambda: load_vocabulary("large"), "no vocabulary 'large'"),
        (lambda: read_vocabulary("v", {"worlds": []}), "malformed"),
        (lambda: read_vocabulary("v", {**SMALL, "ops": {"No": {"op": "NoSuch"}}}), "which the operator table lacks"),
    ],
)
def test_errors_are_sentences(make: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        make()


def test_a_path_that_cannot_be_written_is_found_out_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        generated(tmp_path / "file" / "rules.json")


def test_too_little_memory_is_said(tmp_path: Path) -> None:
    settings = Recipe(load_vocabulary("taso").only_groups(["matrices"]), Effort(max_ops=3, memory_mb=1), "2026-01-01")
    with pytest.raises(UsageError, match="raise --memory"):
        generate_file(settings, tmp_path / "rules.json")


# ---- statements -----------------------------------------------------------------------------------------------------

_TASO = load_vocabulary("taso")
_OPS = {o.name: k for k, o in enumerate(_TASO.groups[0].operators)}
_IN = {name: k for k, (name, _) in enumerate(_TASO.groups[0].inputs)}


def node(op: str, *operands: Any, output: int = 0) -> Node:
    return Node(_OPS[op], tuple(_IN[o] if isinstance(o, str) else o for o in operands), output)


_MERGED = node("Split1", node("MatMul", "x1", node("Concat1", "w1", "w2")))


@pytest.mark.parametrize(
    ("source", "target", "refusal"),
    [
        ((_IN["x1"],), (node("Relu", "x1"),), "a bare variable"),
        ((node("Relu", "x1"),), (node("Relu", node("Relu", "x1")),), "wraps its own source"),
        ((node("Relu", "x1"),), (node("Relu", "x2"),), "unbound variable"),
        (
            (_MERGED, _MERGED._replace(output=1)),
            (node("MatMul", "x1", "w1"), node("MatMul", "x1", "w2")),
            "ends in a Split",
        ),
        ((node("MatMul", "x1", "w1"), node("MatMul", "x1", "w2")), (_MERGED, _MERGED._replace(output=1)), ""),
        ((node("Relu", node("Relu", "x1")),), (node("Relu", "x1"),), ""),
    ],
)
def test_what_the_generator_declines(source: tuple[Any, ...], target: tuple[Any, ...], refusal: str) -> None:
    said = Statement(_TASO.groups[0], source, target).refusal
    assert refusal in said and bool(refusal) == bool(said)


def test_a_split_in_the_target_has_the_sizes_of_what_it_replaces() -> None:
    pair = (node("MatMul", "x1", "w1"), node("MatMul", "x1", "w2"))
    statement = Statement(_TASO.groups[0], pair, (_MERGED, _MERGED._replace(output=1)))
    assert statement.rule([], []).target == (
        "(Split{axis=1, split=[dim($0, 1), dim($1, 1)]} (MatMul ?x (Concat{axis=1} ?y ?w))):*",
    )


def test_two_sources_that_share_nothing_are_of_one_type() -> None:
    joined = node("Split0", node("Relu", node("Concat0", "x1", "x2")))
    statement = Statement(
        _TASO.groups[0], (node("Relu", "x1"), node("Relu", "x2")), (joined, joined._replace(output=1))
    )
    outcome = generalise(statement, samples=40)
    assert "dtype(?x) == dtype(?y)" in outcome.where
    assert "dim(?x, 1) == dim(?y, 1)" in outcome.where and "same_shape(?x, ?y)" not in outcome.where


def test_equal_extents_are_asked_for_where_equal_shapes_are_more_than_is_needed() -> None:
    rows, columns = node("Concat1", "x1", "x2"), node("Concat1", "x3", "x4")
    blocks = node("Concat1", node("Concat0", "x1", "x3"), node("Concat0", "x2", "x4"))
    outcome = generalise(Statement(_TASO.groups[0], (node("Concat0", rows, columns),), (blocks,)))
    assert outcome.verdict is not None and len(outcome.where) == 1 and "?" in outcome.where[0]
    assert outcome.where[0] in ("dim(?y, 1) == dim(?v, 1)", "dim(?x, 1) == dim(?w, 1)")


def test_a_variant_binds_what_it_shares_with_its_template() -> None:
    images = _TASO.groups[1]
    ops = {o.name: k for k, o in enumerate(images.operators)}
    inputs = {name: k for k, (name, _) in enumerate(images.inputs)}
    i1, i2, k1, k2 = (inputs[name] for name in ("i1", "i2", "k1", "k2"))
    apart = Node(ops["Concat1"], (Node(ops["Conv3x3"], (i1, k1)), Node(ops["Conv3x3"], (i2, k2))))
    grouped = Node(ops["Grouped3x3"], (Node(ops["Concat1"], (i1, i2)), Node(ops["Concat0"], (k1, k2))))
    rule = Statement(images, (apart,), (grouped,)).rule(["Conv3x3"], [])
    assert rule.source == ("(Concat{axis=1} (Conv{group=1, ..?a} ?x ?y) (Conv{group=1, ..?a} ?w ?v))",)
    assert rule.target == ("(Conv{group=2, ..?a} (Concat{axis=1} ?x ?w) (Concat{axis=0} ?y ?v))",)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (node("Add", "x1", node("Relu", "x2")), node("Add", node("Relu", "x1"), "x2")),
        (node("MatMul", "x1", "w1"), node("MatMul", "x2", "w3")),
    ],
)
def test_renamings_and_commutative_variants_have_one_text(left: Node, right: Node) -> None:
    canon = Canon(_TASO.groups[0])
    assert canon.equation(Equation((left,), (_IN["x3"],))) == canon.equation(Equation((right,), (_IN["x3"],)))
