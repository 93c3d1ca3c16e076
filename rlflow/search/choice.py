"""How much of a portfolio's budget each member is given first, by features of the graph: a linear bandit's table.

For each strategy the table has a ridge regression of its part of the best known gain on the features, the estimate of
LinUCB with disjoint models (Li et al. 2010). The table is learnt beforehand and stays as it is; what a member really
gains moves the budget later, as without a table. ``reproduce/learning/choose.py`` learns one from searches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlflow import ops
from rlflow.errors import UsageError
from rlflow.files import parse_json
from rlflow.search.problem import Problem

FORMAT = 1
#: No member is given less than this part of an even share: a table can be wrong.
LEAST = 0.25
#: Parts of the histogram of operators, by the flags that their rows have.
_FLAGS = ("unary", "binary", "reduce")
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"})
_MOVES = frozenset({"Transpose", "Reshape", "Slice", "Concat", "Split", "Squeeze", "Unsqueeze", "Expand", "Gather"})


def features(problem: Problem, families: Mapping[str, str]) -> dict[str, float]:
    """Of the starting graph: logarithms of nodes and candidates; parts of its operators that are products, moves of
    data, or have a flag; parts of its candidates by family of rules (``families``: of each rule, ``other`` where
    unknown). Lists the candidates and counts none of them.
    """
    root = problem.root()
    table = problem.frontier.listed(root, None)[0]
    graph = root.graph
    kinds = Counter(graph.op(node) for node in graph.order() if not graph.is_const(node))
    kinds.pop("Input", None)
    nodes, candidates = max(sum(kinds.values()), 1), max(len(table), 1)
    found = {"log nodes": math.log1p(root.size), "log candidates": math.log1p(len(table))}
    groups = {"products": _PRODUCTS, "moves": _MOVES} | {flag: _with_flag(kinds, flag) for flag in _FLAGS}
    found |= {f"op {name}": sum(kinds[op] for op in members) / nodes for name, members in groups.items()}
    rules = Counter(families.get(problem.rule_names[int(rule)], "other") for rule in table.rule)
    return found | {f"rule {family}": count / candidates for family, count in rules.items()}


def _with_flag(kinds: Iterable[str], flag: str) -> frozenset[str]:
    return frozenset(op for op in kinds if ops.has_op(op) and flag in ops.op_row(op)["flags"])


@dataclass(frozen=True)
class BanditTable:
    """A table. ``names``, ``mean``, ``scale`` [n]: the features and how they are standardised; ``arms``: of each
    strategy the weights [1 + n], the constant first; ``families``: of each rule that was seen. ``temperature``: of the
    softmax that makes shares of predictions. ``card``: what it was learnt from.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    scale: np.ndarray
    arms: dict[str, np.ndarray]
    families: dict[str, str]
    temperature: float = 0.2
    card: dict[str, Any] = field(default_factory=dict)

    def predicted(self, found: Mapping[str, float]) -> dict[str, float]:
        """Of each strategy, the part of the best known gain that it is expected to find."""
        raw = np.array([found.get(name, 0.0) for name in self.names])
        x = np.concatenate(([1.0], (raw - self.mean) / self.scale))
        return {arm: float(weights @ x) for arm, weights in self.arms.items()}

    def shares(self, problem: Problem, strategies: Sequence[str]) -> list[float]:
        """Of each member, its part of an even share; they average 1. One that the table does not have is predicted as
        the mean of those that it has; with none of them all are even.
        """
        known = self.predicted(features(problem, self.families))
        here = [known[name] for name in strategies if name in known]
        if not here:
            return [1.0] * len(strategies)
        wanted = np.array([known.get(name, float(np.mean(here))) for name in strategies])
        parts = np.exp((wanted - wanted.max()) / self.temperature)
        mixed = LEAST + (1 - LEAST) * len(parts) * parts / parts.sum()
        return [float(one) for one in mixed]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "format": FORMAT,
            "names": list(self.names),
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "arms": {arm: weights.tolist() for arm, weights in self.arms.items()},
            "families": self.families,
            "temperature": self.temperature,
            "card": self.card,
        }

    @classmethod
    def read(cls, path: str | Path) -> BanditTable:
        """A table of a file; raises :class:`UsageError` where there is none, or it is something else."""
        try:
            plain = parse_json(Path(path).read_bytes())
            if plain["format"] != FORMAT:
                raise ValueError(f"format {plain['format']!r}")
            arms = {arm: np.array(weights, dtype=np.float64) for arm, weights in plain["arms"].items()}
            arrays = (np.array(plain["mean"], dtype=np.float64), np.array(plain["scale"], dtype=np.float64))
            names, size = tuple(plain["names"]), len(plain["names"])
            shapes = {one.shape for one in arrays} | {(len(one) - 1, *one.shape[1:]) for one in arms.values()}
            finite = all(np.isfinite(one).all() for one in (*arrays, *arms.values()))
            temperature = float(plain["temperature"])
            if not (shapes == {(size,)} and finite and (arrays[1] > 0).all() and temperature > 0):
                raise ValueError("numbers that do not fit")
            return cls(names, *arrays, arms, dict(plain["families"]), temperature, dict(plain["card"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise UsageError(
                f"The table {path}, by which a portfolio was to choose, cannot be read ({said}); make one with "
                "reproduce/learning/choose.py."
            ) from error


def fit(rows: Sequence[tuple[str, Mapping[str, float], float]], ridge: float) -> tuple[Any, ...]:
    """``(names, mean, scale, arms)`` from rows (strategy, features, part of the best known gain): for each strategy the
    weights that minimise the squared error and ``ridge`` times their squares, the constant left out.
    """
    names = tuple(sorted({name for _, found, _ in rows for name in found}))
    raw = np.array([[found.get(name, 0.0) for name in names] for _, found, _ in rows])
    mean, scale = raw.mean(0), raw.std(0)
    scale[scale < 1e-9] = 1.0
    arms = {}
    for arm in dict.fromkeys(arm for arm, _, _ in rows):
        mine = [i for i, row in enumerate(rows) if row[0] == arm]
        x = np.column_stack((np.ones(len(mine)), (raw[mine] - mean) / scale))
        kept = np.diag([0.0, *[ridge] * len(names)])
        arms[arm] = np.linalg.solve(x.T @ x + kept, x.T @ np.array([rows[i][2] for i in mine]))
    return names, mean, scale, arms
