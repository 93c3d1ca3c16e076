"""What a step is worth. No reward here can be collected by wandering: what leads nowhere better is worth nothing.

A reward is an object with ``start(episode)``, ``step(episode, before, after) -> float`` and ``fork()``. ``before`` and
``after`` are places of the walk (the same one where the episode stops).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from rlflow.errors import UsageError

_NOTHING = 1e-12


@dataclass
class Improvement:
    """What the step adds to the best graph so far: ``log(best before / best after)``; a graph's price decides.

    Differences within the rounding or the noise of prices count as none, until several of them add up to more. A whole
    episode earns ``log(start / best visited)``, undiscounted.
    """

    name: ClassVar[str] = "improvement"
    deterministic: bool = True
    _paid: float = 0.0

    def start(self, episode: Any) -> None:
        """The best that was paid for is the starting graph."""
        self._paid = episode.start_ms

    def step(self, episode: Any, before: Any, after: Any) -> float:
        paid, cost = self._paid, after.node.cost
        if cost >= paid - episode.walks.problem.gain_floor(paid):
            return 0.0
        self._paid = cost
        return math.log(max(paid, _NOTHING) / max(cost, _NOTHING))

    def fork(self) -> Improvement:
        return replace(self)


@dataclass
class Potential:
    """``gamma * phi(after) - phi(before)`` with ``phi = max(0, log(start / cost))`` (Ng, Harada and Russell 1999).

    A walk of ``t`` steps earns ``gamma**t * phi(end)`` in all, discounted by ``gamma``: 0 where it ends no better than
    it began, and less the longer it took. ``phi`` is cut at 0 because a walk over worse graphs would otherwise earn
    something by putting off its end. Stopping is worth 0.
    """

    gamma: float = 0.99

    name: ClassVar[str] = "potential"
    deterministic: bool = True

    def start(self, episode: Any) -> None:
        """Nothing to remember: the potential is a function of the graph."""

    def step(self, episode: Any, before: Any, after: Any) -> float:
        if after is before:
            return 0.0
        return self.gamma * self._phi(episode, after) - self._phi(episode, before)

    @staticmethod
    def _phi(episode: Any, place: Any) -> float:
        return max(0.0, math.log(max(episode.start_ms, _NOTHING) / max(place.node.cost, _NOTHING)))

    def fork(self) -> Potential:
        return replace(self)


class Timer(Protocol):
    """Compares whole graphs by the clock: :class:`rlflow.env.timer.EndToEndTimer`, or a test's own."""

    def gain(self, graph: Any) -> tuple[float, float]:
        """``log(time of the starting graph / time of graph)``, and the lower end of its interval."""
        ...


class EndToEnd:
    """Gains by the clock on the whole model, every ``every`` steps and at the end; 0 in between.

    The graph is timed beside the starting graph, in turn, so that the machine's drift is in both. A gain counts where
    even the lower end of its interval exceeds the best so far, and a graph is timed once: going round in circles, or
    timing again and again, earns nothing.
    """

    name: ClassVar[str] = "end-to-end"
    deterministic: bool = False

    def __init__(self, timer: Timer, every: int = 5) -> None:
        if every < 1:
            raise UsageError(f"The reward 'end-to-end' was asked to measure every {every} steps; expected 1 or more.")
        self.timer, self.every = timer, every
        self.best = 0.0
        self._known: dict[bytes, tuple[float, float]] = {}

    def start(self, episode: Any) -> None:
        """Forget the last episode's best; timings stay."""
        self.best = 0.0
        self._known[episode.place.node.digest] = (0.0, 0.0)

    def step(self, episode: Any, before: Any, after: Any) -> float:
        if not (episode.ended or episode.steps % self.every == 0):
            return 0.0
        digest = after.node.digest
        if digest not in self._known:
            self._known[digest] = self.timer.gain(after.node.graph)
        gain, low = self._known[digest]
        if low <= self.best:
            return 0.0
        earned, self.best = gain - self.best, gain
        return earned

    def fork(self) -> EndToEnd:
        twin = EndToEnd(self.timer, self.every)
        twin.best, twin._known = self.best, self._known
        return twin


def make_reward(name: str, loaded: Any, gamma: float, every: int) -> Improvement | Potential | EndToEnd:
    """The reward of that name for a problem (:class:`rlflow.env.spec.OpenProblem`); raises :class:`UsageError` where
    there is none. ``gamma``: of ``potential``; ``every``: steps between two measurements of ``end-to-end``.
    """
    if name == "improvement":
        return Improvement()
    if name == "potential":
        return Potential(gamma)
    if name == "end-to-end" and loaded.imported is not None:
        from rlflow.env.timer import EndToEndTimer

        return EndToEnd(EndToEndTimer(loaded.imported), every)
    raise UsageError(
        f"The reward {name!r} cannot be had for {loaded.spec.title}; there are improvement, potential, and, for models "
        "with weights, end-to-end."
    )
