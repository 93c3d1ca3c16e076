"""A search in which the graph model ranks and looks ahead, and the engine opens only the best of what it says."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlflow.agents.rlflow.graph_world import GraphWorld
from rlflow.agents.rlflow.latent import unsquash
from rlflow.agents.rlflow.replay import Recorded
from rlflow.env.reward import Improvement
from rlflow.env.walks import Episode, Walks
from rlflow.nn.batch import Batch
from rlflow.nn.observation import Observation

_TINY = 1e-12


@dataclass
class Ranker:
    """``ranks(seen)``: what each candidate of a state is worth, in log gains [k - 1], stop left out.

    The ``breadth`` candidates that look best at once are followed ``depth`` - 1 steps further in the latent graph, each
    time with the best of those that survive; the two estimates are averaged.
    """

    world: GraphWorld
    rows: np.ndarray
    breadth: int
    depth: int
    discount: float

    def ranks(self, seen: Observation) -> np.ndarray:
        batch = self._batch([seen])
        with torch.no_grad():
            nodes = self.world.encode(batch)
            scores = self.world.score(nodes, batch)
            worth = scores.worth(batch).double().numpy()[1:]
            if self.depth > 1 and len(worth):
                some = np.argsort(-worth, kind="stable")[: self.breadth]
                ahead = [self._total(steps) for steps in self.rollouts(seen, nodes, some.tolist(), self.depth)]
                worth[some] = 0.5 * (worth[some] + np.array(ahead))
        return worth

    def dream(self, seen: Observation, depth: int) -> list[DreamtStep]:
        """The longest dream from a state, by the candidate that ranks first."""
        best = int(self.ranks(seen).argmax())
        with torch.no_grad():
            nodes = self.world.encode(self._batch([seen]))
            return self.rollouts(seen, nodes, [best], depth)[0]

    def rollouts(self, seen: Observation, nodes: Tensor, firsts: list[int], depth: int) -> list[list[DreamtStep]]:
        """Dreams of at most ``depth`` steps, side by side, each of which begins with one of the candidates ``firsts``
        (stop left out) and goes on with the best of those that survive. A dream ends where none is worth anything.

        ``nodes`` [n, hidden]: the state's embeddings.
        """
        count, size = len(firsts), seen.candidates
        batch, nodes = self._batch([seen] * count), nodes.repeat(count, 1)
        overlap, begins = overlaps(seen), torch.arange(count) * size
        alive = torch.ones(count, size, dtype=torch.bool)
        alive[:, 0] = False
        scores, chosen = self.world.score(nodes, batch), torch.tensor(firsts) + 1
        going, dreams = [True] * count, [list[DreamtStep]() for _ in range(count)]
        for _ in range(depth):
            change = unsquash(scores.change[begins + chosen]).tolist()
            every = torch.arange(size).repeat(count)
            logits = self.world.survive(
                scores, (begins + chosen).repeat_interleave(size), torch.arange(count * size),
                overlap[chosen.repeat_interleave(size), every],
            )  # fmt: skip
            alive &= (logits > 0).view(count, size)
            alive[torch.arange(count), chosen] = False
            nodes = self.world.take(nodes, batch, scores, begins + chosen)
            scores = self.world.score(nodes, batch)
            value = unsquash(scores.value).tolist()
            worth = scores.worth(batch).view(count, size).masked_fill(~alive, -torch.inf)
            for i in range(count):
                if going[i]:
                    dreams[i].append(DreamtStep(int(chosen[i]) - 1, change[i], value[i]))
            going = [on and w > 0 for on, w in zip(going, worth.amax(1).tolist(), strict=True)]
            if not any(going):
                break
            chosen = worth.argmax(1)
        return dreams

    def _total(self, steps: list[DreamtStep]) -> float:
        """The discounted gain of a dream and of what the model sees behind its end."""
        changes = sum(self.discount**t * step.change for t, step in enumerate(steps))
        return changes + self.discount ** len(steps) * max(steps[-1].value, 0.0)

    def _batch(self, seen: list[Observation]) -> Batch:
        vocabulary = self.world.vocabulary
        return Batch.of([vocabulary.translate(one, self.rows) for one in seen], vocabulary.op_rows)


class DreamtStep(NamedTuple):
    """Of a dream: the candidate (stop left out), its predicted log gain, the predicted value of the state after it."""

    candidate: int
    change: float
    value: float


def overlaps(seen: Observation) -> Tensor:
    """[k, k]: the share of a candidate's (column) touched nodes that another one (row) touches too."""
    touches = torch.zeros(seen.candidates, len(seen.graph.op))
    touches[torch.from_numpy(seen.touched_by).long(), torch.from_numpy(seen.touched).long()] = 1
    return touches @ touches.T / touches.sum(1).clamp(min=1)


@dataclass(eq=False)
class _Opened:
    """A graph that was opened: ``worth`` [k] of its candidates, best first in ``order``; ``gain``: log gain so far."""

    episode: Episode
    gain: float
    worth: np.ndarray
    order: list[int]

    @property
    def promise(self) -> float:
        """What the best candidate that was not taken yet would lead to."""
        return self.gain + (float(self.worth[self.order[0]]) if self.order else -math.inf)


