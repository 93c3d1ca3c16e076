"""Named observations, computed when asked for: ``env.observation["text"]``. One of them is what ``step`` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rlflow.env.walks import Episode
from rlflow.errors import UsageError
from rlflow.graph import operator_counts
from rlflow.graph.features import EDGE_COLUMNS, NODE_COLUMNS
from rlflow.nn.observation import DELTA_COLUMNS, GLOBAL_COLUMNS, Observation
from rlflow.ops import op_names

_BIG = 1e6


@dataclass(frozen=True)
class ObservationView:
    """``space``: what the values look like; ``compute(episode)``: the value; ``platform_dependent``: whether another
    machine may see another value (measured prices).
    """

    name: str
    space: Callable[[], spaces.Space]
    compute: Callable[[Episode], Any]
    platform_dependent: bool = False
    deterministic: bool = True


def _rows(columns: int, kind: Any = np.float32) -> spaces.Sequence:
    bound = _BIG if kind is np.float32 else int(_BIG)
    return spaces.Sequence(spaces.Box(-bound, bound, (columns,), kind), stack=True)


def graph_space() -> spaces.Graph:
    """Nodes: operator, dtype, ``NODE_COLUMNS``; edges: ``EDGE_COLUMNS``."""
    return spaces.Graph(_vector(2 + len(NODE_COLUMNS)), _vector(len(EDGE_COLUMNS)))


def graph_value(seen: Observation) -> spaces.GraphInstance:
    """The graph of an observation as Gymnasium's; new arrays."""
    graph = seen.graph
    nodes = np.column_stack((graph.op, graph.dtype, graph.node)).astype(np.float32)
    return spaces.GraphInstance(nodes, graph.edge.copy(), np.column_stack((graph.source, graph.target)))


def candidates_value(seen: Observation) -> np.ndarray:
    """[k, 1 + len(DELTA_COLUMNS)]: rule number (-1: stop), then what the candidate changes."""
    return np.column_stack((seen.rule, seen.delta)).astype(np.float32)


def _ragged(episode: Episode) -> dict[str, Any]:
    seen = episode.observe()
    return {
        "graph": graph_value(seen),
        "candidates": candidates_value(seen),
        "touched": np.column_stack((seen.touched_by, seen.touched)).astype(np.int32),
        "globals": seen.globals,
    }


def _ragged_space() -> spaces.Dict:
    return spaces.Dict(
        {
            "graph": graph_space(),
            "candidates": _rows(1 + len(DELTA_COLUMNS)),
            "touched": _rows(2, np.int32),
            "globals": _vector(len(GLOBAL_COLUMNS)),
        }
    )


def _vector(n: int) -> spaces.Box:
    return spaces.Box(-_BIG, _BIG, (n,), np.float32)


def _cost(episode: Episode) -> np.ndarray:
    return np.array([episode.place.node.cost], dtype=np.float32)


def _counts(episode: Episode) -> np.ndarray:
    found = operator_counts(episode.place.node.graph)
    return np.array([found.get(name, 0) for name in op_names()], dtype=np.float32)


_HEX = frozenset("0123456789abcdef")
_PRINTABLE = frozenset(map(chr, range(32, 127))) | {"\n"}

VIEWS: dict[str, ObservationView] = {
    view.name: view
    for view in (
        ObservationView("ragged", _ragged_space, _ragged, platform_dependent=True),
        ObservationView("graph", graph_space, lambda episode: graph_value(episode.observe()), platform_dependent=True),
        ObservationView(
            "candidates",
            lambda: _rows(1 + len(DELTA_COLUMNS)),
            lambda episode: candidates_value(episode.observe()),
            platform_dependent=True,
        ),
        ObservationView(
            "globals",
            lambda: _vector(len(GLOBAL_COLUMNS)),
            lambda episode: episode.observe().globals,
            platform_dependent=True,
        ),
        ObservationView("cost", lambda: spaces.Box(0, _BIG, (1,), np.float32), _cost, platform_dependent=True),
        ObservationView("counts", lambda: spaces.Box(0, _BIG, (len(op_names()),), np.float32), _counts),
        ObservationView(
            "digest",
            lambda: spaces.Text(32, min_length=32, charset=_HEX),
            lambda episode: episode.place.node.graph.digest,
        ),
        ObservationView(
            "text",
            lambda: spaces.Text(10_000_000, charset=_PRINTABLE),
            lambda episode: episode.place.node.graph.text(),
        ),
    )
}


def view(name: str) -> ObservationView:
    """The view of that name; raises :class:`UsageError` with the names that there are."""
    if name not in VIEWS:
        raise UsageError(f"There is no observation {name!r}; there are {', '.join(VIEWS)}.")
    return VIEWS[name]


class Views(Mapping[str, Any]):
    """The observations of an environment's present state; each is computed at most once a step."""

    def __init__(self, episode: Callable[[], Episode]) -> None:
        self._episode = episode
        self._made: dict[str, Any] = {}
        self._at: object = None

    def __getitem__(self, name: str) -> Any:
        episode, chosen = self._episode(), view(name)
        now = (id(episode), episode.steps, episode.ended)
        if now != self._at:
            self._made, self._at = {}, now
        if name not in self._made:
            self._made[name] = chosen.compute(episode)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(VIEWS)

    def __len__(self) -> int:
        return len(VIEWS)
