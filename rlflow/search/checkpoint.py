"""Searches that go on where an earlier one stopped: the best graphs, written down as traces.

A checkpoint holds what was found, not the queue: a search that resumes starts from the best graph and spends a budget
of its own. It never ends worse than the checkpoint, but it is not the search that would have been had it not stopped.
(For that, run it again with a larger budget: with a count budget it is the same up to where it stopped.)
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlflow.errors import OutputError, UsageError
from rlflow.search.problem import Problem, Progress, SearchNode
from rlflow.search.registry import Strategy, describe
from rlflow.search.result import Result, TraceStep
from rlflow.search.trace import read_trace
from rlflow.search.view import View

FORMAT = 1
#: Seconds between two writes while a search runs.
EVERY_SECONDS = 10.0


@dataclass(frozen=True)
class Checkpoint:
    """``graph`` and ``rules``: digests of what the traces apply to. ``traces``: the best graph's first. ``spent``: what
    the searches until then took, the earliest first.
    """

    graph: str
    rules: str
    cost_before_ms: float
    cost_after_ms: float
    traces: Sequence[tuple[TraceStep, ...]]
    spent: Sequence[dict[str, Any]] = ()

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON, whole or not at all. Raises :class:`OutputError`."""
        plain = {
            "format": FORMAT,
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "traces": [[step.to_dict() for step in trace] for trace in self.traces],
        }
        _write(Path(path), json.dumps(plain, indent=1))

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Checkpoint:
        """Raises :class:`UsageError` where the file is not a checkpoint."""
        try:
            plain = json.loads(Path(path).read_text(encoding="utf-8"))
            if plain.pop("format") != FORMAT:
                raise ValueError("another format")
            return Checkpoint(**{**plain, "traces": [read_trace(trace) for trace in plain["traces"]]})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"The file {path} cannot be read as a checkpoint of a search: {error}.") from error


def of(problem: Problem, strategy: Strategy, earlier: Checkpoint | None = None) -> Checkpoint:
    """What ``problem`` has found so far. Raises :class:`UsageError` for a strategy that keeps no traces."""
    if not strategy.has_trace:
        raise UsageError(f"The search strategy {strategy.name!r} keeps no traces, so it cannot be resumed.")
    found = problem.finalists()
    root = Problem.root(problem)
    meter = problem.meter
    spent = {
        "strategy": describe(strategy),
        "seed": problem.seed,
        "candidates": meter.candidates,
        "expansions": meter.expansions,
        "measurements": meter.measurements,
        "seconds": meter.seconds,
    }
    return Checkpoint(
        root.digest.hex(),
        _rules(root),
        root.cost,
        found[0].cost_ms,
        [one.trace or () for one in found],
        [*(earlier.spent if earlier else ()), spent],
    )


def start(problem: Problem, checkpoint: Checkpoint) -> View:
    """``problem``, to be searched from the checkpoint's best graph on; the others count as visited.

    Replaying takes nothing from the budget. Raises :class:`UsageError` where the checkpoint belongs to another model or
    other rules.
    """
    root = problem.root()
    for what, found, expected in (
        ("model", checkpoint.graph, root.digest.hex()),
        ("set of rules", checkpoint.rules, _rules(root)),
    ):
        if found != expected:
            raise UsageError(f"The checkpoint was made with another {what} (digest {found}, here {expected}).")
    nodes = [problem.replayed(trace) for trace in reversed(checkpoint.traces)]
    return View(problem, nodes[-1] if nodes else root)


def solve_resumably(
    problem: Problem,
    strategy: Strategy,
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    every: float = EVERY_SECONDS,
    rng: Callable[[int], Any],
) -> Result:
    """Search, and keep a checkpoint at ``path``: every so often where something better was found, and at the end.

    ``resume``: go on from the file, if it is there. ``rng``: makes the generator from a seed; a resumed search draws
    other numbers than the one before.
    """
    earlier = Checkpoint.read(path) if resume and Path(path).exists() else None
    of(problem, strategy)  # refuse at once what cannot be kept
    view = problem if earlier is None else start(problem, earlier)
    writer = _Writer(problem, strategy, Path(path), earlier, problem.on_progress, every)
    problem.on_progress = writer
    result = strategy.run(view, rng(problem.seed + (len(earlier.spent) if earlier else 0)))
    writer.write()
    return result


@dataclass
class _Writer:
    problem: Problem
    strategy: Strategy
    path: Path
    earlier: Checkpoint | None
    then: Callable[[Progress], None] | None
    every: float
    written_ms: float = float("inf")
    last: float = field(default_factory=time.monotonic)

    def __call__(self, progress: Progress) -> None:
        if progress.best_ms < self.written_ms and time.monotonic() - self.last >= self.every:
            self.write()
        if self.then is not None:
            self.then(progress)

    def write(self) -> None:
        found = of(self.problem, self.strategy, self.earlier)
        found.write(self.path)
        self.written_ms, self.last = found.cost_after_ms, time.monotonic()


def _rules(root: SearchNode) -> str:
    ruleset = getattr(root.state, "ruleset", None)
    return "" if ruleset is None else str(ruleset.digest)


def _write(path: Path, text: str) -> None:
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text + "\n")
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"The checkpoint {path} cannot be written: {error.strerror or error}.") from error
