"""The walk of a model: how often somebody who follows one optimisation through the files has to climb, or to come back.

The *walk* is the calls of one ``rlflow optimize MODEL OUT --cost analytic``, in call order. What it is made of:

* A *stage* begins when ``pipeline/__init__.py`` calls its first function: command (all before it), load, search (with
  pricing), race, check, write, report.
* A *step* is the first call, in a stage, from one file of the package into another. What is called by way of other
  libraries is called by the nearest caller of ours. Imports are no calls, and a generator that goes on is none either.
* A *floor* is a layer of ``tests/test_layers.py``. A *step back up* goes to a file on a higher floor than its caller's:
  to an earlier floor, since the walk came from the top.
* A file is *entered* once in every stage in which another file calls it.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import rlflow
from rlflow import zoo
from rlflow.cli import main

PACKAGE = Path(rlflow.__file__).resolve().parent
#: The walk may climb so often, and enter one file so often.
CLIMBS, ENTRIES = 4, 3
CONDUCTOR = "pipeline/__init__.py"
#: The functions that the conductor calls, and the stages that they begin or belong to.
STAGES = {
    "load": "load", "settle_sizes": "search", "price": "search", "search": "search", "race": "race",
    "race_at_ends": "race", "check": "check", "check_at_ends": "check", "write": "write",
    "with_kernels": "write", "report": "report",
}  # fmt: skip


class Step(NamedTuple):
    stage: str
    caller: str
    callee: str
    functions: str


def layers() -> Mapping[str, int]:
    """The table of the layer test."""
    path = Path(__file__).resolve().parents[1] / "test_layers.py"
    spec = importlib.util.spec_from_file_location("layer_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.LAYERS  # type: ignore[no-any-return]


def floor(file: str, table: Mapping[str, int]) -> int:
    """The layer of a file; the package's own lazy front stands beside the façade."""
    return table.get(Path(file).parts[0].removesuffix(".py"), table["optimizer"])


class Tracer:
    """Writes down the steps while it is a profile function."""

    def __init__(self) -> None:
        self.stage = "command"
        self.steps: list[Step] = []
        self._seen: set[tuple[str, str, str]] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        callee = ours(frame)
        if event != "call" or callee is None or frame.f_code.co_name == "<module>" or goes_on(frame):
            return
        before = frame.f_back
        while before is not None and ours(before) is None:
            before = before.f_back
        if before is None or before.f_code.co_name == "<module>":
            return
        caller = ours(before)
        assert caller is not None
        if caller == CONDUCTOR and callee.startswith("pipeline/"):
            self.stage = STAGES.get(frame.f_code.co_name, self.stage)
        key = (self.stage, caller, callee)
        if caller != callee and key not in self._seen:
            self._seen.add(key)
            self.steps.append(Step(*key, f"{before.f_code.co_name} -> {frame.f_code.co_name}"))


def ours(frame: FrameType) -> str | None:
    """The file of a frame, relative to the package."""
    return relative(frame.f_code.co_filename)


@functools.cache
def relative(file: str) -> str | None:
    path = Path(file)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None


def goes_on(frame: FrameType) -> bool:
    """Whether a call is a generator that is asked for its next value."""
    return bool(frame.f_code.co_flags & inspect.CO_GENERATOR) and frame.f_lasti > 0


def climbs(steps: Iterable[Step], table: Mapping[str, int]) -> list[Step]:
    """The steps back up."""
    return [step for step in steps if floor(step.callee, table) > floor(step.caller, table)]


def entries(steps: Iterable[Step]) -> dict[str, set[str]]:
    """The stages in which each file is entered."""
    found: dict[str, set[str]] = defaultdict(set)
    for step in steps:
        found[step.callee].add(step.stage)
    return found


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> list[Step]:
    folder = tmp_path_factory.mktemp("walk")
    source, target = folder / "in.onnx", folder / "out.onnx"
    source.write_bytes(zoo.build("squeezenet1.1", image=64, width=25, classes=10).SerializeToString())
    tracer, options = Tracer(), ["--cost", "analytic", "--seed", "7", "--budget", "50c"]
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        done = CliRunner().invoke(main, ["optimize", str(source), str(target), *options])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert done.exit_code == 0, done.output
    assert target.exists()
    assert target.read_bytes() != source.read_bytes(), "nothing was gained, so the walk is not the whole one"
    return tracer.steps


def test_the_walk_is_a_whole_one(walk: list[Step]) -> None:
    assert list(dict.fromkeys(step.stage for step in walk)) == [
        "command", "load", "search", "race", "check", "write", "report",
    ]  # fmt: skip
    found = entries(walk)
    assert {"cli/optimize.py", "frontends/importer.py", "search/problem.py", "frontends/exporter.py"} <= set(found)
    assert len(walk) > 100


def test_the_walk_climbs_seldom(walk: list[Step]) -> None:
    found = climbs(walk, layers())
    print(f"{len(found)} steps back up")
    assert len(found) <= CLIMBS, "\n".join(map(str, found))


def test_no_file_is_entered_often(walk: list[Step]) -> None:
    found = {file: stages for file, stages in entries(walk).items() if len(stages) > ENTRIES}
    print(f"at most {max(map(len, entries(walk).values()))} entries")
    assert not found, "\n".join(f"{file}: {', '.join(sorted(stages))}" for file, stages in found.items())


def test_the_definitions() -> None:
    table = {"cli": 9, "pipeline": 8, "optimizer": 8, "search": 5, "ops": 1}
    steps = [
        Step("load", "cli/a.py", "pipeline/b.py", ""),
        Step("load", "search/c.py", "cli/a.py", ""),  # the only one that goes up
        Step("load", "pipeline/b.py", "pipeline/d.py", ""),
        Step("race", "cli/a.py", "search/c.py", ""),
        Step("race", "pipeline/b.py", "search/c.py", ""),
        Step("write", "ops/e.py", "ops/f.py", ""),
    ]
    assert climbs(steps, table) == [steps[1]]
    assert {file: len(stages) for file, stages in entries(steps).items()} == {
        "pipeline/b.py": 1, "cli/a.py": 1, "pipeline/d.py": 1, "search/c.py": 1, "ops/f.py": 1,
    }  # fmt: skip
