"""The bench of HARL: what a database holds, what is shown of tuned models, and TVM's own search."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rlflow.kernels import Choice, KernelPlan
from rlflow.search import Budget
from rlflow.tuner import Records, Sketch, Steps, TensorProgram, Tile, Tuner, WarmStart, method
from rlflow.tuner.tuning import TuningRound
from rlflow.tuner.tvm_engine import unavailable
from tests.tuner import toys

HERE = Path(__file__).resolve().parents[2] / "reproduce" / "harl"


def opened(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"harl_{name}", HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


models, summaries, metaschedule, cutting, judging = (
    opened(name) for name in ("models", "summaries", "metaschedule", "record_generated", "judging")
)
sys.modules |= {"summaries": summaries, "judging": judging}  # as a script of that folder finds them
bench = opened("run")


def test_trials_are_those_of_the_database(tmp_path: Path) -> None:
    assert models.trials_of(tmp_path) == {}
    (subgraph,) = toys.engine().subgraphs
    programs = [TensorProgram(0, row) for row in subgraph.space.sketches[0].all_rows()[:3].tolist()]
    records = Records(tmp_path / "trials.sqlite")
    records.put("here", subgraph, programs[:2], [0.5, 0.25])
    before = models.trials_of(tmp_path)
    assert sorted(seconds for seconds, _ in before.values()) == [0.25, 0.5]
    records.put("here", subgraph, programs[2:], [1.0])
    after = models.trials_of(tmp_path)
    assert len(after) == 3
    assert before.items() <= after.items()
    records.put("here", subgraph, programs[:1], [2.0])
    records.close()
    assert not before.items() <= models.trials_of(tmp_path).items()


def test_what_a_plan_chose() -> None:
    choices = (
        Choice("a", (8, 3, 3, 1, 1), "depthwise", 1.5, {"side_by_side": 2}),
        Choice("b", (8, 3, 3, 1, 1), "depthwise", 1.5, {}),
    )
    plan = KernelPlan("1", 16, 1, 1.2, choices)
    assert models.kernels_of(plan) == {"depthwise": 2}
    assert models.choices_of(plan) == {"a": ("depthwise", {"side_by_side": 2}), "b": ("depthwise", {})}
    assert models.kernels_of(None) == models.choices_of(None) == {}


def test_a_line_for_each_row() -> None:
    tuned = {
        "kind": "model", "key": "net", "exit_status": 0, "ci95": [1.01, 1.03], "tuned_over_untuned": 1.02,
        "untuned_over_stock": 1.1, "tuned_over_stock": 1.122, "tuned_kernels": {"depthwise": 7}, "other_parameters": 3,
        "trials": 40, "cpu_seconds": 71.2,
    }  # fmt: skip
    interrupted = {
        "kind": "interrupt", "key": "net interrupted random", "when_interrupted": 24, "after": 48, "alone": 48,
        "kept_unchanged": True, "in_both": 48, "once_more_unchanged": True,
    }  # fmt: skip
    rows = [tuned, {"kind": "model", "key": "flat", "exit_status": 1}, interrupted]
    kept: Any = SimpleNamespace(of=lambda kind: [row for row in rows if row["kind"] == kind])
    lines = models.table(kept)
    assert "| net | 1.020 | 1.010 to 1.030 | 1.100 | 1.122 | 7 depthwise | 3 | 40 | 71 |" in lines
    assert "flat: ended with status 1" in lines
    assert lines[-1] == "| net interrupted random | 24 | 48 | 48 | True | 48 | True |"


def live(method: str, seed: int, *curve: list[float]) -> dict[str, Any]:
    return {
        "kind": "live", "title": "op", "method": method, "seed": seed, "gflops": 1.0, "cpu_seconds": curve[-1][2],
        "trials": 8, "curve": list(curve),
    }  # fmt: skip


def test_a_run_keeps_the_programs_that_it_climbed_by() -> None:
    def program(number: int) -> TensorProgram:
        return TensorProgram(0, (number,))

    def one(trials: int, *found: tuple[int, float]) -> TuningRound:
        programs, seconds = zip(*((program(number), took) for number, took in found), strict=True)
        return TuningRound(0, 0, programs, seconds, min(seconds), trials, trials / 2, 0.0)

    rounds = [one(2, (1, float("inf")), (2, 5.0)), one(4, (3, 6.0), (4, 5.0)), one(6, (5, 3.0), (6, 4.0))]
    assert bench.climb(rounds) == [[2, 1.0, [0, (2,)]], [6, 3.0, [0, (5,)]]]


def test_what_was_timed_in_turn_is_set_against_tvms_own_search() -> None:
    climbed = {
        0: [[4, 2.0, 13.0], [8, 4.0, 10.0]],
        1: [[4, 3.0, None], [8, 5.0, 12.0]],
        2: [[4, 9.0, 12.1], [6, 12.0, 8.0]],
    }
    rows = [
        {"kind": "judged", "title": "op", "method": method, "seed": seed, "middle_us": middle}
        for method, found in {"harl": [10.0, 12.0, 8.0], "metaschedule": [15.0, 11.0, 12.0]}.items()
        for seed, middle in enumerate(found)
    ]
    rows[:3] = [{**row, "steps": climbed[row["seed"]]} for row in rows[:3]]
    rows.append({"kind": "judged", "title": "op", "method": "random", "seed": 0})  # it found nothing that runs
    rows += [live("metaschedule", seed, [4, 9.0, 5.0], [8, last, 8.0]) for seed, last in enumerate((6.0, 6.0, 9.0))]
    shown = list(summaries.lines(rows))
    assert "| op | harl | 10.0 | 8.0, 12.0 | 1.200 | 5 | 5 | 3 |" in shown
    assert "| op | metaschedule | 12.0 | 11.0, 15.0 | 1.000 | 8 |  | 3 |" in shown
    assert not any("random" in line for line in shown)


def test_what_cannot_be_timed_again_keeps_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = bench.results.Results(tmp_path / "live.jsonl", ["test"], dirty=True)
    title = next(iter(bench.OPERATORS))
    for seed in range(2):
        kept.add({**live("harl", seed, [4, 9.0, 5.0]), "title": title, "key": f"live {seed}"})
    kept.add({"kind": "judged", "key": "judged live 0", "title": title, "method": "harl", "seed": 0, "middle_us": 3.0})
    monkeypatch.setattr(judging, "judged", lambda kind, sizes, rows: [{}, {"middle_us": 2.0}])
    bench.on_judge(kept, SimpleNamespace(operators=[title], methods=["harl"]))
    assert [(row["seed"], row["middle_us"]) for row in kept.of("judged")] == [(0, 3.0), (1, 2.0)]


# --- the table of programs that TVM generates -------------------------------------------------------------------------

FULL = Sketch(
    "sketch 0",
    (Tile("loop0", 1, 4, 64), Tile("loop1", 2048, 4, 64), Tile("loop2", 768, 2, 64, True)),
    (Steps("unroll3", "unroll", (0, 16, 64, 512)),),
)


@pytest.mark.parametrize(
    ("cut", "full"),
    [
        ((64, 16, 2, 384, 2), (1, 1, 1, 1, 64, 1, 16, 2, 384, 2, 1)),
        ((2048, 1, 1, 768, 1), (1, 1, 1, 1, 2048, 1, 1, 1, 768, 1, 1)),
        ((1, 32, 64, 192, 4), (1, 1, 1, 1, 1, 1, 32, 64, 192, 4, 1)),
    ],
)
def test_a_row_of_a_cut_space_stands_for_one_of_tvms(cut: tuple[int, ...], full: tuple[int, ...]) -> None:
    how = cutting.OPERATORS["matrix-vector"]
    assert cutting.cut_sketch(FULL, how).holds(cut)
    assert cutting.full_row(FULL, how, cut) == full
    assert FULL.holds(full)


def test_every_edit_of_a_cut_space_stays_inside() -> None:
    how = cutting.OPERATORS["matrix-vector"]
    rows = cutting.cut_sketch(FULL, how).all_rows()
    assert all(FULL.holds(cutting.full_row(FULL, how, row)) for row in rows.tolist())
    assert len({cutting.full_row(FULL, how, row) for row in rows.tolist()}) == len(rows)


def test_the_recorded_programs_are_whole_spaces_without_a_clock() -> None:
    every = list(bench.shapes("generated"))
    assert [one.table.subgraphs[one.number].family for one in every] == ["gemm", "grouped", "depthwise"]
    assert [one.table.subgraphs[one.number].space.size for one in every] == [756, 360, 432]
    assert all(one.starts() == ("cold",) for one in every)
    assert all(one.starts() == ("cold", "warm") for one in bench.shapes("winograd"))
    runs = [Tuner(every[1].engine(), method("random"), 3).run(Budget(measurements=12)) for _ in range(2)]
    assert [one.seconds for one in runs[0].rounds] == [one.seconds for one in runs[1].rounds]


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
def test_tvms_own_search_measures_batch_after_batch() -> None:
    from tvm.s_tir import meta_schedule

    operator, best = metaschedule.OperatorPrograms("gemm", (64, 64, 64), 0), metaschedule.Best()
    found = list(metaschedule.curve(operator, 32, 0, meta_schedule.CostModel.create("random"), best))
    assert [done for done, _, _ in found] == [16, 32]
    assert 0 < found[1][1] <= found[0][1] < 1e4
    assert 0 < found[0][2] < found[1][2]
    ours = [2, [1, 4, 4, 4, 1, 4, 1, 16, 16, 4, 1]]
    slow = [2, [64, 1, 1, 1, 64, 1, 1, 1, 64, 1, 1]]
    rows = [{"seed": 0, "trace": best.text()}, {"seed": 0, "trace": None},
            {"seed": 0, "climb": [[4, 1.5, slow], [8, 2.5, ours]]}]  # fmt: skip
    theirs, none, mine = judging.judged("gemm", (64, 64, 64), rows)
    assert none == {}
    assert [step[:2] for step in mine["steps"]] == [[4, 1.5], [8, 2.5]]
    assert mine["steps"][0][2] > mine["steps"][1][2] == mine["middle_us"]
    assert 0.5 < theirs["least_us"] <= theirs["middle_us"] < 1e3
    assert 0.5 < mine["least_us"] <= mine["middle_us"] < 1e3
    assert theirs["least_us"] < 2 * found[1][1]  # it is the program that was found


def test_actors_learn_and_begin_as_their_names_say(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from rlflow.tuner.actor_critic import ActorConfig, Agent

    weights, calls, shape = Agent(ActorConfig(), 1).weights(), list[str](), next(bench.shapes("winograd"))
    for name in ("learn", "load"):
        monkeypatch.setattr(Agent, name, lambda *_, name=name: calls.append(name))
    found = {}
    for actor in bench.ACTORS:
        calls.clear()
        row = bench.transferred(shape, "short", actor, WarmStart(None, weights), 0, 8)
        assert row["trials"] == 8
        found[actor] = set(calls)
    assert found == {
        "from scratch": {"learn"}, "untrained weights": set(), "zero-shot": {"load"}, "fine-tuned": {"load", "learn"},
    }  # fmt: skip
