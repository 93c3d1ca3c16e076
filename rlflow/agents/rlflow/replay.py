"""What was really seen: opened graphs with their candidates, and the episodes over them; in memory and on disk.

A graph is kept once, however many episodes come by. On disk the buffer is a folder of ``part-0000.npz`` files, written
whole and only ever added to, so that a training that is resumed has lost nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlflow.env.walks import Place
from rlflow.errors import UsageError
from rlflow.graph.features import GraphFeatures
from rlflow.nn.checkpoint import FORMAT, read_arrays, write_arrays
from rlflow.nn.observation import STOP_RULE, Observation

Key = tuple[int, bytes]
_NOTHING = 1e-12
_GRAPH = ("row", "op", "dtype", "node", "source", "target", "edge")
_SEEN = ("rule", "delta", "touched", "touched_by")


class State(NamedTuple):
    """An opened graph. ``seen``: with rule *numbers* of its problem; ``gain``: log of the start's price over its own;
    ``costs`` [k - 1] ms and ``digests`` [k - 1, 16]: of the candidates, stop left out. ``root``: where episodes begin.
    """

    spec: int
    digest: bytes
    seen: Observation
    cost: float
    gain: float
    costs: np.ndarray
    digests: np.ndarray
    root: bool

    @classmethod
    def of(cls, spec: int, place: Place, seen: Observation, start_ms: float) -> State:
        """From a place of a walk and what is seen there."""
        table, node = place.table, place.node
        digests = np.frombuffer(b"".join(table.digests), dtype=np.uint8).reshape(-1, 16).copy()
        gain = math.log(max(start_ms, _NOTHING) / max(node.cost, _NOTHING))
        return cls(spec, node.digest, seen, node.cost, gain, table.cost.copy(), digests, node.depth == 0)

    @property
    def key(self) -> Key:
        return self.spec, self.digest

    def child(self, k: int) -> Key:
        """The key of what candidate ``k``, counted without stop, leads to."""
        return self.spec, self.digests[k].tobytes()


class Structure(NamedTuple):
    """Which rules fire and how often: the action space of a state in the words of a vocabulary.

    ``counts`` [rows]: matches of each rule, 1 in row 0, which is to stop. ``best`` [rows]: the largest gain among them,
    squashed. ``row``, ``location`` [k]: rule and match of each candidate. The matches of a rule are counted from the
    one with the largest gain; equals in the core's order.
    """

    counts: np.ndarray
    best: np.ndarray
    row: np.ndarray
    location: np.ndarray


def structure(seen: Observation, rows: np.ndarray, size: int) -> Structure:
    """``rows``: embedding row of each rule number (``Vocabulary.rule_rows``); ``size``: how many rows there are."""
    row = rows[seen.rule - STOP_RULE].astype(np.int64)
    gain = seen.delta[:, 0]
    order = np.lexsort((np.arange(len(row)), -gain, row))
    counts = np.bincount(row, minlength=size)
    begins = np.cumsum(counts) - counts
    location = np.empty(len(row), dtype=np.int64)
    location[order] = np.arange(len(row)) - begins[row[order]]
    best = np.zeros(size, dtype=np.float32)
    first = order[location[order] == 0]
    best[row[first]] = gain[first]
    return Structure(counts.astype(np.float32), best, row, location)


@dataclass
class Recorded:
    """A real episode. ``keys`` [t + 1]; ``actions`` [t]: candidate numbers, 0 to stop (the state then repeats);
    ``gains`` [t + 1]: log gain over the start, nan where it was not measured. ``by``: which policy walked.
    """

    spec: int
    keys: list[Key]
    actions: list[int] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    terminated: bool = False
    by: str = "random"

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def best(self) -> float:
        """The largest gain that was measured."""
        return max(gain for gain in self.gains if not math.isnan(gain))


class Replay:
    """``folder``: where it is kept, or ``None`` for memory only. ``capacity``: most graphs in memory; beyond it the
    oldest go, with the episodes that need them, but never the starting ones.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, capacity: int = 6000) -> None:
        if capacity < 1:
            raise UsageError(f"The replay buffer was asked to hold {capacity} graphs; expected 1 or more.")
        self.folder, self.capacity = None if folder is None else Path(folder), capacity
        self.states: dict[Key, State] = {}
        self.episodes: list[Recorded] = []
        self._unsaved: list[State] = []
        self._unsaved_episodes: list[Recorded] = []
        self._parts = 0

    def see(self, state: State) -> Key:
        """Keep a graph, unless it is there."""
        if state.key not in self.states:
            self.states[state.key] = state
            self._unsaved.append(state)
        return state.key

    def add(self, episode: Recorded) -> None:
        """Keep an episode whose graphs were all seen."""
        self.episodes.append(episode)
        self._unsaved_episodes.append(episode)

    def evict(self) -> None:
        """Forget what is beyond the capacity; between rounds, so that nobody holds a key that is gone."""
        extra = len(self.states) - self.capacity
        if extra <= 0:
            return
        old = [key for key, state in self.states.items() if not state.root][:extra]
        for key in old:
            del self.states[key]
        gone = set(old)
        self.episodes = [one for one in self.episodes if not gone.intersection(one.keys)]

    # --- on disk ------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write what is new as one more part. Raises :class:`rlflow.errors.OutputError`."""
        if self.folder is None or not (self._unsaved or self._unsaved_episodes):
            return
        meta = {
            "kind": "replay",
            "format": FORMAT,
            "states": [[s.spec, s.digest.hex(), s.cost, s.gain, s.root] for s in self._unsaved],
            "episodes": [_plain(one) for one in self._unsaved_episodes],
        }
        write_arrays(self.folder / f"part-{self._parts:04d}.npz", meta, _packed(self._unsaved))
        self._parts += 1
        self._unsaved, self._unsaved_episodes = [], []

    def load(self, parts: int | None = None) -> None:
        """Read what the folder holds, its first ``parts`` parts only where that is said (the others are what an
        interrupted round left, and are replaced).
        """
        if self.folder is None:
            return
        for path in sorted(self.folder.glob("part-*.npz"))[:parts]:
            meta, arrays = read_arrays(path, "worldmodel", "replay")
            for state in _unpacked(meta["states"], arrays):
                self.states.setdefault(state.key, state)
            self.episodes += [_episode(plain) for plain in meta["episodes"]]
            self._parts += 1
        self.evict()

    @property
    def parts(self) -> int:
        """How many parts are on disk."""
        return self._parts


