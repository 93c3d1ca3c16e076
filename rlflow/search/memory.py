"""What a strategy has in its head, written down as plain JSON and read back.

A strategy that can be resumed exactly keeps all that decides its next step in one object, its *run*, and calls
``problem.keep(run)`` wherever that object is whole. ``problem.recall()`` gives it back in a later process. Here is what
lies between: a run is a web of objects of the classes that are marked :func:`resumable`, containers, arrays and a
random generator. Graphs are not written: a node is the trace that leads to it, a table of candidates is its node and
what was selected there, and both are made again when, and if, the search comes back to them. Nothing that is read is
executed.
"""

from __future__ import annotations

import base64
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from rlflow.search.archive import Point
from rlflow.search.events import Chronicle, Event, History
from rlflow.search.node import Link, MoveTable, SearchNode
from rlflow.search.problem import Problem
from rlflow.search.result import CurvePoint, TraceStep, Visited
from rlflow.search.selection import Connected
from rlflow.search.strategies import Strategy, describe, make
from rlflow.search.trace import replay_states

_T = TypeVar("_T", bound=type)
_RESUMABLE: dict[str, type] = {}
#: Containers by the name they are written under. What is a tuple is a plain JSON list.
_CONTAINERS: dict[str, type] = {"list": list, "set": set, "frozenset": frozenset, "deque": deque}
_MAPPINGS: dict[str, type] = {"dict": dict, "counter": Counter}


def resumable(kind: _T) -> _T:
    """Class decorator: instances are written by their attributes (tuples by their places) and made again from them."""
    _RESUMABLE[f"{kind.__module__.rpartition('.')[2]}.{kind.__qualname__}"] = kind
    return kind


for _kind in (Connected, Event, History, CurvePoint):
    resumable(_kind)


def write(problem: Problem, run: Any) -> dict[str, Any]:
    """The state of a search at this moment: the strategy's ``run``, and what the problem has counted and remembered."""
    writer = _Writer(problem)
    plain = {
        "run": writer.plain(run),
        "spent": problem.meter.spending(),
        "overweight": problem.frontier.overweight,
        "widened_at": problem.frontier.widened_at if problem.frontier.widened_at < float("inf") else None,
        "curve": [list(point) for point in problem.incumbent.curve],
        "archive": [
            [point.steps, point.cost, point.size, point.visited.digest, writer.step(point.visited.trace or ())]
            for point in problem.incumbent.archive.front
        ],
    }
    return plain | {"objects": writer.objects, "steps": writer.steps}


def read(problem: Problem, plain: dict[str, Any]) -> None:
    """Bring ``problem`` to where it was when ``plain`` was written; its strategy finds its run in ``recall()``."""
    reader, incumbent = _Reader(problem, plain), problem.incumbent
    problem.meter.restore(plain["spent"])
    problem.frontier.overweight = int(plain["overweight"])
    widened_at = plain.get("widened_at")
    problem.frontier.widened_at = float("inf") if widened_at is None else float(widened_at)
    incumbent.curve[:] = [CurvePoint(*point) for point in plain["curve"]]
    points = []
    for steps, cost, size, digest, step in plain["archive"]:
        visited = Visited(reader.state(step).graph, digest, cost, reader.trace(step))
        points.append(Point(steps, cost, size, visited))
    incumbent.archive.front = points
    problem.recalled = reader.value(plain["run"])


