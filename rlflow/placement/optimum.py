"""The best placement of a small graph, by an integer programme that HiGHS solves.

Binary x[t, d] says that task t runs on device d, S[t] when it starts, y[i, j] which of two tasks that no path orders
goes first where they share a device. C, the end of the last task, is minimised:

    S[j] >= S[i] + p[i] + c[i, j] * z[i, j]                      for an edge, z = 1 where the devices differ
    S[j] >= S[i] + p[i] - M (3 - x[i, d] - x[j, d] - y[i, j])    and the same the other way round, for such a pair
    C >= S[t] + p[t],    p[t] = sum over d of seconds[t, d] x[t, d]

Tasks may wait and go in any order, links do not contend, only weights count as memory, and c is the quickest link's
hand-over. So the optimum bounds what the simulator says from below, and is its optimum where the simulator, given the
order, reaches it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlflow.errors import UsageError
from rlflow.placement.list_schedules import Heft
from rlflow.placement.lower_bounds import lower_bound
from rlflow.placement.task import PlacementTask
from rlflow.registry import not_installed

__all__ = ["Exact", "SolvedPlacement", "optimum"]

#: The programme has a row for each device and each pair of tasks; beyond these it ends with its time.
MOST_TASKS = 100


class SolvedPlacement(NamedTuple):
    """``decisions`` int32 [n] and ``priority`` float64 [n], the order that goes with them; ``objective``: seconds in
    the simulator; ``bound``: what none can be below; ``evidence``: ``exact`` where the two meet, else ``simulated``.
    """

    decisions: np.ndarray
    priority: np.ndarray
    objective: float
    bound: float
    evidence: str


@dataclass(frozen=True)
class Exact:
    """The optimum of a graph of at most 100 tasks, by HiGHS, or the best that it finds in its time.

    ``seconds``: that it may take.
    """

    seconds: float = 60.0
    name = "exact"

    @staticmethod
    def available() -> str | None:
        """Why it cannot be used here, or ``None``."""
        return not_installed("HiGHS", "highspy", "[eqsat]")

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]; nothing is drawn."""
        return optimum(task, self.seconds).decisions


def optimum(task: PlacementTask, seconds: float = 60.0) -> SolvedPlacement:
    """The best placement that is found in ``seconds``, and a bound. Raises UsageError where the graph is too large, or
    HiGHS is not installed.
    """
    reason = Exact.available()
    if reason is not None:
        raise UsageError(f"The best placement is found by integer programming: {reason}.")
    if task.nodes > MOST_TASKS:
        raise UsageError(f"The graph has {task.nodes} tasks; an optimum is looked for up to {MOST_TASKS}.")
    heft = Heft().decide(task, np.random.default_rng(0))
    found = _Programme(task).solve(seconds)
    start, bound = task.timeline(heft)[0], max(lower_bound(task), 0.0)
    best = [(task.scores(heft[None])[0], heft, -start)]
    if found is not None:
        decisions, starts, proved = found
        bound = max(bound, proved)
        for priority in (-starts, np.zeros(task.nodes)):
            value = task.evaluate(decisions, priority)
            best.append((value.objective if value.valid else math.inf, decisions, priority))
    objective, decisions, priority = min(best, key=lambda one: float(one[0]))
    exact = objective <= bound * (1.0 + 1e-6) + 1e-12
    return SolvedPlacement(
        decisions, priority, float(objective), min(bound, float(objective)), "exact" if exact else "simulated"
    )


