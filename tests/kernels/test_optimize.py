"""`rlflow optimize --kernels`: what is measured becomes a plan where it wins the race; else a note says why not."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import blocked_models as models
import numpy as np
import onnx
import onnxruntime as ort
import pytest

import rlflow
import rlflow.kernels
from rlflow.errors import CostError, GraphError, UsageError
from rlflow.frontends import kernel_kinds
from rlflow.frontends.kernel_sites import KERNELS, Site
from rlflow.kernels import KEY, KernelPlan, shared_library, site_times
from rlflow.pipeline import kernel_planning as stage
from rlflow.pipeline.parts import ModelTimes, Parts, Timing
from rlflow.race import gate
from rlflow.runtime import NodeTime
from rlflow.runtime.interface import metadata_entry

QUICK = {"cost": "analytic", "search": "greedy", "budget": "1x", "kernels": True}

needs_library = pytest.mark.skipif(rlflow.kernels.unavailable() is not None, reason=str(rlflow.kernels.unavailable()))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFLOW_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def winning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which F(4×4) takes half of the runtime's time everywhere, and the race says so."""

    def measured(graph: Any, *_: Any) -> dict[str, dict[str, float]]:
        times = {"": 100.0, "winograd-2x2": 70.0, "winograd-4x4": 50.0}
        return {one.name: times for one in graph.sites()}

    class Decision:
        winner, speedup, reason = "kernels", 1.5, ""

    monkeypatch.setattr(stage, "measured", measured)
    monkeypatch.setattr(gate, "choose", lambda *_, **__: Decision())


def optimised(tmp_path: Path, **changes: Any) -> tuple[Path, Any]:
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    path.write_bytes(models.small_network())
    return out, rlflow.optimize(path, output=out, **{**QUICK, **changes})


def plan_of(path: Path) -> KernelPlan | None:
    text = metadata_entry(str(path), KEY)
    return None if text is None else KernelPlan.parse(text)


def why(result: Any) -> str:
    return next(note for note in result.report.notes if "no plan of kernels" in note)


@needs_library
@pytest.mark.usefixtures("winning")
def test_the_plan_is_in_the_file_and_in_the_result(tmp_path: Path) -> None:
    out, result = optimised(tmp_path)
    plan = plan_of(out)
    assert plan is not None
    assert plan.speedup == 1.5
    assert {choice.algorithm for choice in plan.choices} == {"winograd-4x4"}
    assert [entry.value for entry in result.model.metadata_props if entry.key == KEY] == [plan.text()]
    onnx.checker.check_model(onnx.load(out))
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 3, 24, 24)).astype(np.float32)}
    expected = ort.InferenceSession(str(out)).run(None, feeds)[0]  # anywhere, without the kernels
    found = rlflow.kernels.session(out).run(None, feeds)[0]
    assert 0.0 < np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


@needs_library
@pytest.mark.usefixtures("winning")
def test_a_strict_tolerance_allows_no_plan(tmp_path: Path) -> None:
    out, result = optimised(tmp_path, tolerance="strict")
    assert plan_of(out) is None
    assert "--tolerance strict" in why(result)


@needs_library
@pytest.mark.usefixtures("winning")
def test_outputs_that_differ_too_much_lead_to_the_more_exact_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    def difference(self: Any, model: bytes, worker: Any) -> str | None:
        asked.append(model)
        return "by far" if len(asked) == 1 else None

    monkeypatch.setattr(stage._Planning, "_difference", difference)
    plan = plan_of(optimised(tmp_path)[0])
    assert plan is not None
    assert {choice.algorithm for choice in plan.choices} == {"winograd-2x2"}


