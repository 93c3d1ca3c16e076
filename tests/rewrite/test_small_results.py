"""Rewrites keep the small results of an operator: each element is compared by itself, not with the largest one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime as ort
import pytest

from rlflow.frontends import graph_to_model
from rlflow.graph import Graph
from rlflow.rewrite import RuleSet, State, all_shipped, compiled
from rlflow.synthesis.floats import filled

X = "x: f32[1024] = input\n"
LINE = np.linspace(-80, 80, 1024, dtype=np.float32)
RULES: RuleSet = compiled(all_shipped())


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


def mish(x: np.ndarray) -> np.ndarray:
    return x * np.tanh(softplus(x))


SPELLINGS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "softplus": ("y = Softplus(x)", softplus),
    "softplus-negated": ("n = Neg(x)\ny = Softplus(n)", lambda x: softplus(-x)),
    "softplus-doubled": ("c: f32[] = const 2.0\ns = Softplus(x)\ny = Mul(s, c)", lambda x: 2 * softplus(x)),
    "softplus-shifted": ("c: f32[] = const 0.5\ns = Add(x, c)\ny = Softplus(s)", lambda x: softplus(x + 0.5)),
    "softplus-gate": ("s = Softplus(x)\ny = Mul(x, s)", lambda x: x * softplus(x)),
    "mish": ("y = Mish(x)", mish),
    "mish-of-softplus": ("s = Softplus(x)\nt = Tanh(s)\ny = Mul(x, t)", mish),
}
#: A rounding of the argument moves Exp(-80) by 80 of its own.
RELATIVE = 2e-5
#: Graphs that are looked at, those nearest first.
MOST = 60


def reached(graph: Graph) -> list[tuple[str, Graph]]:
    """The graphs that the whole library makes of this one, each with the rule that led to it."""
    found, seen = [("none", graph)], {graph.digest}
    for _, parent in found:
        state = State(parent, RULES)
        moves = state.moves()
        for index in range(len(moves)):
            child = state.child(index)
            if child.digest not in seen and len(found) < MOST:
                seen.add(child.digest)
                found.append((RULES.names[int(moves.rule[index])], child))
    return found


def run(graph: Graph) -> np.ndarray:
    built, constants = filled(graph)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        graph_to_model(built, constants).SerializeToString(), options, ["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, {session.get_inputs()[0].name: LINE})[0], dtype=np.float64)


@pytest.mark.parametrize("name", SPELLINGS)
def test_no_rewrite_loses_a_small_result(name: str) -> None:
    text, function = SPELLINGS[name]
    exact = function(LINE.astype(np.float64))
    start = Graph.parse(f"{X}{text}\nreturn y")
    worst = {}
    for number, (rule, graph) in enumerate(reached(start)):
        worst[f"{number} {rule}"] = float(np.max(np.abs(run(graph) - exact) / np.abs(exact)))
    assert len(worst) > 1
    assert {rule: error for rule, error in worst.items() if error > RELATIVE} == {}