class _Programme:
    """The programme of a task. Columns: x by task and device, S by task, C, z by edge, y by pair, u by weight and
    device.
    """

    def __init__(self, task: PlacementTask) -> None:
        self.task, self.n, self.d = task, task.nodes, task.choices
        self.rows: list[tuple[float, float, dict[int, float]]] = []
        self.edges = sorted({
            (int(task.work.maker[value]), reader, value)
            for reader, values in enumerate(task.work.inputs) for value in values
        })  # fmt: skip
        self.pairs = self._unordered()
        weights = len(task.work.weight_bytes) if np.isfinite(task.devices.memory).any() else 0
        self.begin = np.cumsum([0, self.n * self.d, self.n, 1, len(self.edges), len(self.pairs), weights * self.d])
        self.columns = int(self.begin[-1])
        self.unit = max(float(task.seconds.max(initial=0.0)), 1e-12)  # numbers near one are what solvers like
        self.seconds = task.seconds / self.unit
        self.most = task.horizon / self.unit
        self._place()
        self._follow()
        self._separate()
        if weights:
            self._hold()

    def x(self, one: int, device: int) -> int:
        return one * self.d + device

    def start(self, one: int) -> int:
        return int(self.begin[1]) + one

    def _unordered(self) -> list[tuple[int, int]]:
        """Pairs that no path joins."""
        reach = np.eye(self.n, dtype=bool)
        for one in reversed(self.task.work.order):
            for value in self.task.work.outputs[one]:
                for reader in self.task.work.readers[value]:
                    reach[one] |= reach[reader]
        return [(i, j) for i, j in itertools.combinations(range(self.n), 2) if not (reach[i, j] or reach[j, i])]

    def _takes(self, one: int, factor: float) -> dict[int, float]:
        return {self.x(one, d): factor * float(self.seconds[one, d]) for d in range(self.d)}

    def _place(self) -> None:
        last = int(self.begin[2])
        for one in range(self.n):
            self.rows.append((1.0, 1.0, {self.x(one, d): 1.0 for d in range(self.d)}))
            self.rows.append((0.0, math.inf, {last: 1.0, self.start(one): -1.0, **self._takes(one, -1.0)}))

    def _follow(self) -> None:
        for number, (maker, reader, value) in enumerate(self.edges):
            apart = int(self.begin[3]) + number
            hand_over = self._quickest(value)
            row = {self.start(reader): 1.0, self.start(maker): -1.0, apart: -hand_over, **self._takes(maker, -1.0)}
            self.rows.append((0.0, math.inf, row))
            for d in range(self.d):
                self.rows.append((0.0, math.inf, {apart: 1.0, self.x(maker, d): -1.0, self.x(reader, d): 1.0}))

    def _quickest(self, value: int) -> float:
        devices = self.task.devices
        times = devices.latency + self.task.work.bytes[value] * devices.per_byte
        between = times[~np.eye(self.d, dtype=bool)]
        return float(between.min(initial=math.inf) if between.size else 0.0) / self.unit

    def _separate(self) -> None:
        for number, (i, j) in enumerate(self.pairs):
            first = int(self.begin[4]) + number
            for d in range(self.d):
                both = {self.x(i, d): -self.most, self.x(j, d): -self.most}
                for a, b, sign in ((i, j, -1.0), (j, i, 1.0)):
                    row = {self.start(b): 1.0, self.start(a): -1.0, first: sign * self.most}
                    for column, factor in (*both.items(), *self._takes(a, -1.0).items()):
                        row[column] = row.get(column, 0.0) + factor
                    self.rows.append((-self.most * (3.0 if sign < 0 else 2.0), math.inf, row))

    def _hold(self) -> None:
        """u[w, d] >= x[t, d] for each task that reads the weight; their bytes fit."""
        work, devices = self.task.work, self.task.devices
        u = int(self.begin[5])
        for one, weights in enumerate(work.weights):
            for w in weights:
                for d in range(self.d):
                    self.rows.append((0.0, math.inf, {u + w * self.d + d: 1.0, self.x(one, d): -1.0}))
        scale = max(float(work.weight_bytes.max(initial=1.0)), 1.0)
        for d in range(self.d):
            if np.isfinite(devices.memory[d]):
                row = {u + w * self.d + d: float(size) / scale for w, size in enumerate(work.weight_bytes)}
                self.rows.append((-math.inf, float(devices.memory[d]) / scale, row))

    def solve(self, seconds: float) -> tuple[np.ndarray, np.ndarray, float] | None:
        """(devices, starts, bound in seconds) of the best that was found; ``None`` where nothing was."""
        import highspy

        solver = highspy.Highs()
        for name, value in (("output_flag", False), ("time_limit", float(seconds)), ("threads", 1), ("random_seed", 0),
                            ("mip_rel_gap", 1e-9)):  # fmt: skip
            solver.setOptionValue(name, value)
        solver.passModel(self._model(highspy))
        solver.run()
        info = solver.getInfo()
        bound = float(info.mip_dual_bound) if math.isfinite(info.mip_dual_bound) else 0.0
        if info.primal_solution_status != 2:
            return None
        values = np.asarray(solver.getSolution().col_value)
        device = values[: self.n * self.d].reshape(self.n, self.d).argmax(axis=1).astype(np.int32)
        starts = values[int(self.begin[1]) : int(self.begin[2])]
        return device, starts, max(0.0, bound) * self.unit * (1.0 - 1e-7)

    def _model(self, highspy: Any) -> Any:
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.columns, len(self.rows)
        cost, upper = np.zeros(self.columns), np.ones(self.columns)
        cost[self.begin[2]] = 1.0
        upper[self.begin[1] : self.begin[3]] = self.most
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(self.columns), upper
        lp.row_lower_ = np.array([row[0] for row in self.rows])
        lp.row_upper_ = np.array([row[1] for row in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row[2]) for row in self.rows)])
        lp.a_matrix_.index_ = np.array([column for row in self.rows for column in row[2]], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([value for row in self.rows for value in row[2].values()])
        whole = np.ones(self.columns, bool)
        whole[self.begin[1] : self.begin[3]] = False
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(one)] for one in whole]
        return lp