@needs_library
@pytest.mark.usefixtures("winning")
def test_wrong_kernels_are_found_by_their_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is the real one: a convolution that is done with another padding gives no plan."""
    monkeypatch.setattr(kernel_kinds, "_pads", lambda *_: [2, 2, 0, 0])
    out, result = optimised(tmp_path)
    assert plan_of(out) is None
    assert "the outputs differ" in why(result)


@needs_library
@pytest.mark.usefixtures("winning")
def test_what_loses_the_race_is_no_plan_and_an_old_one_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, result = optimised(tmp_path)
    assert plan_of(out) is not None

    class Decision:
        winner, speedup, reason = None, 1.0, "it is as fast as before."

    monkeypatch.setattr(gate, "choose", lambda *_, **__: Decision())
    again = tmp_path / "again.onnx"
    result = rlflow.optimize(out, output=again, **QUICK)
    assert plan_of(again) is None
    assert why(result) == "There is no plan of kernels: it is as fast as before."
    assert not [entry for entry in result.model.metadata_props if entry.key == KEY]


@needs_library
@pytest.mark.usefixtures("winning")
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyboardInterrupt(), "There is no plan of kernels: they were interrupted."),
        (OSError(28, "No space left on device"), "There is no plan of kernels: [Errno 28] No space left on device."),
        (GraphError("a strange node."), "There is no plan of kernels: a strange node."),
    ],
    ids=["Ctrl-C", "a full disk", "a graph that is not understood"],
)
def test_what_goes_wrong_while_kernels_are_planned_leaves_the_model(
    error: BaseException, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("rlflow.pipeline.kernel_planning._Planning.plan", fail)
    path, result = optimised(tmp_path)
    assert plan_of(path) is None
    assert says in result.report.notes
    onnx.checker.check_model(onnx.load(path))


def test_a_model_without_such_nodes_has_no_plan(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(name, 1, [1, 8]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "relu", values[:1], values[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    assert "no node that a kernel can do" in why(rlflow.optimize(model, **QUICK))


@needs_library
def test_measured_for_real_there_is_a_plan_or_a_reason(tmp_path: Path) -> None:
    out, result = optimised(tmp_path)
    plan = plan_of(out)
    assert (plan is None) == any("no plan of kernels" in note for note in result.report.notes)


def test_another_runtime_and_a_missing_library_are_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="--kernels is for ONNX Runtime on the processor"):
        rlflow.optimize(models.small_network(), kernels=True, measure_cmd="echo {model}")
    monkeypatch.setattr(shared_library, "library_path", lambda: "/nowhere")
    with pytest.raises(UsageError, match="--kernels cannot be used here: the library of kernels was not built"):
        rlflow.optimize(models.small_network(), **QUICK)


@pytest.mark.parametrize(
    ("times", "algorithms", "expected"),
    [
        ({"": 100.0, "a": 50.0, "b": 40.0}, ("a", "b"), ("b", 2.5)),
        ({"": 100.0, "a": 50.0, "b": 40.0}, ("a",), ("a", 2.0)),
        ({"": 100.0, "a": 98.0}, ("a",), None),
        ({"": 100.0, "a": 0.0}, ("a",), None),
        ({"a": 50.0}, ("a",), None),
        ({"": 100.0}, ("a",), None),
    ],
)
def test_the_fastest_algorithm_is_chosen_where_it_is_faster(times: Any, algorithms: Any, expected: Any) -> None:
    one = Site("convolution", "c", (16, 16))
    found = site_times.chosen([one], {"c": times}, algorithms)
    assert [(choice.algorithm, choice.ratio) for choice in found] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("sizes", "shape", "expected"),
    [
        ((8, 8), (2, 2, 8), ["row-product"]),
        ((8, 8), (5, 8), []),
        ((8, 8), (128, 8), []),
        ((8, 8), None, []),
        ((64, 48), (1, 128, 64), ["blocked-product"]),
        ((64, 96), (1, 128, 64), ["product-strassen", "blocked-product"]),
        ((64, 96), (47, 64), []),
        ((64, 96), None, []),
    ],
)
def test_what_is_tried_for_a_product_depends_on_its_rows(sizes: Any, shape: Any, expected: list[str]) -> None:
    assert site_times.worth_trying("product", sizes, shape) == expected


@needs_library
def test_each_variant_has_the_next_algorithm_of_each_site() -> None:
    sites = [Site("product", "few", (8, 8)), Site("product", "many", (8, 8)), Site("convolution", "c", (16, 16))]
    variants = list(site_times.variants(sites, {"few": (1, 8), "many": (128, 8)}))
    assert variants == [{}, {"few": "row-product", "c": "winograd-4x4"}, {"c": "winograd-2x2"}]


class Machine:
    """A profiler, and its clock: opening a session takes two seconds. ``runs`` are those of each session."""

    def __init__(self) -> None:
        self.now, self.runs, self.tried = 0.0, list[int](), list[dict[str, Any]]()

    def profile(self, model: Any, feeds: Any, *, runs: int) -> list[NodeTime]:
        self.now += 2.0
        self.runs.append(runs)
        self.tried.append({name: (one["tile"], one.get("kept", 0)) for name, one in model.items()})
        return [NodeTime("few", "", 2e4, runs, (1, 16, 7, 7)), NodeTime("many", "", 2e4, runs, (1, 16, 56, 56))]


SITES = [Site("convolution", "few", (16, 16)), Site("convolution", "many", (16, 16))]


@pytest.mark.parametrize(
    ("seconds", "sessions", "runs"),
    [(0.5, 2, 3), (3.0, 2, 4), (7.0, 3, 10), (11.0, 5, 15), (25.0, 10, 15), (None, 15, 15)],
)
def test_measuring_ends_with_its_time(
    seconds: float | None, sessions: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five variants of 40 ms a run, the most promising first; the runtime's own and the first in any case."""
    machine = Machine()
    monkeypatch.setattr(site_times, "time", SimpleNamespace(monotonic=lambda: machine.now))
    graph: Any = SimpleNamespace(sites=lambda: SITES, weight_bytes=1, with_kernels=lambda given: given)
    found = site_times.measured(graph, machine, {}, seconds)
    assert machine.tried[:3] == [{}, {"few": (2, 1), "many": (4, 0)}, {"few": (4, 0), "many": (2, 0)}][:sessions]
    assert (len(machine.tried), machine.runs[-1]) == (sessions, runs)
    assert set(found["many"]) == {"", *(("winograd-4x4", "winograd-2x2")[: sessions - 1])}


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"a": {"": 10.0, "x": 5.0, "y": 6.0, "z": 6.5}}, [{"a": "x"}, {"a": "y"}]),
        ({"a": {"": 10.0, "x": 9.0}, "b": {"": 9.0, "y": 4.0}}, [{"a": "", "b": "y"}, {"a": "x", "b": "y"}]),
        ({"a": {"": 10.0}, "never run": {}}, [{"a": ""}]),
        ({}, []),
    ],
)
def test_what_is_far_behind_is_measured_no_more(times: Any, expected: Any) -> None:
    assert site_times.contenders(times) == expected


