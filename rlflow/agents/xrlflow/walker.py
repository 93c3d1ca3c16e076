"""Walks over a problem by a trained policy: greedy, sampled, or a beam of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlflow.agents.downhill import steepest
from rlflow.agents.xrlflow.config import TrainConfig
from rlflow.env.reward import Improvement
from rlflow.env.walks import STOP, Episode, Place, Walks
from rlflow.graph.features import GraphFeatures
from rlflow.nn.draws import draw
from rlflow.nn.native_policy import NativePolicy, PolicyCode
from rlflow.search import Problem
from rlflow.search.problem import ROUNDING

#: An improvement counts as nearly as likely as another down to such a part of its probability.
_NEARLY = 4.0


@dataclass
class Walker:
    """A policy at work. Every graph that a walk opens is a visit that the problem counts and remembers.

    ``temperature`` divides the scores before they become probabilities.
    """

    policy: NativePolicy
    walks: Walks
    rows: np.ndarray
    temperature: float
    horizon: int
    patience: int
    _codes: OrderedDict[bytes, PolicyCode] = field(default_factory=OrderedDict, repr=False)

    @classmethod
    def of(
        cls,
        problem: Problem,
        loaded: tuple[NativePolicy, TrainConfig],
        temperature: float,
        keep: int,
        horizon: int = 0,
        patience: int = 0,
    ) -> Walker:
        """By a policy and how it was trained; ``horizon``, ``patience`` 0: as it was."""
        policy, config = loaded
        rows = policy.vocabulary.rule_rows(problem.rule_names)
        walks = Walks(problem, keep)
        return cls(policy, walks, rows, temperature, horizon or config.horizon, patience or config.patience)

    def descend(self, way: Sequence[Place] = ()) -> list[Place]:
        """The cheapest candidate while it is an improvement, from the end of a way (default: the start); asks the
        policy nothing. Returns the way, longer by that.
        """
        way = list(way) or [self.walks.root]
        episode = self.begin(way[-1])
        episode.horizon = max(self.horizon, len(way[-1].node.nodes))
        while (k := steepest(episode)) is not None:
            episode.step(1 + k)
            way.append(episode.place)
        return way

    def greedy(self) -> list[Place]:
        """The likeliest candidate until the policy stops. Returns the way to the best graph met."""
        return self._walk(lambda way: False, lambda episode, probabilities: int(np.argmax(probabilities)))

    def lead(self, enough: Callable[[Sequence[Place]], bool]) -> list[Place]:
        """As :meth:`greedy`, but by :func:`likeliest`, and ended too when ``enough(way)`` says so."""
        return self._walk(enough, likeliest)

    def _walk(
        self, enough: Callable[[Sequence[Place]], bool], choose: Callable[[Episode, np.ndarray], int]
    ) -> list[Place]:
        episode, way = self.begin(), [self.walks.root]
        while not episode.ended and not enough(way):
            episode.step(choose(episode, self.probabilities(episode)))
            way.append(episode.place)
        return to_the_best(way)

    def sample(self, rng: np.random.Generator, start: Sequence[Place] = ()) -> list[Place]:
        """A drawn walk of at least one step, because to stop at once would find nothing, from the end of a way
        (default: the start). Returns the way to the best graph met.
        """
        way = list(start) or [self.walks.root]
        episode = self.begin(way[-1])
        while not episode.ended:
            probabilities = self.probabilities(episode)
            if episode.steps == 0:
                probabilities[STOP] = 0
            episode.step(draw(probabilities, rng.random()))
            way.append(episode.place)
        return to_the_best(way)

    def beam(self, width: int) -> None:
        """The ``width`` likeliest walks side by side, each graph in one of them; ends with the last one."""
        beam = [(0.0, self.begin())]
        seen = {episode.place.node.digest for _, episode in beam}
        while beam:
            ways = [
                (score + log, episode, action)
                for score, episode in beam
                for action, log in enumerate(np.log(self.probabilities(episode) + 1e-30).tolist())
            ]
            beam = []
            for score, episode, action in sorted(ways, key=lambda way: -way[0]):
                if len(beam) == width:
                    break
                if action == STOP:
                    width -= 1  # a walk that stops gives up its place
                    continue
                if episode.place.table.digests[action - 1] in seen:
                    continue
                seen.add(episode.place.table.digests[action - 1])
                twin = episode.fork()
                twin.step(action)
                beam.append((score, twin))
            beam = [pair for pair in beam if not pair[1].ended]

    def probabilities(self, episode: Episode) -> np.ndarray:
        """Of the candidates of the present state, float64."""
        return self.judged(episode)[0]

    def judged(self, episode: Episode) -> tuple[np.ndarray, float]:
        """The probabilities of the candidates of the present state, float64, and its value."""
        seen = self.policy.vocabulary.translate(episode.observe(), self.rows)
        scores, value = self.policy.scores(seen, self._code(episode.place, seen.graph))
        logits = scores.astype(np.float64) / self.temperature
        weights = np.exp(logits - logits.max())
        return weights / weights.sum(), value

    def _code(self, place: Place, graph: GraphFeatures) -> PolicyCode:
        """The graph after the layers: walks meet a graph again and again, and it is encoded once."""
        digest = place.node.digest
        code = self._codes.pop(digest, None) or self.policy.encode(graph)
        self._codes[digest] = code
        while len(self._codes) > self.walks.keep:
            self._codes.popitem(last=False)
        return code

    def begin(self, at: Place | None = None) -> Episode:
        """A walk at the start, or at another graph."""
        children = self.policy.config.needs_children
        return Episode(self.walks, Improvement(), self.horizon, children, self.patience, at)


def likeliest(episode: Episode, probabilities: np.ndarray) -> int:
    """The likeliest action; where that is an improvement, the steepest of the improvements that are nearly as likely.
    To stop is none while something improves: the way down asks for no opinion.

    Among the many that are open in a deep network the policy tells kinds apart better than sizes, and sizes are known.
    """
    table = episode.place.table
    floor = episode.walks.problem.gain_floor(table.node.cost)
    improving = np.concatenate(([False], table.cost < table.node.cost - floor))
    first = int(np.argmax(probabilities))
    if first == STOP and improving.any():
        first = int(np.argmax(np.where(improving, probabilities, -1.0)))
    if not improving[first]:
        return first
    nearly = improving & (probabilities >= probabilities[first] / _NEARLY)
    return int(np.argmin(np.where(nearly, np.concatenate(([np.inf], table.cost)), np.inf)))


def to_the_best(way: list[Place]) -> list[Place]:
    """The way as far as its cheapest graph, the first of several."""
    least = min(place.node.cost for place in way) * (1 + ROUNDING)
    return way[: 1 + next(i for i, place in enumerate(way) if place.node.cost <= least)]


def downhill(place: Place) -> np.ndarray:
    """Gains in ms, largest first, of the rewrites of a graph that improve it and touch no node that one of a larger
    gain touches: about what the way down from it takes and brings, at no expansion.
    """
    table = place.table
    taken: set[int] = set()
    gains = []
    improving = np.flatnonzero(table.cost < table.node.cost * (1 - ROUNDING))
    for k in improving[np.argsort(table.cost[improving], kind="stable")].tolist():
        nodes = table.touched(k).tolist()
        if taken.isdisjoint(nodes):
            taken.update(nodes)
            gains.append(table.node.cost - float(table.cost[k]))
    return np.array(gains)