class _Writer:
    def __init__(self, problem: Problem) -> None:
        self.root = Problem.root(problem)
        self.objects: list[Any] = []
        self.steps: list[Any] = []  # [number of the step before or -1, rule, match]
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # an id belongs to one object only while that lives
        self._step_numbers: dict[tuple[int, TraceStep], int] = {}
        self._links: dict[int, int] = {}

    def plain(self, value: Any) -> Any:
        """A value that JSON can say; what may be shared is a reference."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, bytes):
            return {"b": value.hex()}
        if isinstance(value, tuple):
            items = [self.plain(item) for item in value]
            return {"t": _name(type(value)), "v": items} if hasattr(value, "_fields") else items
        if id(value) not in self._numbers:
            self._numbers[id(value)] = number = len(self.objects)
            self._alive.append(value)
            self.objects.append(None)
            self.objects[number] = self._form(value)
        return {"#": self._numbers[id(value)]}

    def _form(self, value: Any) -> list[Any]:
        kind = type(value)
        for name, container in _CONTAINERS.items():
            if kind is container:
                return [name, *map(self.plain, value)]
        for name, mapping in _MAPPINGS.items():
            if kind is mapping:
                return [name, *([self.plain(key), self.plain(item)] for key, item in value.items())]
        if kind is np.ndarray:
            packed = base64.b64encode(zlib.compress(np.ascontiguousarray(value).tobytes(), 1)).decode()
            return ["array", value.dtype.str, list(value.shape), packed]
        return self._thing(value)

    def _thing(self, value: Any) -> list[Any]:
        if type(value) in _RESUMABLE.values():
            return [_name(type(value)), *([name, self.plain(item)] for name, item in vars(value).items())]
        if isinstance(value, SearchNode):
            return self._node(value)
        if isinstance(value, MoveTable):
            node, selection, macros = value.source
            return ["table", self.plain(node), self.plain(selection), macros]
        if isinstance(value, np.random.Generator):
            return ["generator", value.bit_generator.state]
        if isinstance(value, Chronicle):
            histories = [[self.plain(node), self.plain(history)] for node, history in value.histories()]
            return ["chronicle", *histories]
        if isinstance(value, Problem):
            return ["problem"]
        if isinstance(value, Strategy):
            return ["strategy", describe(value)]
        raise TypeError(
            f"A checkpoint cannot hold a {type(value).__qualname__}; mark the class with @resumable if it can."
        )

    def _node(self, node: SearchNode) -> list[Any]:
        if node is self.root:
            return ["root"]
        return ["node", self._link(node.link), node.cost, node.digest.hex(), node.size, node.depth]

    def _link(self, link: Link | None) -> int:
        """The number of a link's step; all before it get theirs first."""
        waiting = []
        while link is not None and id(link) not in self._links:
            waiting.append(link)
            link = link.before
        number = -1 if link is None else self._links[id(link)]
        for one in reversed(waiting):
            number = self._links[id(one)] = self._number(number, one.step)
            self._alive.append(one)
        return number

    def step(self, trace: Iterable[TraceStep]) -> int:
        """The number of a trace's last step, -1 for none."""
        number = -1
        for step in trace:
            number = self._number(number, step)
        return number

    def _number(self, before: int, step: TraceStep) -> int:
        if (before, step) not in self._step_numbers:
            self._step_numbers[before, step] = len(self.steps)
            self.steps.append([before, step.rule, list(step.match)])
        return self._step_numbers[before, step]


def _name(kind: type) -> str:
    name = f"{kind.__module__.rpartition('.')[2]}.{kind.__qualname__}"
    assert _RESUMABLE.get(name) is kind, f"{kind} is not marked with @resumable"
    return name