def _plain(one: Recorded) -> dict[str, Any]:
    gains = [None if math.isnan(gain) else gain for gain in one.gains]
    keys = [digest.hex() for _, digest in one.keys]
    return {"spec": one.spec, "keys": keys, "actions": one.actions, "gains": gains, "terminated": one.terminated,
            "by": one.by}  # fmt: skip


def _episode(plain: dict[str, Any]) -> Recorded:
    spec = plain["spec"]
    keys = [(spec, bytes.fromhex(digest)) for digest in plain["keys"]]
    gains = [math.nan if gain is None else gain for gain in plain["gains"]]
    return Recorded(spec, keys, plain["actions"], gains, plain["terminated"], plain["by"])


def _arrays(state: State) -> dict[str, np.ndarray]:
    found = {name: getattr(state.seen.graph, name) for name in _GRAPH}
    found |= {name: getattr(state.seen, name) for name in _SEEN}
    return {**found, "globals": state.seen.globals, "costs": state.costs, "digests": state.digests}


def _packed(states: Sequence[State]) -> dict[str, np.ndarray]:
    """Each array of all states in one, and how long each state's share is."""
    out: dict[str, np.ndarray] = {}
    every = [_arrays(state) for state in states]
    for name in every[0] if every else ():
        out[name] = np.concatenate([arrays[name] for arrays in every])
        out[f"{name}-size"] = np.array([len(arrays[name]) for arrays in every], dtype=np.int64)
    return out


def _unpacked(rows: Sequence[Sequence[Any]], arrays: dict[str, np.ndarray]) -> Iterable[State]:
    names = [name for name in arrays if not name.endswith("-size")]
    ends = {name: np.cumsum(arrays[f"{name}-size"]) for name in names}
    for i, (spec, digest, cost, gain, root) in enumerate(rows):
        mine = {name: arrays[name][ends[name][i] - arrays[f"{name}-size"][i] : ends[name][i]] for name in names}
        graph = GraphFeatures(*(mine[name] for name in _GRAPH))
        rule, delta, touched, touched_by = (mine[name] for name in _SEEN)
        seen = Observation(graph, mine["globals"], rule, delta, touched, touched_by)
        yield State(spec, bytes.fromhex(digest), seen, cost, gain, mine["costs"], mine["digests"], root)
