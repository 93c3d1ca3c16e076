"""Searches that go on where an earlier one stopped.

A checkpoint holds the best graphs, as traces, and for a strategy that says ``goes_on`` the search itself: its queue,
its population or its tree, its random generator, and what was spent (``memory.py``). Resumed with the same strategy,
options and seed it is the search that would have been had it not stopped; with a budget in counts the result is the
same to the byte. The search is written down about once a second, so what it did since then is done again.

Any other search that resumes (of another strategy, or one that had come to its end) starts from the best graph. No
resumed search ends worse than its checkpoint.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlflow import ledger
from rlflow.errors import UsageError
from rlflow.ledger import Kind
from rlflow.search import memory
from rlflow.search.budget import StopReason
from rlflow.search.node import SearchNode
from rlflow.search.problem import Problem
from rlflow.search.progress import Progress
from rlflow.search.result import Result, TraceStep
from rlflow.search.strategies import Strategy, describe
from rlflow.search.trace import read_trace
from rlflow.search.view import View

#: Seconds between two writes while a search runs.
EVERY_SECONDS = 10.0
#: Seconds between two looks into the search's memory, and how many times longer than such a look that is at least.
LOOK_SECONDS, LOOK_SHARE = 1.0, 20.0


@dataclass(frozen=True)
class SavedSearch:
    """``graph`` and ``rules``: digests of what the traces apply to. ``traces``: the best graph's first. ``spent``: what
    the searches until then took, the earliest first. ``reached``: what the budget of the last of them counted in all.
    ``memory``: the search itself at its last safe point. ``finished``: whether it had come to its end.
    """

    graph: str
    rules: str
    cost_before_ms: float
    cost_after_ms: float
    traces: Sequence[tuple[TraceStep, ...]]
    spent: Sequence[dict[str, Any]] = ()
    reached: dict[str, float] | None = None
    memory: dict[str, Any] | None = None
    finished: bool = False

    def plain(self) -> dict[str, Any]:
        """As it is written."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**plain, "traces": [[step.to_dict() for step in trace] for trace in self.traces]}

    @staticmethod
    def of_plain(plain: dict[str, Any]) -> SavedSearch:
        """What :meth:`plain` gave; raises an error for anything else."""
        return SavedSearch(**{**plain, "traces": [read_trace(trace) for trace in plain["traces"]]})

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write it, whole or not at all. Raises :class:`OutputError`."""
        ledger.write(path, CHECKPOINT, self)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> SavedSearch:
        """Raises :class:`UsageError` where the file is not a checkpoint."""
        try:
            return ledger.read(path, CHECKPOINT)
        except (OSError, ValueError) as error:
            raise UsageError(f"The file {path} cannot be read as a checkpoint of a search: {error}.") from error

    def goes_on(self, problem: Problem, strategy: Strategy) -> bool:
        """Whether ``strategy`` on ``problem`` is the search that was interrupted here."""
        last = self.spent[-1] if self.spent else {}
        same = (last.get("strategy"), last.get("seed")) == (describe(strategy), problem.seed)
        return same and getattr(strategy, "goes_on", False) and self.reached is not None and not self.finished


#: A ledger's entry that lies where the user wants it.
CHECKPOINT = Kind("checkpoint", 3, SavedSearch.plain, SavedSearch.of_plain)


def of(problem: Problem, strategy: Strategy, earlier: SavedSearch | None = None) -> SavedSearch:
    """What ``problem`` has found so far. Raises :class:`UsageError` for a strategy that keeps no traces."""
    if not strategy.has_trace:
        raise UsageError(f"The search strategy {strategy.name!r} keeps no traces, so it cannot be resumed.")
    root = Problem.root(problem)
    found = problem.incumbent.archive.finalists()
    reached = problem.meter.spending()
    before = (earlier.reached or {}) if earlier is not None and earlier.goes_on(problem, strategy) else {}
    spent = {name: value - before.get(name, 0) for name, value in reached.items()}
    return SavedSearch(
        root.digest.hex(),
        _rules(root),
        root.cost,
        found[0].cost_ms,
        [one.trace or () for one in found],
        [*(earlier.spent if earlier else ()), {"strategy": describe(strategy), "seed": problem.seed, **spent}],
        reached,
    )


def start(problem: Problem, checkpoint: SavedSearch) -> View:
    """``problem``, to be searched from the checkpoint's best graph on; the others count as visited.

    Replaying takes nothing from the budget. Raises :class:`UsageError` where the checkpoint belongs to another model or
    other rules.
    """
    root = problem.root()
    _check(root, checkpoint)
    nodes = [problem.replayed(trace) for trace in reversed(checkpoint.traces)]
    return View(problem, nodes[-1] if nodes else root)


def go_on(problem: Problem, checkpoint: SavedSearch) -> Problem:
    """``problem`` as it was at the checkpoint's last safe point; its budget comes on top of what was spent until the
    checkpoint. Raises as :func:`start`.
    """
    _check(problem.root(), checkpoint)
    problem.meter.extend(checkpoint.reached or {})
    if checkpoint.memory is not None:
        memory.read(problem, checkpoint.memory)
    return problem


def _check(root: SearchNode, checkpoint: SavedSearch) -> None:
    for what, found, expected in (
        ("model", checkpoint.graph, root.digest.hex()),
        ("set of rules", checkpoint.rules, _rules(root)),
    ):
        if found != expected:
            raise UsageError(f"The checkpoint was made with another {what} (digest {found}, here {expected}).")


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

    ``resume``: go on from the file, if it is there. ``rng``: makes the generator from a seed; a search that starts
    again from the best graph draws other numbers than the one before.
    """
    earlier = SavedSearch.read(path) if resume and Path(path).exists() else None
    of(problem, strategy)  # refuse at once what cannot be kept
    writer = _Writer(problem, strategy, Path(path), earlier, problem.events.listener, every)
    problem.events.listener = writer
    if getattr(strategy, "goes_on", False):
        problem.keeper = writer.look
    if earlier is None:
        result = strategy.run(problem, rng(problem.seed))
    elif earlier.goes_on(problem, strategy):
        result = _not_worse(strategy.run(go_on(problem, earlier), rng(problem.seed)), problem, earlier)
    else:
        result = strategy.run(start(problem, earlier), rng(problem.seed + len(earlier.spent)))
    writer.write(finished=result.stop_reason in (StopReason.EXHAUSTED, StopReason.CONVERGED))
    return result