def test_later_turns_are_those_of_the_contenders(monkeypatch: pytest.MonkeyPatch) -> None:
    """At both sites F(4×4) is nearly as fast as another algorithm, and all else far behind: two variants a turn."""
    machine = Machine()
    fast = {(4, 0): 1.1e4, (2, 1): 1e4, (2, 0): 1e4}
    slow = {"few": (2, 0), "many": (2, 1)}

    def profile(model: Any, feeds: Any, *, runs: int) -> list[NodeTime]:
        nodes = Machine.profile(machine, model, feeds, runs=runs)
        kinds = machine.tried[-1]
        return [
            NodeTime(one.name, "", 2e4 if kinds.get(one.name) == slow[one.name] else fast.get(kinds.get(one.name), 2e4),
                     runs, one.shape)
            for one in nodes
        ]  # fmt: skip

    monkeypatch.setattr(site_times, "time", SimpleNamespace(monotonic=lambda: machine.now))
    graph: Any = SimpleNamespace(sites=lambda: SITES, weight_bytes=1, with_kernels=lambda given: given)
    found = site_times.measured(graph, SimpleNamespace(profile=profile), {}, 20.0)  # type: ignore[arg-type]
    assert len(machine.tried) == 5 + 2 + 2
    assert machine.tried[5:7] == machine.tried[7:]
    assert {one: [tried[one] for tried in machine.tried[5:7]] for one in ("few", "many")} == {
        "few": [(2, 1), (4, 0)], "many": [(4, 0), (2, 0)],
    }  # fmt: skip
    assert (found["few"][""], found["few"]["winograd-2x2-kept"]) == (2e4, 1e4)


