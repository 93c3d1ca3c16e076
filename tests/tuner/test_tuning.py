"""The loop over subgraphs and sketches: budgets, determinism, methods against one another, resuming."""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
import os
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from rlflow.errors import ModelError, UsageError
from rlflow.search import Budget, StopReason, StopToken
from rlflow.tuner import METHODS, RecordedEngine, Records, Remembering, Space, TensorProgram, Tuner, method, record
from rlflow.tuner.evolution import mutated
from rlflow.tuner.program_scores import KernelRidge
from rlflow.tuner.tasks import TuningTask
from rlflow.tuner.tracks import TrackConfig
from rlflow.tuner.warm_starts import SHIPPED
from tests.tuner import toys

TABLE = SHIPPED
NO_TORCH = importlib.util.find_spec("torch") is None
WITHOUT_NETWORK = [name for name, config in METHODS.items() if config.proposer != "tracks"]
ALL = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            NO_TORCH and name not in WITHOUT_NETWORK, reason="torch is not installed: pip install 'rlflow[rl]'"
        ),
    )
    for name in METHODS
]


def tuned(name: str, trials: int, seed: int = 0, subgraphs: int = 1, **changes):
    return Tuner(toys.engine(subgraphs), method(name, **changes), seed).run(Budget(measurements=trials))


@pytest.mark.parametrize("name", ALL)
def test_every_method_keeps_its_budget_and_measures_nothing_twice(name: str) -> None:
    found = tuned(name, 29, subgraphs=2)
    assert found.stop is StopReason.BUDGET_MEASUREMENTS
    assert found.trials == 29 == sum(len(one.programs) for one in found.rounds)
    for number in range(2):
        programs = [each for one in found.rounds if one.subgraph == number for each in one.programs]
        assert len(set(programs)) == len(programs)
        assert all(toys.SPACE.holds(one) for one in programs)
        seconds = [each for one in found.rounds if one.subgraph == number for each in one.seconds]
        assert found.best[number] is not None
        assert found.best[number][1] == min(seconds)


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_measures_the_same(name: str) -> None:
    one, other, another = tuned(name, 24, 5), tuned(name, 24, 5), tuned(name, 24, 6)
    assert [each.programs for each in one.rounds] == [each.programs for each in other.rounds]
    assert [each.programs for each in one.rounds] != [each.programs for each in another.rounds]


SCRIPT = """
import sys
from rlflow.search import Budget
from rlflow.tuner import Tuner, method
from tests.tuner import toys
found = Tuner(toys.engine(), method(sys.argv[1]), 5).run(Budget(measurements=24))
print([[one.sketch, list(one.values)] for each in found.rounds for one in each.programs])
"""


