"""Choosing a graph from an e-graph: greedy, or by integer programming on HiGHS (the only door to it).

The programme is Tensat's (MLSys 2021, §5.1) on the simplified problem: a variable a node, one node of each root, a
chosen node's children each have a node, least cost. Order variables forbid cycles, and only inside strongly connected
components, so that a cycle-filtered e-graph has none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rlflow._core import Extraction, Simplified
from rlflow.errors import UsageError
from rlflow.registry import Registry, not_installed
from rlflow.specs import name_of, options_of

Choice = NDArray[np.uint32]
NOTHING = 0xFFFFFFFF


@dataclass(frozen=True)
class Extracted:
    """A choice with its cost (the problem's unit, ms for graphs) and what is known about the optimum.

    ``choice`` (classes,): a node of each class, or :data:`NOTHING`. ``bound``: no choice costs less. ``status``:
    "optimal", "limit" (of time or of branches: a better choice may exist, up to ``gap``), "no_better_found" (the solver
    gave none; this is the greedy one), or "heuristic" for the greedy methods, whose bound is 0. ``variables``: of the
    programme solved.
    """

    choice: Choice
    cost: float
    bound: float
    status: str
    method: str
    seconds: float
    variables: int = 0

    @property
    def gap(self) -> float:
        """How far the cost may be above the optimum, as a part of the cost."""
        return max(0.0, 1 - self.bound / self.cost) if self.cost > 0 else 0.0

    def needed(self, problem: Extraction) -> list[int]:
        """The classes that the roots need under this choice, children before parents."""
        begin, child = problem.child_begin, problem.child
        seen: set[int] = set()
        order: list[int] = []
        stack = [(int(root), False) for root in reversed(problem.roots)]
        while stack:
            cls, finished = stack.pop()
            if finished:
                order.append(cls)
            elif cls not in seen:
                seen.add(cls)
                stack.append((cls, True))
                node = int(self.choice[cls])
                stack.extend(
                    (int(c), False) for c in reversed(child[begin[node] : begin[node + 1]]) if int(c) not in seen
                )
        return order


@dataclass(frozen=True)
class GreedyTree:
    """The cheapest term of every class, shared parts counted each time."""

    exact: ClassVar[bool] = False

    def decode(self, problem: Extraction) -> Extracted:
        """The choice for a problem whose roots all have finite terms."""
        return _greedy(problem.greedy_tree, problem, "greedy-tree")


@dataclass(frozen=True)
class GreedyDag:
    """The cheapest set of descendants of every class, shared parts counted once."""

    exact: ClassVar[bool] = False

    def decode(self, problem: Extraction) -> Extracted:
        """As for :class:`GreedyTree`."""
        return _greedy(problem.greedy_dag, problem, "greedy-dag")


@dataclass(frozen=True)
class Ilp:
    """Integer programming on HiGHS; proves the optimum, or says how far it may be. Starts from greedy-dag, and falls
    back to it.

    ``seconds``: its limit. ``branches``: branch-and-bound nodes at most (``None``: any number), a limit that gives the
    same choice on every machine. ``gap``: relative distance to the bound that is good enough. ``threads``: of the
    solver. ``order``: "components" forbids cycles where there can be any; "none" trusts that there are none.
    """

    seconds: float = 60.0
    branches: int | None = None
    gap: float = 1e-6
    threads: int = 1
    order: str = "components"

    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.order not in ("components", "none"):
            raise UsageError(f"Order constraints are made for 'components' or 'none', not {self.order!r}.")

    @staticmethod
    def available() -> str | None:
        """``None``, or what is not installed."""
        return not_installed("HiGHS", "highspy", "[eqsat]")

    def decode(self, problem: Extraction) -> Extracted:
        """As for :class:`GreedyTree`. Raises :class:`UsageError` where HiGHS is not installed."""
        started = time.perf_counter()
        greedy = problem.greedy_dag()
        greedy_cost = _finite(problem.choice_cost(greedy))
        simplified = problem.simplify()
        small = simplified.problem
        if len(small) == small.classes:  # nothing is left to choose
            choice = simplified.expand(_only_choice(small))
            cost = problem.choice_cost(choice)
            return Extracted(choice, cost, cost, "optimal", "ilp", time.perf_counter() - started, 0)
        programme = _Programme(small, self.order)
        values, bound, proved = programme.solve(_start(simplified, greedy), self)
        choice, cost = _better(problem, simplified, values, greedy, greedy_cost)
        status = "optimal" if proved else "no_better_found" if values is None else "limit"
        return Extracted(choice, cost, min(bound, cost), status, "ilp", time.perf_counter() - started, len(small))


#: Ways to choose a graph from an e-graph. ``exact``: whether the optimum is found, given time.
DECODERS: Registry[type[Any]] = Registry("extraction method", capabilities={"exact": False})
DECODERS.register("greedy-tree", GreedyTree)
DECODERS.register("greedy-dag", GreedyDag)
DECODERS.register("ilp", Ilp)


def extract(problem: Extraction, method: str = "ilp", **options: Any) -> Extracted:
    """The choice of least cost that ``method`` finds: one of :data:`DECODERS`, with options of its own where given
    (``"ilp:gap=0.01"``). ``options`` that it does not have are for other methods, and left out.

    Raises :class:`~rlflow.errors.UsageError` for an unknown method, or where a root has no finite term.
    """
    own = options_of(DECODERS.get(name_of(method)))
    decoder = DECODERS.make(method, **{name: value for name, value in options.items() if name in own})
    found: Extracted = decoder.decode(problem)
    return found


def _finite(cost: float) -> float:
    if math.isinf(cost):
        raise UsageError("Nothing can be extracted: a root of the e-graph has no finite term.")
    return cost


def _greedy(choose: Callable[[], Choice], problem: Extraction, method: str) -> Extracted:
    started = time.perf_counter()
    choice = choose()
    return Extracted(
        choice, _finite(problem.choice_cost(choice)), 0.0, "heuristic", method, time.perf_counter() - started
    )


def _only_choice(small: Extraction) -> Choice:
    choice = np.full(small.classes, NOTHING, dtype=np.uint32)
    choice[small.node_class] = np.arange(len(small), dtype=np.uint32)
    return choice


def _start(simplified: Simplified, greedy: Choice) -> Choice:
    """A first choice of the smaller problem: the greedy one where it survived, else greedy again."""
    kept = simplified.restrict(greedy)
    again = simplified.problem.greedy_dag()
    if kept is None or simplified.problem.choice_cost(again) < simplified.problem.choice_cost(kept):
        return again
    return kept


def _better(
    full: Extraction, simplified: Simplified, values: NDArray[np.float64] | None, greedy: Choice, greedy_cost: float
) -> tuple[Choice, float]:
    if values is None:
        return greedy, greedy_cost
    choice = simplified.expand(_read(simplified.problem, values))
    cost = full.choice_cost(choice)
    return (choice, cost) if cost <= greedy_cost else (greedy, greedy_cost)


def _read(small: Extraction, values: NDArray[np.float64]) -> Choice:
    """The chosen node of each class: values are whole up to rounding, and of several the cheapest will do."""
    choice = np.full(small.classes, NOTHING, dtype=np.uint32)
    cost, node_class = small.cost, small.node_class
    chosen = np.flatnonzero(values[: len(small)] > 0.5)
    for node in sorted(chosen.tolist(), key=lambda n: (-cost[n], -n)):
        choice[node_class[node]] = node
    return choice


class _Programme:
    """The integer programme of a problem: x of each node, then t of each class that can be on a cycle."""

    def __init__(self, problem: Extraction, order: str) -> None:
        self.problem = problem
        self.nodes = len(problem)
        self.cyclic = _cyclic_classes(problem) if order == "components" else {}
        self.rows: list[tuple[float, float, list[int], list[float]]] = []
        self._members: list[list[int]] = [[] for _ in range(problem.classes)]
        for node, cls in enumerate(problem.node_class.tolist()):
            self._members[cls].append(node)
        self._roots()
        self._children()

    def _roots(self) -> None:
        for root in self.problem.roots.tolist():
            self.rows.append((1.0, math.inf, self._members[root], [1.0] * len(self._members[root])))

    def _children(self) -> None:
        """Chosen nodes have their children; one row for all nodes of a class that share a child."""
        begin, child = self.problem.child_begin.tolist(), self.problem.child.tolist()
        for cls, members in enumerate(self._members):
            users: dict[int, list[int]] = {}
            for node in members:
                for operand in child[begin[node] : begin[node + 1]]:
                    users.setdefault(operand, []).append(node)
            if len(members) > 1:
                self.rows.append((-math.inf, 1.0, members, [1.0] * len(members)))
            for operand, nodes in users.items():
                self._require(operand, nodes)
                self._order(cls, operand, nodes)

    def _require(self, operand: int, nodes: list[int]) -> None:
        providers = self._members[operand]
        self.rows.append((0.0, math.inf, providers + nodes, [1.0] * len(providers) + [-1.0] * len(nodes)))

    def _order(self, cls: int, operand: int, nodes: list[int]) -> None:
        """t[class] >= t[operand] + 1 where one of the nodes is chosen; 0 <= t <= M - 1 in a component of M classes."""
        place, other = self.cyclic.get(cls), self.cyclic.get(operand)
        if place is None or other is None or place[0] != other[0]:
            return
        size = float(place[1])
        columns = [self.nodes + place[2], self.nodes + other[2], *nodes]
        self.rows.append((1.0 - size, math.inf, columns, [1.0, -1.0, *([-size] * len(nodes))]))

    def solve(self, start: Choice, limits: Ilp) -> tuple[NDArray[np.float64] | None, float, bool]:
        """Values of the variables (None if the solver found none), a bound on the cost, whether they are optimal."""
        try:
            import highspy
        except ImportError as error:
            raise UsageError(
                f"Extraction by integer programming: {Ilp.available()}. The greedy methods need nothing."
            ) from error
        solver = highspy.Highs()
        for name, value in (
            ("output_flag", False),
            ("time_limit", float(limits.seconds)),
            ("mip_max_nodes", highspy.kHighsIInf if limits.branches is None else limits.branches),
            ("mip_rel_gap", limits.gap),
            ("threads", limits.threads),
            ("random_seed", 0),
        ):
            solver.setOptionValue(name, value)
        solver.passModel(self._model(highspy))
        solution = highspy.HighsSolution()
        solution.col_value = self._start_values(start).tolist()
        solver.setSolution(solution)
        solver.run()
        info, status = solver.getInfo(), solver.getModelStatus()
        proved = status == highspy.HighsModelStatus.kOptimal
        found = info.primal_solution_status == 2  # feasible
        values = np.asarray(solver.getSolution().col_value, dtype=np.float64) if found else None
        bound = float(info.mip_dual_bound) if math.isfinite(info.mip_dual_bound) else 0.0
        return values, max(0.0, bound), proved

    def _model(self, highspy: Any) -> Any:
        lp = highspy.HighsLp()
        extra = len(self.cyclic)
        lp.num_col_, lp.num_row_ = self.nodes + extra, len(self.rows)
        lp.col_cost_ = np.concatenate([self.problem.cost, np.zeros(extra)])
        lp.col_lower_ = np.zeros(lp.num_col_)
        sizes = [float(size - 1) for _, size, _ in sorted(self.cyclic.values(), key=lambda place: place[2])]
        lp.col_upper_ = np.concatenate([np.ones(self.nodes), np.array(sizes)])
        lp.row_lower_ = np.array([row[0] for row in self.rows])
        lp.row_upper_ = np.array([row[1] for row in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row[2]) for row in self.rows)])
        lp.a_matrix_.index_ = np.array([column for row in self.rows for column in row[2]], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([value for row in self.rows for value in row[3]])
        kinds = [highspy.HighsVarType.kInteger] * self.nodes + [highspy.HighsVarType.kContinuous] * extra
        lp.integrality_ = kinds
        return lp

    def _start_values(self, choice: Choice) -> NDArray[np.float64]:
        values = np.zeros(self.nodes + len(self.cyclic))
        needed = Extracted(choice, 0, 0, "", "", 0).needed(self.problem)
        begin, child = self.problem.child_begin, self.problem.child
        height: dict[int, int] = {}
        for cls in needed:
            node = int(choice[cls])
            values[node] = 1.0
            place = self.cyclic.get(cls)
            if place is None:
                continue
            below = [int(c) for c in child[begin[node] : begin[node + 1]]]
            height[cls] = max(
                (height[c] + 1 for c in below if c in height and self.cyclic[c][0] == place[0]), default=0
            )
            values[self.nodes + place[2]] = height[cls]
        return values


def _cyclic_classes(problem: Extraction) -> dict[int, tuple[int, int, int]]:
    """By class on a cycle: its component, the component's size, its own number among such classes."""
    component = problem.components()
    size = np.bincount(component, minlength=1)
    members: Iterable[int] = np.flatnonzero(size[component] > 1).tolist()
    return {cls: (int(component[cls]), int(size[component[cls]]), i) for i, cls in enumerate(members)}
