"""``rlflow tune``: a small model is tuned, interrupted, gone on with; every mistake is a sentence."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from rlflow import tuned as tuned_module
from rlflow.cli import main
from rlflow.frontends.kernel_sites import Site
from rlflow.kernels import ALGORITHMS, KEY, Choice, KernelPlan, unavailable
from rlflow.kernels.generated_code import CodeChoice, GeneratedCode
from rlflow.kernels.preparing import block_here
from rlflow.runtime.interface import metadata_entry
from rlflow.tuned import TunedNodes
from rlflow.tuner import Records, TensorProgram
from rlflow.tuner.generated_engine import GENERATED, GeneratedEngine
from rlflow.tuner.trial_records import require_trials
from tests.kernels import blocked_models

needs_kernels = [
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
    pytest.mark.skipif(
        unavailable() is None and not block_here(), reason="this processor's ONNX Runtime has no blocked layout"
    ),
]

in_one_worker = [*needs_kernels, pytest.mark.xdist_group("a tuned model")]
BRIEF = ("--method", "evolutionary", "--gate-seconds", "3")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.onnx"
    path.write_bytes(blocked_models.small_network(32, 32))
    return path


def tune(*arguments: object):
    return CliRunner().invoke(main, ["tune", *map(str, arguments)])


@pytest.fixture(scope="module")
def tuned(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned") / "out"
    return tune(model, "-o", folder, "--budget", "24meas", *BRIEF, "--json", "-q"), folder


class TestATunedModel:
    pytestmark = in_one_worker

    def test_it_is_written_with_what_was_found(self, tuned) -> None:
        done, folder = tuned
        assert done.exit_code == 0, done.output
        report = json.loads(done.stdout)
        assert report == json.loads((folder / "report.json").read_text())
        assert report["trials"] == 24
        assert report["remembered"] == 0
        assert report["stop"] == "budget-measurements"
        assert sum(len(one["nodes"]) for one in report["nodes"]) == 2
        assert all(0 < one["best_us"] <= one["own_us"] for one in report["nodes"])
        text = metadata_entry(str(folder / "model.onnx"), KEY)
        if report["speedup"] is None:
            assert text is None and "no plan" in report["note"]
        else:
            plan = KernelPlan.parse(text)
            assert {one.algorithm for one in plan.choices} == {one["algorithm"] for one in report["nodes"]} - {""}
            assert plan.speedup == report["speedup"] > 1

    def test_run_again_it_measures_nothing_twice(self, tuned, model) -> None:
        _, folder = tuned
        done = tune(model, "-o", folder, "--budget", "24meas", *BRIEF, "--json", "-q")
        assert done.exit_code == 0, done.output
        report = json.loads(done.stdout)
        assert (report["trials"], report["remembered"]) == (24, 24)

    def test_what_is_shown(self, tuned, model) -> None:
        _, folder = tuned
        done = tune(model, "-o", folder, "--budget", "16meas", *BRIEF)
        assert done.exit_code == 0, done.output
        assert "16 programs measured, 16 of them known before; budget-measurements." in done.stdout
        assert "model.onnx" in done.stdout
        assert "measured" in done.stderr


@pytest.mark.parametrize(
    ("seconds", "gate_seconds", "expected"),
    [
        (None, None, {"seconds": 20.0}),
        (20.0, None, {"seconds": 4.0, "at_most": 11.0}),
        (600.0, None, {"seconds": 20.0, "at_most": 90.0}),
        (600.0, 40.0, {"seconds": 40.0}),
        (None, 5.0, {"seconds": 5.0}),
    ],
)
def test_the_race_ends_soon_after_the_budget_or_has_what_it_is_given(
    seconds: float | None, gate_seconds: float | None, expected: dict[str, float]
) -> None:
    unused = (b"", None, None, None, 1, 0)
    assert tuned_module._Ends(*unused, seconds, gate_seconds)._race_time() == expected


@pytest.mark.parametrize(
    ("own", "other", "late", "timed", "chosen"),
    [
        (10.0, 5.0, False, 3, "winograd-4x4"),  # in turn with the runtime's own
        (10.0, 5.0, True, 0, "winograd-4x4"),  # what the tuning measured counts
        (10.0, 12.0, False, 0, ""),  # no finalist
        (10.0, 10.5, False, 3, "winograd-4x4"),  # may have had a bad moment
        (math.inf, 5.0, True, 3, "winograd-4x4"),  # nothing to compare it with
        (10.0, None, False, 0, ""),
    ],
)
def test_finalists_are_timed_again_while_there_is_time(
    own: float, other: float | None, late: bool, timed: int, chosen: str
) -> None:
    first, second = TensorProgram(0, ()), TensorProgram(1, (0,))
    measured = {first: own, **({} if other is None else {second: other})}
    sketches = [SimpleNamespace(name=name) for name in ("onnxruntime", "winograd-4x4")]
    task = SimpleNamespace(
        measured=measured,
        ranked=lambda: sorted(measured, key=measured.__getitem__),
        subgraph=SimpleNamespace(space=SimpleNamespace(sketches=sketches)),
        seconds=min(measured.values()),
    )
    calls: list[int] = []

    def measure(number: int, programs: list[TensorProgram]) -> list[float]:
        calls.append(number)
        return [8.0, 4.0][: len(programs)]

    engine = SimpleNamespace(
        groups=[[Site("convolution", "a", (64, 64))]], measure=measure, attributes=lambda *_: ("winograd-4x4", {})
    )
    began = time.monotonic() - (9.0 if late else 0.0)
    how = (1, 0, 10.0, None, Path("kernels.so"), began)
    ends = tuned_module._Ends(b"", engine, SimpleNamespace(tasks=[task]), None, *how)  # type: ignore[arg-type]
    [final] = ends._finals(frozenset())
    assert (len(calls), final.algorithm) == (timed, chosen)


def test_transformed_weights_stay_within_the_memory_that_is_allowed(monkeypatch) -> None:
    """Two groups together need more than there is; the one that saves less a byte takes another algorithm."""
    sites = [Site("convolution", name, (64, 64)) for name in "abc"]
    more = ALGORITHMS["winograd-4x4-kept"].more_bytes((64, 64))
    asked = []

    def final(ends, number: int, without: frozenset[str]) -> TunedNodes:
        asked.append((number, without))
        return TunedNodes(("c",), 100.0, 60.0, "winograd-4x4", {})

    monkeypatch.setattr(tuned_module._Ends, "_final", final)
    for room, others in ((3 * more, []), (2 * more, [1]), (more, [0]), (0, [0, 1])):
        engine = SimpleNamespace(groups=[sites[:2], sites[2:]], graph=SimpleNamespace(weight_bytes=room))
        finals = [
            TunedNodes(("a", "b"), 200.0, 80.0, "winograd-4x4-kept", {}),  # 60 a site
            TunedNodes(("c",), 100.0, 50.0, "winograd-4x4-kept", {}),
        ]
        ends = tuned_module._Ends(b"", engine, None, None, 1, 0, None)  # type: ignore[arg-type]
        asked.clear()
        ends._fit_into_memory(finals, frozenset())
        assert sorted(number for number, _ in asked) == others
        assert all("winograd-4x4-kept" in without for _, without in asked)
        assert [one.algorithm == "winograd-4x4" for one in finals] == [number in others for number in range(2)]


def test_where_outputs_differ_no_algorithm_that_rounds_so_much_is_tried_again() -> None:
    first, second, third = tuned_module._ATTEMPTS
    assert not first
    assert {"winograd-4x4", "winograd-4x4-kept"} <= second < third
    assert all(ALGORITHMS[name].exact for name in set(ALGORITHMS) - third)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--method", "ansor"], 2, "ansor"),
        (["--budget", "12x"], 2, "neither time nor measurements"),
        (["--budget", "soon"], 2, "budget"),
        (["--gate-seconds", "0"], 2, "final comparison must be above zero seconds"),
    ],
)
def test_a_mistake_is_a_sentence(model, tmp_path, arguments, code, sentence) -> None:
    done = tune(model, "-o", tmp_path / "out", "--method", "random", *arguments)
    assert done.exit_code == code, done.output
    assert sentence in done.stderr
    assert not (tmp_path / "out").exists()


def test_without_torch_it_says_what_to_install(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("rlflow.nn.available", lambda: "torch is not installed: pip install 'rlflow[rl]'")
    done = tune(model, "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert "pip install 'rlflow[rl]'" in done.stderr
    assert "evolutionary" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["gone.onnx", "empty.onnx"])
def test_what_is_no_model_is_refused(tmp_path, name) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    done = tune(tmp_path / name, "-o", tmp_path / "out", "--method", "random")
    assert done.exit_code == 1
    assert name in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_place_of_the_folder_is_refused(model, tmp_path) -> None:
    (tmp_path / "out").write_text("mine")
    done = tune(model, "-o", tmp_path / "out", "--method", "random")
    assert done.exit_code == 1
    assert (tmp_path / "out").read_text() == "mine"


def database(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


NOTES = ("CREATE TABLE notes (a)", "INSERT INTO notes VALUES (1)")
FOREIGN = {
    "a text": (lambda path: path.write_text("precious\n" * 50), "file is not a database"),
    "a folder": (lambda path: path.mkdir(), "Is a directory"),
    "another program's": (lambda path: database(path, *NOTES), "it is another program's database"),
    "other trials": (lambda path: database(path, "CREATE TABLE trials (a)"), "it is another program's database"),
    "notes beside trials": (lambda path: [Records(path).close(), database(path, *NOTES)], "another program's database"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_in_the_place_of_the_trials_is_refused_and_stays(model, tmp_path, kind) -> None:
    put, sentence = FOREIGN[kind]
    path = tmp_path / "trials.sqlite"
    put(path)
    before = path.read_bytes() if path.is_file() else None
    done = tune(model, "-o", tmp_path, "--method", "random", "--budget", "1meas")
    assert done.exit_code == 2, done.output
    assert done.stderr.count("rlflow: error: ") == 1
    assert f"{path} cannot be used for the trials: " in done.stderr
    assert sentence in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["trials.sqlite"]
    assert before is None or path.read_bytes() == before


def test_no_trials_and_empty_ones_are_no_foreign_file(tmp_path) -> None:
    require_trials(tmp_path / "none.sqlite")
    (tmp_path / "empty.sqlite").write_bytes(b"")
    require_trials(tmp_path / "empty.sqlite")
    Records(tmp_path / "own.sqlite").close()
    require_trials(tmp_path / "own.sqlite")


def test_a_library_stays_only_beside_a_plan_with_code(tmp_path) -> None:
    code = GeneratedCode("0" * 64, "avx2", (((1, 5), (5, 7), (1, 7)),), (CodeChoice("n", "k", (1,), 0, 1.5),))
    for plan, stays in (
        (KernelPlan("1", 8, 1, 1.5, (), code), True), (KernelPlan("1", 8, 1, 1.5, ()), False), (None, False),
    ):  # fmt: skip
        folder = tmp_path / str(stays)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o775)
        (folder / "kernels.so").write_bytes(b"code")
        found = tuned_module._settled(folder, plan)
        assert (folder / "kernels.so").exists() == stays
        assert found == (str(folder / "kernels.so") if stays else None)
        assert bool(folder.stat().st_mode & 0o022) != stays  # nobody else may write where code lies


def test_generated_code_is_the_last_to_be_left_out() -> None:
    plain, generating = (SimpleNamespace(), object.__new__(GeneratedEngine))
    attempts = [tuned_module._Ends(b"", one, None, None, 1, 0, None)._attempts() for one in (plain, generating)]  # type: ignore[arg-type]
    assert attempts[0] == tuned_module._ATTEMPTS
    assert attempts[1][:-1] == tuned_module._ATTEMPTS
    assert attempts[1][-1] == attempts[1][-2] | {GENERATED}


EARLIER = KernelPlan("1.0", 0, 1, 1.5, (Choice("c", (16, 16), "winograd-2x2", 2.0),))
OTHERS = (Choice("c", (16, 16), "winograd-4x4", 2.0),)


@pytest.mark.parametrize(
    ("text", "found", "raced", "winner", "kept"),
    [
        (None, OTHERS, ["tuned"], "tuned", OTHERS),
        (EARLIER.text(), OTHERS, ["tuned", "earlier"], "earlier", EARLIER.choices),
        (EARLIER.text(), OTHERS, ["tuned", "earlier"], "tuned", OTHERS),
        (EARLIER.text(), EARLIER.choices, ["tuned"], "tuned", EARLIER.choices),
        (EARLIER.text(), None, ["earlier"], "earlier", EARLIER.choices),
        (EARLIER.text(), OTHERS, ["tuned", "earlier"], None, None),
        (EARLIER.text().replace("winograd-2x2", "no such"), OTHERS, ["tuned"], "tuned", OTHERS),
        (EARLIER.text().replace("16, 16", "32, 16"), OTHERS, ["tuned"], "tuned", OTHERS),
    ],
)
def test_the_kernels_that_a_model_came_with_stay_where_they_are_faster(
    monkeypatch, text: str | None, found: tuple | None, raced: list[str], winner: str | None, kept: tuple | None
) -> None:
    asked = []

    def choose(_worker, _baseline, candidates, _feeds, **how) -> SimpleNamespace:
        asked.append((list(candidates), how["only"]))
        return SimpleNamespace(winner=winner, speedup=1.2, speedup_ci95=(1.1, 1.3), reason="It is not faster.")

    monkeypatch.setattr("rlflow.race.gate.choose", choose)
    monkeypatch.setattr("rlflow.runtime.interface.metadata_entry", lambda *_: text)
    monkeypatch.setattr(tuned_module._Ends, "_difference", lambda *_: None)
    graph = SimpleNamespace(
        sites=lambda: [Site("convolution", "c", (16, 16))], with_kernels=lambda chosen: repr(chosen).encode(), block=16
    )
    worker, inputs = SimpleNamespace(describe=lambda: {"version": "1"}), SimpleNamespace(feeds=[{}])
    ends = tuned_module._Ends(b"", SimpleNamespace(graph=graph), None, inputs, 1, 0, None)  # type: ignore[arg-type]
    way = None if found is None else tuned_module._Way(b"", found)
    plan, _, note = ends._raced(way, ends._earlier(worker), worker)  # type: ignore[arg-type]
    assert asked == [(raced, len(raced) == 1)]
    assert (None if plan is None else plan.choices) == kept
    assert ("came with" in note) == (winner == "earlier")
