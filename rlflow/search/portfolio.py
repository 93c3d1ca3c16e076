"""Several strategies under one budget; most of it goes to those that gain most for what they spend.

Each member runs in a thread of its own, but only one at a time: it works until its slice is used up, waits inside its
next call to the problem, and goes on from there when it is chosen again. So any strategy can be a member, none has to
know, and the order of events depends on counts alone. A member that comes to its end starts again from the best graph
of all, where another member has found a better one since.
"""

from __future__ import annotations

import math
import re
import threading
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from rlflow import specs
from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.choice import BanditTable
from rlflow.search.lead import follow_the_formula, go_down, go_on_by_prices
from rlflow.search.limits import SearchStopped
from rlflow.search.node import SearchNode
from rlflow.search.problem import Problem
from rlflow.search.result import Result
from rlflow.search.strategies import Strategy, make, register, require_ready
from rlflow.search.strategy_base import StrategyBase
from rlflow.search.view import View

#: When work is compared: candidates that count as one opened graph, since pricing one takes microseconds; and opened
#: graphs that a timed region counts as.
_CANDIDATES, _TIMED = 50, 50
#: What a slice gained counts so much with each later one of the member that gains nothing.
_MEMORY = 0.3
#: A member's best graph that costs more than so many times the best of all is not worth timing.
NEAR = 1.05
#: Weight of trying members that had few slices (UCB1; Auer et al. 2002).
_CURIOSITY = 0.3


@register
@dataclass(frozen=True)
class Portfolio(StrategyBase):
    """Takes turns between strategies and gives most of the budget to those that gain most.

    ``members``: their names, joined by +, options in brackets and joined by a semicolon: beam(width=4;twins=1)+mcts.
    ``slice``: graphs that a member may open in its first turn, and fewer where regions have to be timed for them.
    ``growth``: each further turn is so many times as long. ``choice``: a table that says by features of the graph whose
    turns come first and are longer (``choice.py``); none: all are alike, in the order given.
    """

    members: str = "beam+backtracking+annealing+genetic"
    slice: int = 60
    growth: float = 1.3
    choice: str = ""

    name: ClassVar[str] = "portfolio"
    randomised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.slice < 1 or not self.growth >= 1.0:
            raise UsageError(
                f"The options of search strategy 'portfolio' are slice={self.slice}, growth={self.growth:g}; "
                "expected at least 1 each."
            )
        if not self.strategies():
            raise UsageError("The search strategy 'portfolio' has no members; name some, as in members=beam+mcts.")

    def strategies(self) -> list[Strategy]:
        """The members. Raises :class:`UsageError` for one that does not exist or is a portfolio itself."""
        found = []
        for part in filter(None, re.split(r"\+(?![^()]*\))", self.members.replace(" ", ""))):
            spec = specs.nested(part)
            if specs.name_of(spec) == self.name:
                raise UsageError("A portfolio cannot be a member of a portfolio; name its members instead.")
            found.append(make(spec))
        return found

    def ready(self) -> None:
        """Raises the sentence of what a strategy inside lacks here, or of a table that cannot be read."""
        if self.choice:
            BanditTable.read(self.choice)
        for one in self.strategies():
            require_ready(one)

    def search(self, problem: Problem, rng: np.random.Generator, found: SearchNode | None = None) -> StopReason:
        """Turn after turn, until the budget is spent or no member has anything left to do. ``found``: a good graph that
        is known before.
        """
        strategies = self.strategies()
        seeds = rng.integers(1 << 63, size=len(strategies))
        parts = [1.0] * len(strategies)
        if self.choice:
            parts = BanditTable.read(self.choice).shares(problem, [one.name for one in strategies])
        given = zip(strategies, seeds, parts, strict=True)
        members = [_Member(problem, one, int(seed), part / len(strategies), part) for one, seed, part in given]
        members.sort(key=lambda member: -member.part)
        try:
            return _Scheduler(self, problem, members).run(found)
        finally:
            for member in members:
                member.close()
            self.ended(problem, [member.view.best for member in members if member.view is not None])

    def ended(self, problem: Problem, found: list[SearchNode]) -> None:
        """Called at the end with the best graph of each member that had a turn."""


@register
@dataclass(frozen=True)
class Mixed(Portfolio):
    """The default: several ways to search that fail on different models, and ways down that ask no clock.

    It begins with a way down, for which no member gets the credit. Where prices are measured that is a search by the
    formula, and the way on from there by the prices (``lead.py``): one noisy price cannot lead it astray. What that
    found, and the best of every member, meet in the final comparison. ``alpha``: of the members that have one; 0: their
    own. ``members``, ``slice``, ``growth``, ``choice``: as in portfolio.
    """

    members: str = "backtracking+levin(lead=1)+eqsat(rounds=2;extraction=greedy-dag)"
    alpha: float = 0.0

    name: ClassVar[str] = "mixed"
    has_trace: ClassVar[bool] = False  # what an e-graph found has none; all else has
    patience_by_default: ClassVar[int | None] = 3000

    def strategies(self) -> list[Strategy]:
        """The members, with ``alpha`` where they have one."""
        found = super().strategies()
        if not self.alpha:
            return found
        return [replace(one, alpha=self.alpha) if hasattr(one, "alpha") else one for one in found]  # type: ignore[type-var]

    def run(self, problem: Problem, rng: np.random.Generator) -> Result:
        """As every strategy; each graph that has a trace keeps it."""
        try:
            led = follow_the_formula(problem)
            led = go_down(problem, problem.root()) if led is None else go_on_by_prices(problem, led)
            reason = self.search(problem, rng, led)
        except SearchStopped as stop:
            reason = stop.reason
        return problem.result(reason, self.name)

    def ended(self, problem: Problem, found: list[SearchNode]) -> None:
        """Nominate what each member found, if it comes near the best."""
        for node in found:
            if node.cost <= NEAR * problem.best_cost:
                problem.nominate(node)