class _Reader:
    def __init__(self, problem: Problem, plain: dict[str, Any]) -> None:
        self.problem = problem
        self.objects: list[Any] = plain["objects"]
        self._made: dict[int, Any] = {}
        self._links: list[Link] = []
        for before, rule, match in plain["steps"]:
            step = TraceStep(str(rule), tuple(map(int, match)))
            self._links.append(Link(step, self._links[before] if before >= 0 else None))
        self._before = [before for before, _, _ in plain["steps"]]
        self._states: dict[int, Any] = {-1: Problem.root(problem).state}

    def trace(self, number: int) -> tuple[TraceStep, ...]:
        """The steps up to number ``number``."""
        steps = []
        while number >= 0:
            steps.append(self._links[number].step)
            number = self._before[number]
        return tuple(reversed(steps))

    def state(self, number: int) -> Any:
        """The state after step ``number``; those on the way are remembered, because others branch off from them."""
        waiting = []
        while number not in self._states:
            waiting.append(number)
            number = self._before[number]
        for one in reversed(waiting):
            self._states[one] = next(replay_states(self._states[self._before[one]], [self._links[one].step]))
            number = one
        return self._states[number]

    def value(self, plain: Any) -> Any:
        """The value that was written as ``plain``."""
        if isinstance(plain, list):
            return tuple(map(self.value, plain))
        if not isinstance(plain, dict):
            return plain
        if "b" in plain:
            return bytes.fromhex(plain["b"])
        if "t" in plain:
            return _RESUMABLE[plain["t"]](*map(self.value, plain["v"]))
        number = plain["#"]
        if number not in self._made:
            self._make(number, *self.objects[number])
        return self._made[number]

    def _make(self, number: int, kind: str, *rest: Any) -> None:
        """Objects that may refer to themselves are known before they are filled."""
        if kind == "frozenset":
            self._made[number] = frozenset(map(self.value, rest))
        elif kind in _CONTAINERS:
            self._made[number] = container = _CONTAINERS[kind]()
            (container.update if kind == "set" else container.extend)([self.value(item) for item in rest])
        elif kind in _MAPPINGS:
            self._made[number] = mapping = _MAPPINGS[kind]()
            for key, item in rest:
                mapping[self.value(key)] = self.value(item)
        elif kind in _SPECIAL:
            self._made[number] = _SPECIAL[kind](self, *rest)
        else:
            thing: Any = object.__new__(_RESUMABLE[kind])
            self._made[number] = thing
            vars(thing).update((name, self.value(item)) for name, item in rest)

    def _array(self, dtype: str, shape: list[int], packed: str) -> np.ndarray:
        flat = np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype=np.dtype(dtype))
        return flat.reshape(shape).copy()

    def _generator(self, state: Any) -> np.random.Generator:
        bits = np.random.PCG64()
        bits.state = state
        return np.random.Generator(bits)

    def _node(self, step: int, cost: float, digest: str, size: int, depth: int) -> SearchNode:
        link = self._links[step] if step >= 0 else None
        node = _Node(None, cost, bytes.fromhex(digest), size, link, depth)
        del node.state
        node.make_state = lambda: self.state(step)
        return node

    def _table(self, node: Any, selection: Any, macros: bool = False) -> MoveTable:
        return _Table(self.problem, self.value(node), self.value(selection), macros)

    def _chronicle(self, *histories: list[Any]) -> Chronicle:
        chronicle = Chronicle(self.problem)
        for node, history in histories:
            chronicle.remember(self.value(node), self.value(history))
        return chronicle


_SPECIAL: dict[str, Callable[..., Any]] = {
    "array": _Reader._array,
    "generator": _Reader._generator,
    "root": lambda reader: Problem.root(reader.problem),
    "node": _Reader._node,
    "table": _Reader._table,
    "chronicle": _Reader._chronicle,
    "problem": lambda reader: reader.problem,
    "strategy": lambda reader, spec: make(spec),
}


class _Node(SearchNode):
    """A node whose graph is made when it is asked for."""

    make_state: Callable[[], Any]

    def __getattr__(self, name: str) -> Any:
        if name != "state" or "make_state" not in self.__dict__:
            raise AttributeError(name)
        self.state = self.__dict__.pop("make_state")()
        return self.state


class _Table(MoveTable):
    """A table of candidates that is enumerated when it is asked for; nothing is counted again."""

    def __init__(self, problem: Problem, node: SearchNode, selection: Any, macros: bool) -> None:
        self.source = (node, selection, macros)
        self._problem = problem

    def __getattr__(self, name: str) -> Any:
        problem = self.__dict__.pop("_problem", None)
        if problem is None:
            raise AttributeError(name)
        self.__dict__.update(vars(problem.frontier.listed(*self.source)[0]))
        return getattr(self, name)
