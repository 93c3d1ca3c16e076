"""Foreign rule files: reading, meaning, conversion, and what becomes of each rule."""

from __future__ import annotations

import json
import random
from pathlib import Path

import foreign_files as pb
import pytest

from rlflow.errors import RuleError, UsageError
from rlflow.rewrite import all_shipped
from rlflow.rulesets import load_library
from rlflow.synthesis import load_rules
from rlflow.synthesis.importers import (
    ForeignRulesWarning,
    ImportOptions,
    classify,
    classify_all,
    read_foreign,
    read_taso_pb,
    read_tensat,
    tensat_text,
    write_imported,
)
from rlflow.synthesis.importers.building import Inexpressible
from rlflow.synthesis.importers.convert import convert
from rlflow.synthesis.importers.foreign import OPERATORS, ForeignRule
from rlflow.synthesis.importers.instances import CHANNELS, EQUAL, TASO, UNGROUPED, draws
from rlflow.synthesis.importers.readings import judge
from rlflow.synthesis.prove import prove

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
outside = pytest.mark.skipif(
    not DATA.is_dir(), reason="../shared/data, with TASO's and Tensat's files, is not beside the checkout"
)


def one(text: str, **extra: bool) -> ForeignRule:
    return read_tensat(text, **extra)[0]


CONV = "(conv2d 1 1 0 0 ?{} ?{})"


def conv(x: str, w: str) -> str:
    return CONV.format(x, w)


# ---- reading


def test_a_pb_file_reads_as_it_was_written() -> None:
    rules = read_taso_pb(pb.TINY)
    assert tensat_text(rules)[1] == ""
    assert tensat_text(rules)[0] == (
        "(matmul 0 (matmul 0 ?input_1 ?input_2) ?input_3)=>(matmul 0 ?input_1 (matmul 0 ?input_2 ?input_3))\n"
        "(relu (conv2d 1 1 0 0 ?input_1 ?input_2))=>(conv2d 1 1 0 2 ?input_1 ?input_2)\n"
        "(ewmul (ewadd ?input_1 ?input_2) ?input_3)=>(ewmul ?input_1 ?input_3)\n"
        "(concat 1 4 (conv2d 1 1 0 0 ?input_1 ?input_2) (conv2d 1 1 0 0 ?input_1 ?input_3))=>"
        "(conv2d 1 1 0 0 ?input_1 (concat 0 4 ?input_2 ?input_3))"
    )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is empty"),
        (pb.TINY[:-3], "the file is cut"),
        (pb.TINY[:1], "the file is cut"),
        (b'{"format": 1}', "wire type 3"),
        (b"\x7fELF\x02\x01\x01" + bytes(40), "wire type 7"),
        (b"\xff" * 30, "more than ten bytes"),
        (b"\x10\x01", "a field 2; expected rules"),
        (b"\x08\x01", "field 1 is a number"),
        (b"\x0a\x00", "a rule needs source operators"),
    ],
)
def test_other_files_are_refused_with_a_sentence(data: bytes, says: str) -> None:
    with pytest.raises(RuleError, match=says):
        read_taso_pb(data)


def test_every_operator_type_is_read() -> None:
    """All 62: as the source of a rule with as many operands as it has."""
    for row in OPERATORS:
        operands = [-k - 1 for k in range(max(row.operands, 2) if row.operands else 0)]
        rule = read_taso_pb(pb.rule([(row.number, operands, {})], [(pb.RELU, (-1,), {})]))[0]
        read = rule.sources[0].operands[0] if row.name == "split" else rule.sources[0]
        assert read.op == row.name, rule.unreadable
        outcome = classify(rule, all_shipped(), ImportOptions(matches=2))
        assert outcome.status != "inexpressible" or len(outcome.reason) > 20


@pytest.mark.parametrize("operands", [(-1,), (-1, -2)])
def test_enlarge_has_one_or_two_operands(operands: tuple[int, ...]) -> None:
    op = (20, operands, {4: 3, 5: 3})
    rule = read_taso_pb(pb.rule([(pb.CONV, (-3, -1), pb.CONVOLUTION)], [op, (pb.CONV, (-3, 0), pb.CONVOLUTION)]))[0]
    assert judge(rule, matches=10).status == "true"


