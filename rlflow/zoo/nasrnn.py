"""NasRNN: the recurrent cell found by Zoph & Le, unrolled, as in TASO's benchmark (one state, no cell memory).

The zoo, TASO's script and Tensat's terms are written by :func:`unrolled`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo.entry import ZooEntry
from rlflow.zoo.net import Net, OnnxNet, Value

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_GATES = 8


def _gates(net: Net, hidden: int, biases: bool) -> list[tuple[Value, ...]]:
    """The input weight, the recurrent weight and, where asked for, the bias of each gate."""
    gates = []
    for index in range(_GATES):
        with net.scope(f"gate{index}"):
            gate = [net.weight(kind, hidden, hidden) for kind in ("input_weight", "state_weight")]
            gates.append((*gate, net.vector("bias", hidden)) if biases else tuple(gate))
    return gates


def _combine(net: Net, x: Value, state: Value, gate: Sequence[Value]) -> Value:
    total = net.apply("Add", net.apply("MatMul", x, gate[0]), net.apply("MatMul", state, gate[1]))
    return net.apply("Add", total, gate[2]) if len(gate) > 2 else total


def _cell(net: Net, x: Value, state: Value, gates: Sequence[Sequence[Value]]) -> Value:
    """The next state."""

    def of(operator: str, *values: Value) -> Value:
        return net.apply(operator, *values)

    t = [_combine(net, x, state, gate) for gate in gates]
    first = of("Add", of("Relu", t[0]), of("Sigmoid", t[3]))
    second = of("Add", of("Sigmoid", t[1]), of("Tanh", t[2]))
    third = of("Mul", of("Sigmoid", t[4]), of("Tanh", t[5]))
    fourth = of("Mul", of("Sigmoid", t[6]), of("Relu", t[7]))
    left = of("Mul", of("Tanh", first), of("Tanh", fourth))
    right = of("Add", of("Sigmoid", second), of("Tanh", third))
    return of("Tanh", of("Mul", of("Tanh", right), of("Tanh", left)))


def unrolled(
    net: Net, xs: Sequence[Value], state: Value, hidden: int, *, biases: bool = False, shared: bool = False
) -> Value:
    """The state [batch, hidden] after a step for each of ``xs`` [batch, hidden]. ``shared``: all steps use one set of
    weights (a recurrent cell), else each its own (as TASO's script draws them).
    """
    gates = _gates(net, hidden, biases) if shared else []
    for step, x in enumerate(xs):
        with net.scope(f"step{step}"):
            state = _cell(net, x, state, gates if shared else _gates(net, hidden, biases))
    return state


def write(b: ModelBuilder, *, batch: int, steps: int, hidden: int, biases: bool, shared: bool, inputs: str) -> None:
    """``inputs``: "steps" for one input [batch, hidden] per step, "sequence" for one input [steps, batch, hidden]."""
    if inputs == "sequence":
        sequence = b.input("x", np.float32, (steps, batch, hidden))
        xs = [b.node("Gather", [sequence, b.constant(step, np.int64)], axis=0) for step in range(steps)]
    else:
        xs = [b.input(f"x{step}", np.float32, (batch, hidden)) for step in range(steps)]
    state = b.weight("initial_state", (1, hidden), 1)
    state = unrolled(OnnxNet(b), xs, state, hidden, biases=biases, shared=shared)
    b.output(state, "state")


ENTRIES = (
    ZooEntry(
        name="nasrnn",
        title="NasRNN, unrolled",
        source="cell: Zoph & Le 2017 (arXiv 1611.01578); benchmark: TASO (Jia et al. 2019), also Tensat",
        shapes="x0 … x{steps-1} [batch, hidden], or x [steps, batch, hidden], float32 -> state [batch, hidden]",
        write=write,
        seq=5,
        seq_option="steps",
        options={"hidden": 512, "biases": False, "shared": True, "inputs": "steps"},
        choices={"inputs": ("steps", "sequence")},
    ),
)
