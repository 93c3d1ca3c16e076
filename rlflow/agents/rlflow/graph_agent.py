"""Fits the graph model to what was really opened, and acts by a search that the model ranks for.

What a candidate is worth is learnt from the graphs that were really opened: they form a directed graph over which the
best known discounted gain is computed exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rlflow.agents.rlflow.config import WorldConfig
from rlflow.agents.rlflow.graph_world import GraphWorld, Scores
from rlflow.agents.rlflow.latent import squash
from rlflow.agents.rlflow.latent_fit import correlation
from rlflow.agents.rlflow.ranked import RankedSearch
from rlflow.agents.rlflow.real import RealWorld
from rlflow.agents.rlflow.replay import Key, Recorded, Replay, State
from rlflow.agents.torch_state import load_optimizer, optimizer_arrays
from rlflow.nn.batch import Batch
from rlflow.nn.observation import Observation

_SWEEPS = 200
_TINY = 1e-6


@dataclass
class Known:
    """The best known discounted gain from each opened graph, and through each of its candidates."""

    value: dict[Key, float]
    worth: dict[Key, np.ndarray]
    opened: dict[Key, np.ndarray]


def known_values(replay: Replay, discount: float) -> Known:
    """Value iteration over the opened graphs: ``V(s) = max(0, max_c change(c) + discount · V(child of c))``, where a
    candidate that was not opened counts with its price alone, a lower bound. Rewrites are deterministic, so that
    nothing is averaged. ``worth`` [k - 1] and ``opened`` [k - 1] bool: of each state's candidates, stop left out.
    """
    states = list(replay.states.values())
    place = {state.key: i for i, state in enumerate(states)}
    change = [np.log(max(s.cost, 1e-12) / np.maximum(s.costs, 1e-12)) for s in states]
    child = [np.array([place.get(s.child(k), -1) for k in range(len(s.costs))], dtype=np.int64) for s in states]
    sizes = [len(one) for one in child]
    flat_change, flat_child = np.concatenate([*change, []]), np.concatenate([*child, []]).astype(np.int64)
    owner = np.repeat(np.arange(len(states)), sizes)
    value = np.zeros(len(states) + 1)  # the last one is of what was not opened
    worth = flat_change
    for _ in range(_SWEEPS):
        worth = flat_change + discount * value[flat_child]
        after = np.zeros(len(states) + 1)
        np.maximum.at(after, owner, worth)
        moved = float(np.abs(after - value).max(initial=0.0))
        value = after
        if moved < _TINY:
            break
    parts = np.split(worth, np.cumsum(sizes)[:-1])
    return Known(
        {state.key: float(value[i]) for i, state in enumerate(states)},
        {state.key: parts[i] for i, state in enumerate(states)},
        {state.key: child[i] >= 0 for i, state in enumerate(states)},
    )


class GraphAgent:
    """Fits the graph model; acts by a search that the model ranks for."""

    def __init__(
        self,
        config: WorldConfig,
        networks: dict[str, Any],
        replay: Replay,
        rows: Callable[[int], np.ndarray],
        seed: int,
    ) -> None:
        self.config, self.networks, self.replay, self.rows = config, networks, replay, rows
        self.world: GraphWorld = networks["world"]
        self.optimizer = torch.optim.Adam(self.world.parameters(), lr=config.lr, eps=1e-6)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a resumed training needs beside the weights."""
        return optimizer_arrays(self.optimizer, self.world, "adam-world")

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The reverse of :meth:`arrays`."""
        load_optimizer(self.optimizer, self.world, "adam-world", arrays)

    def learn(self, rounds: int, rng: np.random.Generator, stopped: Callable[[], bool]) -> dict[str, float]:
        """Gradient steps on states drawn from the buffer; the figures of ``docs/metrics.md``."""
        begun = time.monotonic()
        known = known_values(self.replay, self.config.discount)
        keys = [key for key, state in self.replay.states.items() if len(state.costs)]
        rows: list[dict[str, float]] = []
        self.world.train()
        for step in range(self.config.fit_steps if keys else 0):
            if stopped():
                break
            for group in self.optimizer.param_groups:
                group["lr"] = self.config.lr * (1 - 0.9 * step / self.config.fit_steps)
            chosen = rng.choice(len(keys), min(self.config.batch, len(keys)), replace=False).tolist()
            rows.append(self._step([keys[i] for i in chosen], known, rng))
        self.world.eval()
        last = rows[-max(1, len(rows) // 10) :]
        means = {name: float(np.mean([row[name] for row in last])) for name in rows[0]} if rows else {}
        return {**means, "fit_seconds": time.monotonic() - begun}

    def _step(self, keys: Sequence[Key], known: Known, rng: np.random.Generator) -> dict[str, float]:
        terms = self.losses(keys, known, rng)
        config = self.config
        weights = {
            "reward_loss": config.w_reward, "future_loss": config.w_reward, "value_loss": config.w_reward,
            "latent_loss": 1.0, "contrast_loss": config.w_contrast, "structure_loss": config.w_structure,
        }  # fmt: skip
        loss = sum((weights[name] * value for name, value in terms.items()), torch.zeros(()))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.world.parameters(), config.grad_norm)
        self.optimizer.step()
        return {"model_loss": float(loss.detach()), **{name: float(value.detach()) for name, value in terms.items()}}

    def losses(self, keys: Sequence[Key], known: Known, rng: np.random.Generator) -> dict[str, Tensor]:
        """Of the states ``keys`` and of one opened child each. What comes after a
        candidate is learnt from those that were opened. The child's embedding is a target without gradient.
        """
        states = [self.replay.states[key] for key in keys]
        batch = self.batch(states)
        nodes = self.world.encode(batch)
        scores = self.world.score(nodes, batch)
        real = np.concatenate([np.append(0.0, np.log(max(s.cost, 1e-12) / np.maximum(s.costs, 1e-12))) for s in states])
        worth = np.concatenate([np.append(0.0, known.worth[key]) for key in keys])
        opened = np.concatenate([np.append(False, known.opened[key]) for key in keys])
        values = np.array([known.value[key] for key in keys])
        error = torch.where(torch.from_numpy(opened), scores.future - _squashed(np.maximum(worth - real, 0)), 0.0)
        found = {
            "reward_loss": (scores.change - _squashed(real)).square().mean(),
            "future_loss": error.square().sum() / max(1, int(opened.sum())),
            "value_loss": (scores.value - _squashed(values)).square().mean(),
        }
        return found | self._moved(states, batch, nodes, scores, known, rng)

    def _moved(
        self, states: Sequence[State], batch: Batch, nodes: Tensor, scores: Scores, known: Known,
        rng: np.random.Generator,
    ) -> dict[str, Tensor]:  # fmt: skip
        """What is predicted of the children: embeddings, values, and which candidates they still have."""
        zero = scores.value.sum() * 0.0
        picks = [_picked(known.opened[state.key], rng) for state in states]
        begins = np.cumsum([0, *(state.seen.candidates for state in states[:-1])])
        has = [i for i, pick in enumerate(picks) if pick is not None]
        if not has:
            return {"latent_loss": zero, "contrast_loss": zero, "structure_loss": zero}
        numbers = torch.tensor([int(begins[i]) + 1 + (picks[i] or 0) if i in has else int(begins[i])
                                for i in range(len(states))])  # fmt: skip
        children = [self.replay.states[states[i].child(int(picks[i] or 0))] for i in has]
        moved = self.world.pooled(self.world.take(nodes, batch, scores, numbers), batch)[has]
        after = self.batch(children)
        with torch.no_grad():
            target = self.world.pooled(self.world.encode(after), after)
        wanted = _squashed(np.array([known.value[child.key] for child in children]))
        value_error = (self.world.value(moved).squeeze(1) - wanted).square().mean()
        latent = functional.smooth_l1_loss(moved, target) + self.config.w_reward * value_error
        near = -torch.cdist(moved, target).square()
        contrast = functional.cross_entropy(near, torch.arange(len(has))) if len(has) > 1 else zero
        pairs = [
            _pairs(states[i], child, int(begins[i]), int(picks[i] or 0)) for i, child in zip(has, children, strict=True)
        ]
        one, other, overlap, there = (np.concatenate(column) for column in zip(*pairs, strict=True))
        logits = self.world.survive(
            scores, torch.from_numpy(one), torch.from_numpy(other), torch.from_numpy(overlap.astype(np.float32))
        )
        structure = functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(there.astype(np.float32)))
        return {"latent_loss": latent, "contrast_loss": contrast, "structure_loss": structure if len(one) else zero}

    def batch(self, states: Sequence[State]) -> Batch:
        """States side by side, in the words of the vocabulary."""
        seen = [self.world.vocabulary.translate(state.seen, self.rows(state.spec)) for state in states]
        return Batch.of(seen, self.world.vocabulary.op_rows)

    def explore(self, real: RealWorld, spec: int, rng: np.random.Generator) -> list[Recorded]:
        """Open graphs that the model ranks highest, some of them drawn; the way to the best is the episode."""
        return [self._search(real, spec, rng, self.config.opens)] if self.config.episodes else []

    def act(self, real: RealWorld, spec: int) -> Recorded:
        """Open what the model ranks first, nothing drawn, which judges it."""
        return self._search(real, spec, None, self.config.opens)

    def judge(self, episodes: Sequence[Recorded]) -> dict[str, float]:
        """Predicted against real: each step's change, and the gain that was still found from each state."""
        keys = [(one.keys[t], one.actions[t], one.gains[t + 1] - one.gains[t], max(one.gains[t:]) - one.gains[t])
                for one in episodes for t in range(len(one)) if one.actions[t] > 0]  # fmt: skip
        keys = [row for row in keys if row[0] in self.replay.states][:200]
        if not keys:
            return {}
        found = []
        with torch.no_grad():
            for key, action, _, _ in keys:
                batch = self.batch([self.replay.states[key]])
                scores = self.world.score(self.world.encode(batch), batch)
                found.append((float(scores.change[action]), float(scores.value[0])))
        change, value = (_unsquashed(np.array(column)) for column in zip(*found, strict=True))
        real, left = np.array([row[2] for row in keys]), np.array([row[3] for row in keys])
        return {"forced_reward_error": float(np.abs(change - real).mean()),
                "forced_reward_correlation": correlation(change, real),
                "forced_return_correlation": correlation(value, left)}  # fmt: skip

    def _search(self, real: RealWorld, spec: int, rng: np.random.Generator | None, opens: int) -> Recorded:
        search = RankedSearch.real(self, real, spec, rng)
        while search.opened < opens and not real.finished():
            if not search.step():
                break
        record = search.record(spec, "ranked")
        real.episodes += 1
        if len(record):
            self.replay.add(record)
        return record


