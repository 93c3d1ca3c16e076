"""A search in which the graph model ranks and looks ahead, and the engine opens only the best of what it says."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlflow.agents.replay import Recorded
from rlflow.agents.worldmodel import unsquash
from rlflow.agents.worldmodel_graph import GraphWorld, Scores, signatures
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
        vocabulary = self.world.vocabulary
        batch = Batch.of([vocabulary.translate(seen, self.rows)], vocabulary.op_rows)
        with torch.no_grad():
            nodes = self.world.encode(batch)
            scores = self.world.score(nodes, batch)
            worth = unsquash(scores.worth).double().numpy()[1:]
            if self.depth > 1 and len(worth):
                some = np.argsort(-worth, kind="stable")[: self.breadth]
                ahead = [self._ahead(seen, batch, nodes, scores, int(k)) for k in some]
                worth[some] = 0.5 * (worth[some] + np.array(ahead))
        return worth

    def _ahead(self, seen: Observation, batch: Batch, nodes: Tensor, scores: Scores, k: int) -> float:
        """The gain of candidate ``k`` and of what the model does after it, discounted."""
        steps = self.rollout(seen, batch, nodes, scores, k, self.depth)
        changes = sum(self.discount**t * change for t, (_, change, _) in enumerate(steps))
        return changes + self.discount ** len(steps) * max(steps[-1][2], 0.0)

    def rollout(
        self, seen: Observation, batch: Batch, nodes: Tensor, scores: Scores, k: int, depth: int
    ) -> list[tuple[int, float, float]]:
        """A dream of ``depth`` steps that begins with candidate ``k`` (stop left out): of each step the candidate, its
        predicted log gain, and the predicted value of the state after it. Ends where no candidate is worth anything.
        """
        alive = np.ones(len(batch.rule), dtype=bool)
        alive[0] = False
        names = signatures(seen)
        steps: list[tuple[int, float, float]] = []
        while len(steps) < depth:
            change = float(unsquash(scores.change[1 + k]))
            others = np.flatnonzero(alive & (np.arange(len(alive)) != 1 + k))
            alive[:] = False
            if len(others):
                overlap = [len(names[j][1] & names[1 + k][1]) / max(1, len(names[j][1])) for j in others]
                one = torch.full((len(others),), 1 + k)
                logits = self.world.survive(scores, one, torch.from_numpy(others), torch.tensor(overlap, dtype=torch.float32))
                alive[others[(logits > 0).numpy()]] = True
            nodes = self.world.take(nodes, batch, scores, torch.tensor([1 + k]))
            scores = self.world.score(nodes, batch)
            steps.append((k, change, float(unsquash(scores.value[0]))))
            worth = np.where(alive, scores.worth.numpy(), -np.inf)
            if not alive.any() or worth.max() <= 0:
                break
            k = int(worth.argmax()) - 1
        return steps


@dataclass
class RankedSearch:
    """Best-first over really opened graphs: next is what promises the largest gain in all, by ``ranker``.

    ``verify``: how many candidates of a graph are opened before others are asked; ``rng`` with ``explore``: the share
    of the openings that are drawn, by rank. ``visited`` is told of every opened place.
    """

    walks: Walks
    ranker: Ranker
    horizon: int
    verify: int = 1
    explore: float = 0.0
    rng: np.random.Generator | None = None
    visited: Callable[[Episode], Any] = lambda _: None
    opened: int = 0
    _queue: list[tuple[float, int, Episode, int]] = field(default_factory=list)
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

        return cls(real.opened(spec).walks, ranker, config.horizon, config.verify, config.explore, rng, visited)

    def step(self) -> bool:
        """Open the most promising candidates of one graph; ``False`` where nothing is left."""
        if not self._seen:
            self._enter(Episode(self.walks, Improvement(), self.horizon))
        for _ in range(self.verify):
            if not self._open_next():
                return False
        return True

    def _open_next(self) -> bool:
        while self._queue:
            _, _, episode, k = self._pop()
            digest = episode.place.table.digests[k]
            if digest in self._seen:
                continue
            before = episode.place.node.digest
            child = episode.fork()
            child.step(1 + k)
            self.opened += 1
            self._way[digest] = (before, 1 + k)
            self._enter(child)
            return True
        return False

    def _pop(self) -> tuple[float, int, Episode, int]:
        if self.rng is None or self.rng.random() >= self.explore:
            return heapq.heappop(self._queue)
        found = self._queue.pop(int(self.rng.integers(len(self._queue))))
        heapq.heapify(self._queue)
        return found

    def _enter(self, episode: Episode) -> None:
        """A graph that is newly opened: its candidates are ranked, and wait."""
        node = episode.place.node
        self._seen.add(node.digest)
        gain = self._gain[node.digest] = math.log(max(episode.start_ms, _TINY) / max(node.cost, _TINY))
        self.visited(episode)
        if episode.ended or not len(episode.place.table):
            return
        for k, worth in enumerate(self.ranker.ranks(episode.observe()).tolist()):
            heapq.heappush(self._queue, (-(gain + worth), self._pushed, episode, k))
            self._pushed += 1

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
        return Recorded(spec, [(spec, key) for key in keys], actions[::-1], [self._gain[key] for key in keys], False, by)


