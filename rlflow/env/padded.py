"""The environment in arrays of fixed size with a mask, for libraries that need that; and several of them in step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rlflow.env.rewrite_env import RewriteEnv
from rlflow.errors import UsageError
from rlflow.graph.features import EDGE_COLUMNS, NODE_COLUMNS
from rlflow.nn.observation import DELTA_COLUMNS, GLOBAL_COLUMNS

_BIG = 1e6


class Padded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Fixed sizes: ``nodes``, ``edges``, ``candidates`` (stop included) and ``touched`` nodes a candidate.

    ``action_mask`` [candidates] int8 is 1 where there is a candidate. Where there are more than fit, those of the
    largest gain stay, in their order, and ``info["cut"]`` counts the rest; nodes and edges beyond the sizes are left
    out from the end and counted in ``info["cut_nodes"]``. A masked action changes nothing and uses up a step of the
    horizon: ``info["invalid"]`` holds the sentence.
    """

    def __init__(
        self, env: RewriteEnv, nodes: int = 1024, edges: int = 2048, candidates: int = 512, touched: int = 8
    ) -> None:
        super().__init__(env)
        self.sizes = (nodes, edges, candidates, touched)
        if min(self.sizes) < 1:
            raise UsageError(f"The padded sizes are {self.sizes}; expected 1 or more of each.")
        self.action_space = spaces.Discrete(candidates)
        self.observation_space = spaces.Dict(
            {
                "nodes": _box(nodes, 2 + len(NODE_COLUMNS)),
                "edges": _box(edges, len(EDGE_COLUMNS)),
                "edge_links": spaces.Box(-1, nodes - 1, (edges, 2), np.int32),
                "candidates": _box(candidates, 1 + len(DELTA_COLUMNS)),
                "touched": spaces.Box(-1, nodes - 1, (candidates, touched), np.int32),
                "globals": spaces.Box(-_BIG, _BIG, (len(GLOBAL_COLUMNS),), np.float32),
                "action_mask": spaces.Box(0, 1, (candidates,), np.int8),
            }
        )
        self._kept: np.ndarray = np.zeros(1, dtype=np.int64)
        self._wasted = 0

    @property
    def _env(self) -> RewriteEnv:
        env = self.env.unwrapped
        assert isinstance(env, RewriteEnv)
        return env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        _, info = self.env.reset(seed=seed, options=options)
        self._wasted = 0
        return self._observed(info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        number = int(action)
        if 0 <= number < len(self._kept):
            _, reward, terminated, truncated, info = self.env.step(int(self._kept[number]))
        else:
            self._wasted += 1
            reward, terminated, truncated, info = 0.0, False, False, self._env._info()
            info["invalid"] = f"Action {number} is masked: there are {len(self._kept)} actions, from 0."
        truncated = truncated or (not terminated and self._env.episode.steps + self._wasted >= self._env.horizon)
        return self._observed(info), reward, terminated, truncated, info

    def _observed(self, info: dict[str, Any]) -> dict[str, np.ndarray]:
        seen = self._env.episode.observe()
        nodes, edges, candidates, touched = self.sizes
        kept = np.arange(seen.candidates)
        if len(kept) > candidates:  # stop, and the largest gains
            best = np.argsort(-seen.delta[1:, 0], kind="stable")[: candidates - 1]
            kept = np.concatenate(([0], 1 + np.sort(best)))
        self._kept = kept
        info["cut"], info["cut_nodes"] = seen.candidates - len(kept), max(0, len(seen.graph.op) - nodes)
        graph = seen.graph
        inside = (graph.source < nodes) & (graph.target < nodes)
        links = np.column_stack((graph.source, graph.target))[inside]
        return {
            "nodes": _padded(np.column_stack((graph.op, graph.dtype, graph.node)), nodes, 0, np.float32),
            "edges": _padded(graph.edge[inside], edges, 0, np.float32),
            "edge_links": _padded(links, edges, -1, np.int32),
            "candidates": _padded(np.column_stack((seen.rule, seen.delta))[kept], candidates, 0, np.float32),
            "touched": _touched_table(seen, kept, candidates, touched, nodes),
            "globals": seen.globals,
            "action_mask": (np.arange(candidates) < len(kept)).astype(np.int8),
        }


def _box(rows: int, columns: int) -> spaces.Box:
    return spaces.Box(-_BIG, _BIG, (rows, columns), np.float32)


def _padded(rows: np.ndarray, size: int, fill: float, kind: Any) -> np.ndarray:
    out = np.full((size, *rows.shape[1:]), fill, dtype=kind)
    out[: min(size, len(rows))] = rows[:size]
    return out


def _touched_table(seen: Any, kept: np.ndarray, candidates: int, width: int, nodes: int) -> np.ndarray:
    """[candidates, width] rows of the first nodes that each kept candidate matched; -1 where there is none."""
    out = np.full((candidates, width), -1, dtype=np.int32)
    begins = np.searchsorted(seen.touched_by, np.arange(seen.candidates + 1))
    for at, k in enumerate(kept.tolist()):
        rows = seen.touched[begins[k] : begins[k + 1]][:width]
        rows = rows[rows < nodes]
        out[at, : len(rows)] = rows
    return out


class RewriteVectorEnv(VectorEnv[Any, Any, Any]):
    """Several environments in step, in this process. Observations are a tuple of ragged ones; an environment whose
    episode ended begins another at the next step (its action is ignored then, its reward 0), as Gymnasium's
    ``NEXT_STEP`` mode says.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's name and form

    def __init__(self, envs: Sequence[RewriteEnv]) -> None:
        if not envs:
            raise UsageError("A vector of environments was made of none; give one or more.")
        self.envs = list(envs)
        self.num_envs = len(self.envs)
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = spaces.Tuple([env.observation_space for env in self.envs])
        self.action_space = spaces.Tuple([env.action_space for env in self.envs])
        self._ended = np.zeros(self.num_envs, dtype=bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in each; ``seed`` n gives environment i the seed n + i."""
        seeds = (
            [seed + i for i in range(self.num_envs)]
            if isinstance(seed, int)
            else (list(seed) if seed is not None else [None] * self.num_envs)
        )
        found = [env.reset(seed=one, options=options) for env, one in zip(self.envs, seeds, strict=True)]
        self._ended[:] = False
        return tuple(seen for seen, _ in found), self._infos([info for _, info in found])

    def step(self, actions: Sequence[Any]) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One action each."""
        if len(actions) != self.num_envs:
            raise UsageError(f"{len(actions)} actions were given for {self.num_envs} environments; give one each.")
        found = []
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            if self._ended[i]:
                seen, info = env.reset()
                found.append((seen, 0.0, False, False, info))
            else:
                found.append(env.step(action))
        seen, rewards, terminated, truncated, infos = zip(*found, strict=True)
        self._ended = np.array(terminated) | np.array(truncated)
        return seen, np.array(rewards), np.array(terminated), np.array(truncated), self._infos(infos)

    def close_extras(self, **options: Any) -> None:
        """Closes every environment."""
        for env in self.envs:
            env.close()

    def _infos(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        together: dict[str, Any] = {}
        for i, info in enumerate(infos):
            together = self._add_info(together, info, i)
        return together