@pytest.mark.parametrize(
    ("op", "says"),
    [
        ((62, (-1,), {}), "operator type 62 does not exist"),
        ((pb.RELU, (3,), {}), "comes later or does not exist"),
        ((pb.ADD, (-1,), {}), "ewadd has 1 operands; expected 2"),
    ],
)
def test_a_rule_that_makes_no_sense_is_told_from_a_broken_file(op: pb.Op, says: str) -> None:
    rule = read_taso_pb(pb.rule([op], [(pb.RELU, (-1,), {})]))[0]
    assert says in rule.unreadable
    assert classify(rule, all_shipped()).status == "inexpressible"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(relu ?x)=>", "expected an operator"),
        ("(relu ?x)\n(relu ?x)=>?x", "expected '=>'"),
        ("(frob ?x)=>?x", "'frob' is no operator"),
        ("(ewadd ?x)=>?x", "ewadd has 1 operands"),
        ("(relu ?x", "is not closed"),
        ("relu(input_1)==relu(input_1", "between the operands"),
        ("", "expected an operator|has no rules"),
    ],
)
def test_tensat_texts_that_do_not_parse(text: str, says: str) -> None:
    with pytest.raises(RuleError, match=says):
        read_tensat(text)


def test_equations_need_no_separators() -> None:
    rules = read_tensat("relu(input_1)==input_1relu(input_2)==smul(Imatmul,input_20)matmul(input_1,input_4)==input_1")
    assert [str(r) for r in rules][:2] == ["relu(input_1)  =>  input_1", "relu(input_2)  =>  smul(Imatmul(), input_20)"]
    assert len(rules) == 3


@outside
def test_the_pb_printed_for_tensat_is_its_two_files() -> None:
    single, multi = tensat_text(read_foreign(DATA / "taso_graph_subst.pb"))
    assert single == (DATA / "tensat_converted.txt").read_text()
    assert multi == (DATA / "tensat_converted_multi.txt").read_text()


@outside
def test_the_outside_files_have_as_many_rules_as_is_known() -> None:
    counts = {
        "taso_graph_subst.pb": 133, "tensat_converted.txt": 120, "tensat_converted_multi.txt": 13,
        "tensat_single_rules.txt": 659, "tensat_multi_rules.txt": 13, "tensat_taso_rules.txt": 931,
    }  # fmt: skip
    assert {name: len(read_foreign(DATA / name)) for name in counts} == counts


# ---- meaning


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        ("(relu (conv2d 1 1 0 0 ?x ?w))=>(conv2d 1 1 0 2 ?x ?w)", ["identity"] * 4),
        ("(ewadd ?x (ewadd ?y ?z))=>(ewadd ?y (ewadd ?x ?z))", ["true"] * 4),
        (f"{conv('x', '_w')}=>{conv('x', '_w')}".replace("?_w", "(ewadd ?w ?v)"), ["identity"] * 4),
        (
            f"(concat 1 4 {conv('x', 'w')} {conv('x', 'v')})=>(conv2d 1 1 0 0 ?x (concat 0 4 ?w ?v))",
            ["false", "false", "true", "true"],
        ),
        (
            f"(concat 1 4 {conv('x', 'w')} {conv('y', 'v')})=>(conv2d 1 1 0 0 (concat 1 4 ?x ?y) (concat 0 4 ?w ?v))",
            ["false", "false", "false", "true"],
        ),
        (
            f"(conv2d 1 1 0 0 ?x (ewadd ?w ?v))=>(ewadd {conv('x', 'w')} {conv('x', 'v')})",
            ["false", "true", "true", "true"],
        ),
        ("(relu (ewadd ?x ?y))=>(ewadd (relu ?x) (relu ?y))", ["false"] * 4),
    ],
)
def test_readings(text: str, statuses: list[str]) -> None:
    rule = one(text)
    assert [judge(rule, r, matches=12).status for r in (TASO, EQUAL, UNGROUPED, CHANNELS)] == statuses


def test_a_rule_that_is_false_only_where_the_shared_operand_broadcasts() -> None:
    rule = one("(concat 1 4 (ewadd ?x ?y) (ewadd ?y ?z))=>(ewadd (concat 1 4 ?y ?z) (concat 1 4 ?x ?y))")
    assert judge(rule, TASO, matches=100).false and not judge(rule, EQUAL, matches=20).false


def test_a_wrong_rule_has_a_small_counterexample() -> None:
    rule = one(f"(concat 1 4 {conv('x', 'w')} {conv('x', 'v')})=>(conv2d 1 1 0 0 ?x (concat 0 4 ?w ?v))")
    tally = judge(rule, EQUAL, matches=40)
    assert tally.false
    x, w = tally.smallest.shapes["x"], tally.smallest.shapes["w"]
    assert x[1] > w[1], "the convolution has groups"