@dataclass(eq=False)
class _Member:
    """A strategy with its thread. ``rate``: what it gained for its work when it gained last; ``dry``: its turns since;
    ``turns``: how often it was chosen; ``share``: of the seconds, as it is told; ``part``: of the length of an even
    turn.
    """

    problem: Problem
    strategy: Strategy
    seed: int
    share: float = 1.0
    part: float = 1.0
    rate: float = 0.0
    dry: int = 0
    turns: int = 0
    view: View | None = None
    outcome: Result | BaseException | None = None
    runs: int = 0
    _closing: bool = False
    _until: float = 0.0
    _thread: threading.Thread | None = None
    _go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    @property
    def idle(self) -> bool:
        """Whether its last run came to an end."""
        return self._thread is None

    def turn(self, start: SearchNode, work: float) -> None:
        """Let it do ``work``; from ``start`` on where it has to begin again. Raises what the strategy raises."""
        self._until = _work(self.problem) + work
        if self._thread is None:
            self.outcome = None
            self.view = View(self.problem, start, self._wait, self.share)
            rng = np.random.Generator(np.random.PCG64([self.seed, self.runs]))
            self.runs += 1
            self._thread = threading.Thread(target=self._run, args=(self.view, rng), daemon=True)
            self._thread.start()
        else:
            assert self.view is not None
            self.view.tell(start)
            self._go.release()
        self._back.acquire()
        if self.outcome is not None:
            self._thread.join()
            self._thread = None
        if isinstance(self.outcome, BaseException):
            raise self.outcome

    def close(self) -> None:
        """End the thread, wherever it waits."""
        if self._thread is not None:
            self._closing = True
            self._go.release()
            self._thread.join()

    def _run(self, view: View, rng: np.random.Generator) -> None:
        try:
            self.outcome = self.strategy.run(view, rng)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asked for the turn
            self.outcome = error
        self._back.release()

    def _wait(self) -> None:
        """Called by the problem before every step of this member."""
        if _work(self.problem) >= self._until and not self._closing:
            self._back.release()
            self._go.acquire()
        if self._closing:
            raise SearchStopped(StopReason.INTERRUPTED)


@dataclass(eq=False)
class _Scheduler:
    """``unit``: the rate of the last gain of all. A rate is compared with it, so large gains of long ago do not count
    more than small ones of now; and who gains nothing any more gives way, however long nobody else was asked.
    """

    options: Portfolio
    problem: Problem
    members: list[_Member]
    unit: float = 1.0

    def run(self, found: SearchNode | None) -> StopReason:
        best = min(filter(None, (self.problem.root(), found)), key=lambda node: node.cost)
        while True:
            ready = [one for one in self.members if not one.idle or one.runs == 0 or _stale(one, best)]
            if not ready:
                ends = [one.outcome.stop_reason for one in self.members if isinstance(one.outcome, Result)]
                return StopReason.EXHAUSTED if StopReason.EXHAUSTED in ends else StopReason.CONVERGED
            member = max(ready, key=self._promise)
            before, spent = best.cost, _work(self.problem)
            member.turn(
                best if member.runs or getattr(member.strategy, "from_best", False) else self.problem.root(),
                member.part * self.options.slice * self.options.growth ** min(member.turns, 20),
            )
            found = member.view.best if member.view is not None else best
            best = min(best, found, key=lambda node: node.cost)
            reason = self.problem.stopped()
            if reason is not None:
                return reason
            spent = max(_work(self.problem) - spent, 1.0)
            gain = math.log(before / best.cost) / spent if best.cost > 0 else 0.0
            member.turns, member.dry = member.turns + 1, member.dry + 1
            if gain > 0.0:
                self.unit = member.rate = gain
                member.dry = 0

    def _promise(self, member: _Member) -> float:
        """Who was never chosen comes first, in the order given; then gain for work, and curiosity."""
        if member.turns == 0:
            return math.inf
        turns = sum(one.turns for one in self.members)
        recent = _MEMORY**member.dry * min(member.rate / self.unit, 1.0)
        return recent + _CURIOSITY * math.sqrt(math.log(turns) / member.turns)


def _stale(member: _Member, best: SearchNode) -> bool:
    """Whether there is a better graph now than the one that the member found, or came from, in its last run.

    What works on all graphs at once had that one among its own, unless it was cut short; it is not started again.
    """
    return member.strategy.has_trace and member.view is not None and best.cost < member.view.best.cost


def _work(problem: Problem) -> float:
    meter = problem.meter
    return meter.expansions + meter.candidates / _CANDIDATES + meter.measurements * _TIMED