def _not_worse(result: Result, problem: Problem, earlier: SavedSearch) -> Result:
    """A search whose budget ended it before it was back where it had been returns what was known."""
    if result.cost_after_ms <= earlier.cost_after_ms:
        return result
    for trace in reversed(earlier.traces):
        problem.replayed(trace)
    return problem.result(result.stop_reason, result.strategy)


@dataclass
class _Writer:
    problem: Problem
    strategy: Strategy
    path: Path
    earlier: SavedSearch | None
    then: Callable[[Progress], None] | None
    every: float
    written_ms: float = float("inf")
    last: float = field(default_factory=time.monotonic)
    memory: dict[str, Any] | None = None
    next_look: float = field(default_factory=time.monotonic)

    def __call__(self, progress: Progress) -> None:
        if progress.best_ms < self.written_ms and time.monotonic() - self.last >= self.every:
            self.write()
        if self.then is not None:
            self.then(progress)

    def look(self, run: Any) -> None:
        """Write down the search, from time to time: it is at a safe point."""
        began = time.monotonic()
        if began < self.next_look:
            return
        self.memory = memory.write(self.problem, run)
        if began - self.last >= self.every:
            self.write()
        now = time.monotonic()
        self.next_look = now + (0.0 if self.every == 0 else max(LOOK_SECONDS, LOOK_SHARE * (now - began)))

    def write(self, finished: bool = False) -> None:
        """What is known now, with the search as it was when it was last looked at."""
        found = of(self.problem, self.strategy, self.earlier)
        found = replace(found, memory=None if finished else self.memory, finished=finished)
        found.write(self.path)
        self.written_ms, self.last = found.cost_after_ms, time.monotonic()


def _rules(root: SearchNode) -> str:
    ruleset = getattr(root.state, "ruleset", None)
    return "" if ruleset is None else str(ruleset.digest)