def test_broadcasting_that_changes_the_shape_is_seen() -> None:
    rule = one("(concat 1 2 (ewadd ?x ?y) (ewadd ?y ?z))=>(ewadd (concat 1 2 ?x ?y) (concat 1 2 ?y ?z))")
    tally = judge(rule, TASO, matches=60)
    assert tally.wrong_shape and "instead of" in tally.reason


def test_constants_of_the_generator() -> None:
    for text in (
        "conv2d(1,1,0,0,input_7,Iconv(3,3))==input_7",
        "matmul(input_1,Imatmul)==input_1",
        "poolavg(3,3,1,1,0,Iconv(3,3))==Cpool(3,3)",
        "conv2d(1,1,0,0,input_7,enlarge(3,3,input_13))==conv2d(1,1,0,0,input_7,input_13)",
    ):
        assert not judge(one(text), CHANNELS, matches=10).false or "Cpool" in text


def test_instances_are_the_same_every_time() -> None:
    rule = one(f"(relu {conv('x', 'w')})=>{conv('x', 'w')}")
    first, second = ([i.source.digest for i in draws(rule, 4, 7, CHANNELS)] for _ in range(2))
    assert first == second and len(set(first)) == 4


# ---- conversion


@pytest.mark.parametrize(
    ("text", "reading", "title"),
    [
        (
            f"(concat 1 4 {conv('x', 'w')} {conv('x', 'v')})=>(conv2d 1 1 0 2 ?x (concat 0 4 ?w ?v))",
            UNGROUPED,
            (
                "(Concat{axis=1} (Conv{group=?g0, ..?a0} ?x ?w) (Conv{group=?g0, ..?a0} ?x ?v))  =>  "
                "(Relu (Conv{group=?g0, ..?a0} ?x (Concat{axis=0} ?w ?v)))  where rank(?x) == 4 and rank(?w) == 4 and "
                "rank(?v) == 4 and ?g0 == 1 and not constant($0)"
            ),
        ),
        (
            "(matmul 0 ?x ?w)=>(matmul 0 ?x (ewmul ?w ?w))",
            TASO,
            (
                "(MatMul ?x ?w)  =>  (MatMul ?x (Mul ?w ?w))  where rank(?x) >= 2 and rank(?w) >= 2 and "
                "shape(?x)[:-2] == shape(?w)[:-2] and not constant($0)"
            ),
        ),
    ],
)
def test_statements(text: str, reading: object, title: str) -> None:
    assert convert(one(text), reading).title == title


def test_a_split_gets_the_sizes_that_were_joined() -> None:
    rule = one(
        f"{conv('x', 'w')}=>(split_0 (split 1 (conv2d 1 1 0 0 ?x (concat 0 4 ?w ?v))))\n"
        f"{conv('x', 'v')}=>(split_1 (split 1 (conv2d 1 1 0 0 ?x (concat 0 4 ?w ?v))))",
        multi=True,
    )
    ours = convert(rule, UNGROUPED)
    assert "Split{axis=1, split=[dim(?w,0), dim(?v,0)]}" in ours.target[0]
    assert prove(ours, samples=40, check_floats=False).proved


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(relu (split_0 (split 1 ?x)))=>(relu ?x)", "undoes no concatenation"),
        ("conv2d(1,1,0,0,input_7,Iconv(3,3))==input_7", "known here by its elements only"),
        (f"(relu ?x)=>{conv('x', 'w')}", "no convolution of the source has"),
    ],
)
def test_what_cannot_be_said_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(Inexpressible, match=says):
        convert(one(text))


# ---- what becomes of them


def test_outcomes_of_a_small_file(cache_dir: Path) -> None:
    rules = [*read_taso_pb(pb.TINY), *read_tensat("(concat 1 2 (relu ?a) (relu ?b))=>(relu (concat 1 2 ?a ?b))")]
    outcomes = classify_all(rules, options=ImportOptions(matches=15))
    assert [o.status for o in outcomes] == ["ours", "identity", "refuted", "ours", "ours"]
    assert outcomes[0].chain == ("associate-matmul-right",)
    assert outcomes[3].chain == ("join-of-conv-channels",)
    assert outcomes[3].conditions == ("source convolutions without groups",)
    assert "input_1 [" in outcomes[2].counterexample
    kept = sorted(path.name for path in (cache_dir / "imports").iterdir())
    assert len(kept) == 5
    assert classify_all(rules, options=ImportOptions(matches=15)) == outcomes, "from the cache"