def _squashed(values: np.ndarray) -> Tensor:
    return squash(torch.from_numpy(np.asarray(values, dtype=np.float32)))


def _unsquashed(values: np.ndarray) -> np.ndarray:
    return np.sign(values) * np.expm1(5 * np.minimum(np.abs(values), 1.66)) / 1000


def _picked(opened: np.ndarray, rng: np.random.Generator) -> int | None:
    """One of the opened candidates, drawn."""
    found = np.flatnonzero(opened)
    return int(rng.choice(found)) if len(found) else None


def signatures(seen: Observation) -> list[tuple[int, frozenset[int]]]:
    """(rule, ids of the touched nodes) of each candidate, stop included: the same in a child where the match persists.

    The ids are the graph's own, read back from the rows of the features.
    """
    ids = np.full(len(seen.graph.op), -1, dtype=np.int64)
    there = np.flatnonzero(seen.graph.row >= 0)
    ids[seen.graph.row[there]] = there
    begins = np.searchsorted(seen.touched_by, np.arange(seen.candidates + 1))
    touched = ids[seen.touched].tolist()
    rules = seen.rule.tolist()
    return [(rules[k], frozenset(touched[begins[k] : begins[k + 1]])) for k in range(seen.candidates)]


def _pairs(state: State, child: State, begin: int, pick: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of every other candidate of the state: the number of the one taken, its own, the overlap, and whether the child
    still has it.
    """
    mine, later = signatures(state.seen), set(signatures(child.seen))
    taken = mine[1 + pick][1]
    others = [k for k in range(1, len(mine)) if k != 1 + pick]
    overlap = [len(mine[k][1] & taken) / max(1, len(mine[k][1])) for k in others]
    there = [mine[k] in later for k in others]
    one = np.full(len(others), begin + 1 + pick, dtype=np.int64)
    return one, begin + np.array(others, dtype=np.int64), np.array(overlap), np.array(there, dtype=bool)