@dataclass
class RankedSearch:
    """Goes down by ``ranker``: of a graph's candidates the ``verify`` best are opened, and the way goes on from the
    child that promises most. After ``patience`` steps without a better graph, it goes on from the most promising
    candidate of all opened graphs.

    ``descent``: the first way goes down by price alone, as greedy does, and what it opens is ranked on the way: the
    model says where to go on from there. ``rng`` with ``explore``: the share of the candidates that are drawn instead.
    ``visited`` is told of every opened place. ``opened`` counts what the engine had to build: the way over graphs that
    it still holds is free.
    """

    walks: Walks
    ranker: Ranker
    horizon: int
    verify: int = 1
    patience: int = 6
    explore: float = 0.0
    rng: np.random.Generator | None = None
    visited: Callable[[Episode], Any] = lambda _: None
    descent: bool = True
    opened: int = 0
    _here: _Opened | None = None
    _idle: int = 0
    _queue: list[tuple[float, int, _Opened]] = field(default_factory=list)
    _pushed: int = 0
    _seen: set[bytes] = field(default_factory=set)
    _way: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    _gain: dict[bytes, float] = field(default_factory=dict)

    @classmethod
    def real(cls, agent: Any, real: Any, spec: int, rng: np.random.Generator | None) -> RankedSearch:
        """In the real world of a training, which keeps every graph that is opened."""
        config = agent.config
        ranker = Ranker(agent.world, agent.rows(spec), config.breadth, config.depth, config.discount)

        def visited(episode: Episode) -> None:
            real.see(spec, episode)
            real.steps += 1

        walks, patience = real.opened(spec).walks, config.patience or cls.patience
        return cls(walks, ranker, config.horizon, config.verify, patience, config.explore, rng, visited)

    def step(self) -> bool:
        """Open the most promising candidates of one graph; ``False`` where nothing is left."""
        if not self._seen:
            self._here = self._enter(Episode(self.walks, Improvement(), self.horizon))
            while self.descent and (child := self._downhill(self._here)) is not None:
                self._push(self._here)
                self._here = child
        if self._here is None or not self._here.order or self._idle >= self.patience:
            self._here, self._idle = self._most_promising(), 0
        if self._here is None:
            return False
        best = max(self._gain.values())
        children = [child for _ in range(self.verify) if (child := self._open_from(self._here)) is not None]
        self._idle = 0 if max(self._gain.values()) > best + _TINY else self._idle + 1
        if self._here.order:
            self._push(self._here)
        self._here = max(children, key=lambda child: child.promise, default=None)
        for child in children:
            if child is not self._here and child.order:
                self._push(child)
        return True

    def _downhill(self, found: _Opened) -> _Opened | None:
        """Open the cheapest candidate where that is an improvement."""
        table = found.episode.place.table
        k = int(np.argmin(table.cost)) if found.order else -1
        floor = self.walks.problem.gain_floor(table.node.cost)
        if k < 0 or not table.cost[k] < table.node.cost - floor or table.digests[k] in self._seen:
            return None
        found.order.remove(k)
        return self._take(found, k)

    def _most_promising(self) -> _Opened | None:
        """Of the opened graphs that still have candidates, the one with the best; what is known by now is left out."""
        while self._queue:
            minus, _, found = heapq.heappop(self._queue)
            self._skip_known(found)
            if found.order and found.promise >= -minus - _TINY:
                return found
            if found.order:
                self._push(found)
        return None

    def _push(self, found: _Opened) -> None:
        heapq.heappush(self._queue, (-found.promise, self._pushed, found))
        self._pushed += 1

    def _skip_known(self, found: _Opened) -> None:
        digests = found.episode.place.table.digests
        while found.order and digests[found.order[0]] in self._seen:
            found.order.pop(0)

    def _open_from(self, found: _Opened) -> _Opened | None:
        """Open its best candidate that is new, or one that is drawn."""
        self._skip_known(found)
        if not found.order:
            return None
        drawn = self.rng is not None and self.rng.random() < self.explore
        k = found.order.pop(int(self.rng.integers(len(found.order))) if drawn and self.rng is not None else 0)
        return None if found.episode.place.table.digests[k] in self._seen else self._take(found, k)

    def _take(self, found: _Opened, k: int) -> _Opened:
        digest = found.episode.place.table.digests[k]
        child, before = found.episode.fork(), self.walks.expansions
        child.step(1 + k)
        self.opened += self.walks.expansions - before
        self._way[digest] = (found.episode.place.node.digest, 1 + k)
        return self._enter(child)

    def _enter(self, episode: Episode) -> _Opened:
        """A graph that is newly opened: its candidates are ranked, and wait."""
        node = episode.place.node
        self._seen.add(node.digest)
        gain = self._gain[node.digest] = math.log(max(episode.start_ms, _TINY) / max(node.cost, _TINY))
        self.visited(episode)
        if episode.ended or not len(episode.place.table):
            return _Opened(episode, gain, np.empty(0), [])
        worth = self.ranker.ranks(episode.observe())
        return _Opened(episode, gain, worth, np.argsort(-worth, kind="stable").tolist())

    def record(self, spec: int, by: str) -> Recorded:
        """The way to the best graph, as an episode."""
        if not self._gain:
            self._enter(Episode(self.walks, Improvement(), self.horizon))
        at = max(self._gain, key=lambda digest: self._gain[digest])
        keys, actions = [at], []
        while at in self._way:
            at, action = self._way[at]
            keys.append(at)
            actions.append(action)
        keys.reverse()
        return Recorded(
            spec, [(spec, key) for key in keys], actions[::-1], [self._gain[key] for key in keys], False, by
        )