def test_weights_that_are_transformed_once_do_not_cost_later_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two algorithms keep transformed weights, which takes six seconds more the first time."""
    machine, known = Machine(), set[tuple[str, int]]()
    monkeypatch.setattr(site_times, "time", SimpleNamespace(monotonic=lambda: machine.now))

    def with_kernels(given: dict[str, Any]) -> dict[str, Any]:
        new = {(name, one["tile"]) for name, one in given.items() if one.get("kept")} - known
        known.update(new)
        machine.now += 6.0 * len(new)
        return given

    graph: Any = SimpleNamespace(sites=lambda: SITES, weight_bytes=1, with_kernels=with_kernels)
    site_times.measured(graph, machine, {}, 45.0)
    assert (len(known), len(machine.tried), machine.now) == (2, 15, 42.0)


def test_the_stage_leaves_the_race_and_the_check_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(stage, "time", SimpleNamespace(monotonic=lambda: now[0]))
    left = stage._Time(Timing(10.0, 18.0, 20.0), ModelTimes(0.1, 0.03))
    assert left.measuring() == pytest.approx(3.0)  # blocks take 7.8, the check 1.6: they end late, but in time
    now[0] += 6.0
    assert left.measuring() == 0.0
    left.need_check()
    assert left.checking() == pytest.approx(1.2)
    assert left.racing() == pytest.approx({"seconds": 4.0, "at_most": 12.0, "for_least": 14.0})
    now[0] += 11.5
    assert left.racing() == pytest.approx({"seconds": 0.5, "at_most": 0.5, "for_least": 2.5})
    with pytest.raises(CostError, match="over before their outputs could be compared"):
        left.need_check()
    now[0] += 1.0
    with pytest.raises(CostError, match="over before the whole models could be compared"):
        left.racing()
    unlimited = stage._Time(None, ModelTimes())
    assert (unlimited.measuring(), unlimited.checking(), unlimited.racing()) == (None, 8.0, {"seconds": 20.0})


@pytest.mark.parametrize(
    ("pace", "start", "seconds"),
    [
        (ModelTimes(0.01, 0.001), 0.3, 30.0 - 0.35 * 30.0 - 0.06 - 1.8),  # a third of all is enough for the race
        (ModelTimes(0.4, 0.08), 0.3, 9.0),  # of a large model, what a claim needs ends after the budget
        (ModelTimes(0.4, 0.08), 1.2, 38.0 - 8 * 3.28 - 2.8 - 1.8),  # and on a busy machine as late as it may
        (ModelTimes(0.2, 0.4), 0.3, 9.0),  # long runs are few in a block
        (ModelTimes(2.0, 0.4), 0.8, 0.0),  # too large for a claim
    ],
)
def test_measuring_has_what_the_blocks_of_a_claim_leave(pace: ModelTimes, start: float, seconds: float) -> None:
    left = stage._Time(Timing(30.0, 35.0, 38.0), pace)
    left.start = start
    assert left.measuring() == pytest.approx(seconds, abs=0.01)


@needs_library
def test_the_race_of_kernels_ends_soon_after_the_budget(
    tmp_path: Path, winning: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    class Decision:
        winner, speedup, reason = None, 1.0, "it is as fast as before."

    def choose(*_: Any, **how: Any) -> Decision:
        asked.update(how)
        return Decision()

    monkeypatch.setattr(gate, "choose", choose)
    optimised(tmp_path, budget="60s")
    assert 0.0 < asked["seconds"] <= 60.0
    assert asked["seconds"] < asked["at_most"] <= 1.1 * 60.0 + 2.0


@needs_library
def test_both_models_of_the_race_map_the_same_weights(
    tmp_path: Path, winning: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[Path] = []

    class Decision:
        winner, speedup, reason = None, 1.0, "it is as fast as before."

    def choose(_: Any, plain: str, candidates: dict[str, str], *__: Any, **___: Any) -> Decision:
        for number, one in enumerate((plain, *candidates.values())):
            files.append(Path(shutil.copy(one, tmp_path / f"{number}.onnx")))
        return Decision()

    monkeypatch.setattr(gate, "choose", choose)
    optimised(tmp_path)
    graphs = [onnx.load(one, load_external_data=False).graph for one in files]
    entries = [[one for tensor in graph.initializer for one in tensor.external_data] for graph in graphs]
    outside = [{one.value for one in some if one.key == "location"} for some in entries]
    assert outside[0] == outside[1] != set()
    assert [any(node.domain == KERNELS for node in graph.node) for graph in graphs] == [False, True]


@needs_library
def test_where_the_budget_is_over_nothing_is_measured(
    tmp_path: Path, winning: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Parts, "kernels", lambda _: Timing(0.0, 0.0))
    out, result = optimised(tmp_path, budget="1s")
    assert plan_of(out) is None
    assert why(result) == "There is no plan of kernels: the budget was over before they could be measured."


def test_transformed_weights_are_tried_for_few_pixels() -> None:
    few, many = (site_times.worth_trying("convolution", (64, 64), (1, 64, size, size)) for size in (14, 56))
    assert few == ["winograd-2x2", "winograd-2x2-kept", "winograd-4x4", "winograd-4x4-kept"]
    assert many == ["winograd-2x2", "winograd-4x4"]


@pytest.mark.parametrize(("kept", "expected"), [(90.0, "winograd-2x2-kept"), (97.0, "winograd-2x2")])
def test_the_memory_of_transformed_weights_must_gain_more(kept: float, expected: str) -> None:
    times = {"": 200.0, "winograd-2x2": 100.0, "winograd-2x2-kept": kept}
    (choice,) = site_times.chosen([Site("convolution", "c", (16, 16))], {"c": times}, tuple(times)[1:])
    assert choice.algorithm == expected
    assert choice.ratio == round(200.0 / times[expected], 3)


def test_memory_goes_where_a_byte_saves_most() -> None:
    """F(2x2) of 16 by 16 channels keeps 7 · 4 · 256 bytes more, and of 32 by 32 four times as many."""
    sites = [Site("convolution", "large", (32, 32)), Site("convolution", "small", (16, 16))]
    fast = {"": 200.0, "winograd-2x2": 100.0, "winograd-2x2-kept": 50.0}
    times = {"large": fast, "small": fast}

    def kept(room: float) -> list[bool]:
        return [one.algorithm.endswith("-kept") for one in site_times.chosen(sites, times, tuple(fast)[1:], room)]

    assert [kept(7 * 4 * 256 * room) for room in (0.9, 1, 4.9, 5)] == [
        [False, False], [False, True], [False, True], [True, True],
    ]  # fmt: skip
    only = {"large": {"": 100.0, "winograd-2x2-kept": 50.0}, "small": {"": 100.0}}
    assert site_times.chosen(sites, only, ("winograd-2x2-kept",), 0) == []


def test_sites_that_do_the_same_work_have_one_time() -> None:
    sites = [Site("convolution", name, (16, 16)) for name in ("one", "same", "larger", "unknown")]
    shapes = {"one": (1, 16, 7, 7), "same": (1, 16, 7, 7), "larger": (1, 16, 14, 14)}
    times = {
        "one": {"": 8.0, "a": 4.0, "b": 1.0},
        "same": {"": 4.0, "a": 5.0},
        "larger": {"": 1.0},
        "unknown": {"": 2.0},
    }
    pooled = site_times._pooled(times, sites, shapes)
    assert pooled["one"] == pooled["same"] == {"": 6.0, "a": 4.5}
    assert [pooled[name] for name in ("larger", "unknown")] == [{"": 1.0}, {"": 2.0}]