@pytest.mark.parametrize("name", ["evolutionary", pytest.param("harl", marks=ALL[0].marks)])
def test_it_measures_the_same_in_a_fresh_process_with_another_hash_seed(name: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", SCRIPT, name]
    there = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    here = [[one.sketch, list(one.values)] for each in tuned(name, 24, 5).rounds for one in each.programs]
    assert json.loads(there) == here


def test_a_small_space_is_used_up() -> None:
    space = Space((toys.FLAT, toys.NOTHING_OPEN))
    found = Tuner(toys.engine(1, space), method("evolutionary"), 0).run(Budget(measurements=10_000))
    assert found.stop is StopReason.EXHAUSTED
    assert found.trials == space.size
    best = min(toys.seconds_of(space, one) for one in space.programs())
    assert found.best[0] is not None and found.best[0][1] == pytest.approx(best)


def test_the_end_may_be_asked_for() -> None:
    stop = StopToken()
    rounds = []

    def told(done) -> None:
        rounds.append(done)
        if len(rounds) == 3:
            stop.stop()

    found = Tuner(toys.engine(), method("random"), 0).run(Budget(measurements=1000), told, stop)
    assert found.stop is StopReason.INTERRUPTED
    assert len(found.rounds) == 3
    assert found.best[0] is not None


def test_the_last_rounds_are_as_short_as_the_time_that_is_left(monkeypatch) -> None:
    """Two seconds a program, and time for a little more than one round of four and one of two."""
    now, slow = [0.0], toys.engine()
    fast = slow.measure

    def measure(number: int, programs: list[TensorProgram]) -> list[float]:
        now[0] += 2.0 * len(programs)
        return fast(number, programs)

    monkeypatch.setattr(slow, "measure", measure)
    monkeypatch.setattr("rlflow.tuner.tuning.time", SimpleNamespace(monotonic=lambda: now[0], process_time=lambda: 0.0))
    result = Tuner(slow, method("random")).run(Budget(seconds=13.0))
    assert method("random").batch == 4
    assert [len(one.programs) for one in result.rounds] == [4, 2, 1]
    assert (result.stop, now[0]) == (StopReason.BUDGET_SECONDS, 14.0)


def test_every_subgraph_has_a_round_before_any_has_two() -> None:
    for subgraphs in ("sw-ucb", "gradient", "round-robin"):
        found = tuned("evolutionary", 48, subgraphs=3) if subgraphs == "gradient" else Tuner(
            toys.engine(3), method("evolutionary", subgraphs=subgraphs), 0
        ).run(Budget(measurements=48))  # fmt: skip
        assert [one.subgraph for one in found.rounds[:3]] == [0, 1, 2]
    assert [one.subgraph for one in tuned("random", 64, subgraphs=3, batch=8).rounds] == [0, 1, 2, 0, 1, 2, 0, 1]


def test_the_first_round_has_programs_of_every_sketch() -> None:
    first = tuned("random", 8, batch=8).rounds[0]
    assert [one.sketch for one in first.programs] == [0] * 4 + [1] * 4
    assert [one.sketch for one in tuned("evolutionary", 4).rounds[0].programs] == [0, 0, 1, 1]


def test_the_sketch_that_gives_more_gets_more() -> None:
    """The second sketch of the toy is slower throughout, and is still looked at now and then."""
    pytest.importorskip("torch")
    rounds = tuned("harl", 64, exploration=1.5, tracks=TrackConfig(tracks=8, keep=4, train_every=0)).rounds
    assert rounds[0].sketch is None
    sketches = [one.sketch for one in rounds[1:]]
    assert sketches.count(0) > sketches.count(1) > 0


def test_the_curve_counts_trials_and_processor_time() -> None:
    rounds = tuned("random", 24, batch=8).rounds
    assert [one.trials for one in rounds] == [8, 16, 24]
    assert [one.best for one in rounds] == sorted((one.best for one in rounds), reverse=True)
    spent = [one.cpu_seconds for one in rounds]
    assert spent == sorted(spent)
    assert spent[0] >= 8 * 0.5


@pytest.mark.parametrize("name", ["harl", "evolutionary"])
def test_learning_beats_chance_at_equal_trials(name: str) -> None:
    if name == "harl":
        pytest.importorskip("torch")

    def best(which: str) -> float:
        return float(np.mean([math.log(tuned(which, 64, seed).best[0][1]) for seed in range(3)]))  # type: ignore[index]

    assert best(name) < best("random") - 0.1


def test_a_mutation_changes_one_parameter_and_stays_in_the_space() -> None:
    rng = np.random.default_rng(0)
    for program in toys.SPACE.random(rng, 200):
        sketch = toys.SPACE.sketches[program.sketch]
        after = mutated(sketch, program.values, rng)
        assert sketch.holds(after)
        bounds = [*sketch.begins, *range(sketch.split_columns, sketch.width + 1)]
        changed = [(a, b) for a, b in pairwise(bounds) if program.values[a:b] != after[a:b]]
        assert len(changed) == 1
    assert mutated(toys.NOTHING_OPEN, (), rng) == ()


def test_a_program_that_cannot_run_is_never_the_best() -> None:
    task = TuningTask(0, toys.engine(), KernelRidge())
    programs = task.fresh(np.random.default_rng(0), 3, 0, [])
    task.add(programs, [math.inf] * 3)
    assert task.best is None and not task.informed and task.ranked() == []
    more = task.fresh(np.random.default_rng(1), 2, 0, [])
    task.add(more, [math.inf, 2.0])
    assert task.best == (more[1], 2.0)
    assert task.informed


@pytest.mark.parametrize(
    "changes",
    [
        {"subgraphs": "dice"},
        {"sketches": "all"},
        {"proposer": "oracle"},
        {"batch": 0},
        {"chance": 2.0},
        {"optimism": -1.0},
    ],
)
def test_options_that_cannot_be_are_refused(changes) -> None:
    with pytest.raises(UsageError):
        method("harl", **changes)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UsageError, match="evolutionary"):
        method("ansor")