def test_equal_statements_are_judged_once(cache_dir: Path) -> None:
    rules = read_tensat("(relu ?a)=>(relu ?a)\n(relu ?a)=>(relu ?a)")
    assert [(o.index, o.status) for o in classify_all(rules)] == [(0, "identity"), (1, "identity")]
    assert len(list((cache_dir / "imports").iterdir())) == 1


def test_what_is_true_and_new_is_written_and_loads(tmp_path: Path, cache_dir: Path) -> None:
    rules = read_tensat("(matmul 0 (relu ?x) (matmul 0 ?w ?v))=>(matmul 0 (matmul 0 (relu ?x) ?w) ?v)")
    outcomes = classify_all(rules, options=ImportOptions(matches=15, everything=True))
    assert outcomes[0].rule is not None
    assert write_imported(tmp_path / "out.json", outcomes) == 1
    library = load_rules([tmp_path / "out.json"])
    assert [rule.origin for rule in library.values()] == ["Tensat rule #0"]
    assert json.loads((tmp_path / "out.json").read_text())["family"] == "imported"


def test_unknown_files_and_formats(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_foreign(tmp_path / "none.pb")
    (tmp_path / "rules.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="no rule format 'egg'"):
        read_foreign(tmp_path / "rules.bin", "egg")
    with pytest.raises(RuleError, match="is no text"):
        read_foreign(tmp_path / "rules.bin")


@outside
@pytest.mark.slow
def test_every_rule_of_taso_is_accounted_for(cache_dir: Path) -> None:
    outcomes = classify_all(read_foreign(DATA / "taso_graph_subst.pb"), options=ImportOptions(matches=30), jobs=2)
    assert {o.status for o in outcomes} <= {"identity", "ours", "derived"}
    grouped = {o.index for o in outcomes if "source convolutions without groups" in o.conditions}
    assert grouped >= {98, 105, 125, 126, 127, 128, 129}
    assert {o.index for o in outcomes if "equal Cin and equal Cout" in o.conditions} == {99, 100, 130, 131}


@outside
def test_a_sample_of_taso_s_rules() -> None:
    rules = read_foreign(DATA / "taso_graph_subst.pb")
    for index in random.Random(5).sample(range(133), 6):
        assert classify(rules[index], all_shipped(), ImportOptions(matches=8)).status in ("identity", "ours", "derived")


# --- a foreign file instead of ours -------------------------------------------------------------------------------


@pytest.fixture
def foreign_file(tmp_path: Path, cache_dir: Path) -> Path:
    """Five rules of TASO's form: one false, one that needs a condition, one that rlflow does not load by itself."""
    sums = pb.rule([(pb.ADD, (-2, -3), {}), (pb.ADD, (-1, 0), {})], [(pb.ADD, (-1, -2), {}), (pb.ADD, (0, -3), {})])
    path = tmp_path / "graph_subst.pb"
    path.write_bytes(pb.TINY + sums)
    return path


def test_a_file_of_taso_is_a_rule_library(foreign_file: Path) -> None:
    with pytest.warns(ForeignRulesWarning, match=r"of the 5 rules in .*, 1 are not used \(TASO #2: refuted"):
        alone = load_library(str(foreign_file))
    with pytest.warns(ForeignRulesWarning):
        beside = load_library([foreign_file, "merge"])
    assert all(rule.proof is not None for rule in alone.values())
    assert set(alone) < set(beside)
    assert "merge" in beside.families


def test_a_file_of_taso_without_a_true_rule_is_refused(tmp_path: Path, cache_dir: Path) -> None:
    path = tmp_path / "false.pb"
    path.write_bytes(pb.rule([(pb.ADD, (-1, -2), {}), (pb.MUL, (0, -3), {})], [(pb.MUL, (-1, -3), {})]))
    with pytest.raises(UsageError, match=r"no rule of .*false\.pb is of use here: .* 1 are not used"):
        load_library(path)
    path.write_bytes(b"")
    with pytest.raises(RuleError, match="it is empty"):
        load_library(path)
    with pytest.raises(UsageError, match="there is no file"):
        load_library("absent.pb")
