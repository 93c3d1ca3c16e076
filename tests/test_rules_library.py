"""Every shipped rule: its record, its examples, and its proof once more on fewer samples."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rlflow import _core
from rlflow.frontends import graph_to_model
from rlflow.rewrite import Rule, RuleLibrary, all_shipped, explain
from rlflow.rewrite.paths import library_files, named_files
from rlflow.rewrite.record import SHIPPED_SINCE
from rlflow.synthesis.domains import Field, Ordered
from rlflow.synthesis.floats import filled
from rlflow.synthesis.operators import NeedsOrder
from rlflow.synthesis.prove import prove
from rlflow.synthesis.rule_files import rule_file_text
from rlflow.synthesis.semantics import Evaluator

LIBRARY: RuleLibrary = all_shipped()
FAMILIES = {"fold", "idiom", "layout", "linear", "merge", "select", "shape", "spatial"}
EVERY = 12  # of the generated rules, which are many of few kinds, one in so many; all of them with `-m slow`
EVERY_ALGORITHM = 4  # and of the algorithms, whose proofs are of many channels


def cases() -> list:
    generated = [name for name, rule in LIBRARY.items() if rule.family == "generated"]
    algorithms = [name for name, rule in LIBRARY.items() if rule.family.startswith("winograd")]
    seldom = {*generated, *algorithms} - {*generated[::EVERY], *algorithms[::EVERY_ALGORITHM]}
    return [pytest.param(name, marks=pytest.mark.slow) if name in seldom else name for name in LIBRARY]


def by_rule(function):
    return pytest.mark.parametrize("name", cases())(function)


def evaluated(graph: _core.Graph, seed: int, domain: Field | Ordered) -> list:
    evaluator = Evaluator(domain, seed)
    return evaluator.run(graph, evaluator.inputs(graph, index_ranges(graph)))


def index_ranges(graph: _core.Graph) -> dict[int, int]:
    """What integer inputs stay below where they are (or become) the indices of a Gather."""
    gathers = [n for n in graph.order() if graph.op(n) == "Gather"]
    extents = [graph.shape(graph.node_inputs(n)[0])[graph.attrs(n)["axis"]] for n in gathers]
    integers = [k for k, n in enumerate(graph.inputs()) if graph.dtype(graph.node_outputs(n)[0]) in (6, 7)]
    return dict.fromkeys(integers, min(extents)) if extents else {}


@by_rule
def test_fires_on_its_example_and_the_results_are_equal(name: str) -> None:
    rule = LIBRARY[name]
    assert rule.fires, "a rule has an example that fires"
    for text in rule.fires:
        graph = _core.Graph.parse(text)
        state = _core.State(graph, _core.RuleSet([rule.core]))
        assert len(state.moves()), "\n".join(explain(graph, rule))
        for i in range(len(state.moves())):
            child = state.child(i)
            assert child.digest == state.moves().digest_hex(i)
            for seed in range(3):
                domain = Ordered() if rule.proof.method == "ordered" else Field(signs=True)  # one: it learns of Exp
                before, after = evaluated(graph, seed, domain), evaluated(child, seed, domain)
                assert all((a == b).all() for a, b in zip(before, after, strict=True))


@by_rule
def test_both_sides_of_the_example_run_in_the_runtime(name: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    rule = LIBRARY[name]
    graph, store = filled(_core.Graph.parse(rule.fires[0]))
    state = _core.State(graph, _core.RuleSet([rule.core]))
    feeds = random_feeds(graph)
    try:
        before = run_in(ort, graph_to_model(graph, store), feeds)
    except Exception as error:  # noqa: BLE001 - the runtime raises types of its own
        pytest.skip(f"the runtime has no kernel for the source: {str(error).splitlines()[0][:120]}")
    for i in range(len(state.moves())):
        after = run_in(ort, graph_to_model(state.child(i), store), feeds)
        for a, b in zip(before, after, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            if a.dtype.kind == "f":
                scale = max(float(np.max(np.abs(a[np.isfinite(a)]), initial=0)), 1e-6)
                np.testing.assert_allclose(a, b, atol=(2e-2 if a.dtype == np.float16 else 1e-4) * scale, rtol=0)
            else:
                assert np.mean(a != b) <= (0.34 if rule.numerics == "reassociates" else 0)


def run_in(ort, model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def random_feeds(graph: _core.Graph) -> dict[str, np.ndarray]:
    rng, ranges, feeds = np.random.default_rng(0), index_ranges(graph), {}
    for k, n in enumerate(graph.inputs()):
        v = graph.node_outputs(n)[0]
        shape, dtype = tuple(graph.shape(v)), graph.dtype(v)
        if dtype in (6, 7):
            array = rng.integers(0, ranges.get(k, 3), shape)
        else:
            array = rng.integers(0, 2, shape) if dtype == 9 else rng.standard_normal(shape)
        types = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}
        feeds[graph.input_name(n)] = np.asarray(array).astype(types[dtype])
    return feeds


@by_rule
def test_is_silent_on_its_near_miss(name: str) -> None:
    rule = LIBRARY[name]
    assert rule.silent, "a rule has an example that must not fire"
    for text in rule.silent:
        graph = _core.Graph.parse(text)
        assert len(_core.State(graph, _core.RuleSet([rule.core])).moves()) == 0


@by_rule
def test_is_proved_again(name: str) -> None:
    verdict = prove(LIBRARY[name], samples=40, seed=1, check_floats=False, exhaustive=False)
    assert verdict.proved, f"{verdict.kind} {verdict.reason}\n{verdict.counterexample}"


def test_the_families_are_there_and_every_rule_says_what_it_is() -> None:
    assert set(LIBRARY.families) >= FAMILIES
    assert all(rule.doc.endswith(".") and rule.origin for rule in LIBRARY.values())
    statements = Counter(rule.digest for rule in LIBRARY.values())
    assert not [rule.name for rule in LIBRARY.values() if statements[rule.digest] > 1], "two rules are one statement"


def test_records_cover_enough() -> None:
    for rule in LIBRARY.values():
        record = rule.proof
        assert record is not None and record.stale(rule.core, SHIPPED_SINCE) is None
        assert record.fired >= 200 and record.shapes >= 40 and record.float_samples >= 4, rule.name
        assert record.dims[1] >= 3 and record.max_rel_err <= 1e-10, rule.name
        assert record.degree >= 1 or record.method == "ordered", rule.name
        # F(2, 7) interpolates at eight points, whose powers make roundings grow
        assert 1 <= record.growth < (128 if rule.name.startswith("winograd-2-of-7") else 64), rule.name
        assert not record.overflow, rule.name
    # their sources have too many operands or channels to be counted through
    wide = ("winograd", "winograd-lines", "targets")
    channels = ("channels-in-fours", "padded-channels-of-conv", "padded-channels-of-depthwise", "split-within-heads")
    small = [one for one in LIBRARY.values() if one.family not in wide and not one.name.startswith(channels)]
    counted = [rule.proof.small > 0 for rule in small]
    assert sum(counted) > 0.8 * len(counted)


@pytest.mark.parametrize("path", [*library_files(), *named_files()], ids=lambda p: p.stem)
def test_files_follow_the_schema_and_the_layout(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: pip install '.[dev]'")
    text = path.read_text(encoding="utf-8")
    data = json.loads(text)
    jsonschema.validate(data, json.loads((path.parents[1] / "schema.json").read_text(encoding="utf-8")))
    assert text == rule_file_text(data), "write it with `rlflow rules prove --all --write`"


def test_the_ordered_rules_do_need_an_order() -> None:
    ordered = [rule for rule in LIBRARY.values() if rule.proof.method == "ordered"]
    assert ordered
    for rule in ordered[:5]:
        graph = _core.Graph.parse(rule.fires[0])
        try:
            evaluator = Evaluator(Field(), 0)
            evaluator.run(graph, evaluator.inputs(graph, index_ranges(graph)))
        except NeedsOrder:
            continue
        assert isinstance(rule, Rule) and not prove_in_field(rule)


def prove_in_field(rule: Rule) -> bool:
    from rlflow.synthesis.hints import make_hints
    from rlflow.synthesis.trial import Trial

    trial = Trial(rule, make_hints(rule.source, rule.where, dict(rule.let), rule.samples), Field(), 40, 0)
    trial.go()
    return not trial.failures and not trial.needs_order