def test_the_recorded_table_is_tuned_near_its_optimum() -> None:
    """A fifth of the space, on the times of Winograd's kernels that this repository has."""
    engine = RecordedEngine.read(TABLE).only(0)
    found = Tuner(engine, method("evolutionary", batch=4), 0).run(Budget(measurements=33))
    assert found.best[0] is not None
    assert 0.9 < engine.optimum(0)[1] / found.best[0][1] <= 1.0


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.json"
    record(toys.engine(1, Space((toys.FLAT, toys.NOTHING_OPEN))), path, batch=7)
    return path


def test_a_table_is_written_and_read(table) -> None:
    space = Space((toys.FLAT, toys.NOTHING_OPEN))
    engine = RecordedEngine.read(table)
    assert [one.space for one in engine.subgraphs] == [space]
    programs = list(space.programs())
    expected = [toys.seconds_of(space, one) for one in programs]
    assert engine.measure(0, programs) == pytest.approx(expected, abs=1e-9)
    assert math.inf in expected
    assert engine.optimum(0)[1] == pytest.approx(min(expected), abs=1e-9)
    assert engine.trial_seconds == 0.5


@pytest.mark.parametrize(
    "damage",
    [
        lambda table: table.pop("form"),
        lambda table: table["tables"][0]["nanoseconds"].pop(),
        lambda table: table["tables"][0]["nanoseconds"].__setitem__(0, -5),
        lambda table: table["tables"][0]["nanoseconds"].__setitem__(0, "5"),
        lambda table: table["tables"][0]["subgraph"].pop("weight"),
        lambda table: table["tables"][0]["subgraph"].__setitem__("weight", -1.0),
        lambda table: table["tables"][0]["subgraph"]["sketches"][0]["tiles"][0].__setitem__("extent", 10**12),
        lambda table: table["tables"][0]["subgraph"]["sketches"][0]["tiles"][0].__setitem__("parts", 0),
        lambda table: table["tables"][0]["subgraph"]["sketches"][0]["tiles"][0].__setitem__("extent", True),
        lambda table: table["tables"][0]["subgraph"]["sketches"][0]["steps"][0].__setitem__("group", "x"),
        lambda table: table["tables"][0]["subgraph"]["sketches"][0]["steps"][0].__setitem__("values", [0.5]),
        lambda table: table["tables"][0]["subgraph"].__setitem__("sketches", []),
        lambda table: table["tables"][0]["subgraph"].__setitem__("sizes", [1.5]),
        lambda table: table["tables"][0]["subgraph"].__setitem__("sizes", [-1]),
        lambda table: table["tables"][0]["subgraph"].__setitem__("sizes", [1] * 100),
    ],
)
def test_a_table_that_was_tampered_with_is_refused(table, damage) -> None:
    content = json.loads(table.read_text())
    damage(content)
    table.write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"table\.json"):
        RecordedEngine.read(table)


@pytest.mark.parametrize("text", ["", "[]", "{", "[1, 2", '{"form": "rlflow tuner table 2"}'])
def test_what_is_no_table_is_refused(table, text: str) -> None:
    table.write_text(text)
    with pytest.raises(ModelError, match=r"table\.json"):
        RecordedEngine.read(table)


def test_a_table_may_be_compressed(table) -> None:
    small = table.with_suffix(".json.gz")
    small.write_bytes(gzip.compress(table.read_bytes()))
    assert RecordedEngine.read(small).seconds == RecordedEngine.read(table).seconds


_GOOD = gzip.compress(b"{}", mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{}", id="not compressed"),
        pytest.param(_GOOD, id="no table"),
        pytest.param(_GOOD[:-9], id="cut off"),
        pytest.param(b"\x1f\x8b" + bytes(30), id="no stream"),
    ],
)
def test_what_is_no_compressed_table_is_refused(table, content: bytes) -> None:
    small = table.with_suffix(".json.gz")
    small.write_bytes(content)
    with pytest.raises(ModelError, match=r"table\.json\.gz"):
        RecordedEngine.read(small)


def test_a_table_that_grows_beyond_all_measure_is_refused(table, monkeypatch) -> None:
    monkeypatch.setattr("rlflow.tuner.recorded._MOST_BYTES", 100)
    small = table.with_suffix(".json.gz")
    small.write_bytes(gzip.compress(bytes(1000)))
    with pytest.raises(ModelError, match="more than"):
        RecordedEngine.read(small)


# --- records ----------------------------------------------------------------------------------------------------------


class Counting(RecordedEngine):
    """A recorded engine that says how much it was asked, and may break."""

    asked, limit = 0, 10**9

    def measure(self, subgraph, programs):
        if self.asked + len(programs) > self.limit:
            raise KeyboardInterrupt
        self.asked += len(programs)
        return super().measure(subgraph, programs)


def counting(limit: int = 10**9) -> Counting:
    times = toys.times_of(toys.SPACE)
    found = Counting("a toy", toys.engine(2).subgraphs, [times, 2 * times], 0.5)
    found.limit = limit
    return found


@pytest.mark.parametrize("name", ["evolutionary", pytest.param("harl", marks=ALL[0].marks)])
def test_what_was_interrupted_goes_on_to_the_same_records(tmp_path, name: str) -> None:
    def run(path, limit: int = 10**9) -> Counting:
        engine, records = counting(limit), Records(path)
        try:
            Tuner(Remembering(engine, records), method(name), 3).run(Budget(measurements=48))
        except KeyboardInterrupt:
            pass
        finally:
            records.close()
        return engine

    def kept(path) -> dict:
        records = Records(path)
        found = [records.known("a toy", one) for one in toys.engine(2).subgraphs]
        records.close()
        return dict(enumerate(found))

    assert run(tmp_path / "whole.sqlite").asked == 48
    first = run(tmp_path / "parts.sqlite", 20)
    assert first.asked == 20
    assert run(tmp_path / "parts.sqlite").asked == 48 - 20
    assert kept(tmp_path / "whole.sqlite") == kept(tmp_path / "parts.sqlite")
    assert run(tmp_path / "parts.sqlite").asked == 0


def test_records_are_of_one_place_and_one_space(tmp_path) -> None:
    records = Records(tmp_path / "records.sqlite")
    subgraph = toys.engine().subgraphs[0]
    program = next(iter(subgraph.space.programs()))
    records.put("here", subgraph, [program], [0.25])
    assert records.known("here", subgraph) == {program: 0.25}
    assert records.known("there", subgraph) == {}
    narrower = toys.engine(1, Space((toys.GEMM,))).subgraphs[0]
    assert records.known("here", narrower) == {}
    records.close()


def test_damaged_records_are_left_out(tmp_path) -> None:
    import sqlite3

    path = tmp_path / "records.sqlite"
    records = Records(path)
    subgraph = toys.engine().subgraphs[0]
    programs = list(subgraph.space.programs())[:6]
    records.put("here", subgraph, programs, [0.25, math.inf, 1.0, 2.0, 3.0, 4.0])
    records.close()
    with sqlite3.connect(path) as connection:
        for at, (column, value) in enumerate(
            [("program", "[0, [1, 1, 1]]"), ("program", "no json"), ("seconds", -1.0), ("seconds", "soon")]
        ):
            text = json.dumps([programs[at + 2].sketch, list(programs[at + 2].values)])
            connection.execute(f"UPDATE trials SET {column} = ? WHERE program = ?", (value, text))
    connection.close()
    records = Records(path)
    assert records.known("here", subgraph) == {programs[0]: 0.25, programs[1]: math.inf}
    records.close()


def test_a_program_is_a_plain_value() -> None:
    assert TensorProgram(0, (1, 2)) == (0, (1, 2))
