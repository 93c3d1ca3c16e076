"""NasRNN: the recurrent cell found by Zoph & Le, unrolled, as in TASO's benchmark (one state, no cell memory)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.zoo.entry import ZooEntry

if TYPE_CHECKING:
    from rlflow.frontends.builder import ModelBuilder

_GATES = 8
_Gate = tuple[str, ...]  # names of the input weight, the recurrent weight and, where asked for, the bias


def _gates(b: ModelBuilder, hidden: int, biases: bool) -> list[_Gate]:
    gates = []
    for index in range(_GATES):
        with b.scope(f"gate{index}"):
            gate = [b.weight(kind, (hidden, hidden), hidden) for kind in ("input_weight", "state_weight")]
            gates.append((*gate, b.bias("bias", hidden)) if biases else tuple(gate))
    return gates


def _combine(b: ModelBuilder, x: str, state: str, gate: _Gate) -> str:
    total = b.node("Add", [b.node("MatMul", [x, gate[0]]), b.node("MatMul", [state, gate[1]])])
    return b.node("Add", [total, gate[2]]) if len(gate) > 2 else total


def _cell(b: ModelBuilder, x: str, state: str, gates: list[_Gate]) -> str:
    t = [_combine(b, x, state, gate) for gate in gates]
    first = b.node("Add", [b.node("Relu", t[0]), b.node("Sigmoid", t[3])])
    second = b.node("Add", [b.node("Sigmoid", t[1]), b.node("Tanh", t[2])])
    third = b.node("Mul", [b.node("Sigmoid", t[4]), b.node("Tanh", t[5])])
    fourth = b.node("Mul", [b.node("Sigmoid", t[6]), b.node("Relu", t[7])])
    left = b.node("Mul", [b.node("Tanh", first), b.node("Tanh", fourth)])
    right = b.node("Add", [b.node("Sigmoid", second), b.node("Tanh", third)])
    return b.node("Tanh", b.node("Mul", [b.node("Tanh", right), b.node("Tanh", left)]))


def write(b: ModelBuilder, *, batch: int, steps: int, hidden: int, biases: bool, shared: bool, inputs: str) -> None:
    """``shared``: all steps use one set of weights (a recurrent cell), else each its own (as TASO's script draws them).

    ``inputs``: "steps" for one input [batch, hidden] per step, "sequence" for one input [steps, batch, hidden].
    """
    if inputs == "sequence":
        sequence = b.input("x", np.float32, (steps, batch, hidden))
        xs = [b.node("Gather", [sequence, b.constant(step, np.int64)], axis=0) for step in range(steps)]
    else:
        xs = [b.input(f"x{step}", np.float32, (batch, hidden)) for step in range(steps)]
    state = b.weight("initial_state", (1, hidden), 1)
    gates = _gates(b, hidden, biases) if shared else []
    for step, x in enumerate(xs):
        with b.scope(f"step{step}"):
            state = _cell(b, x, state, gates if shared else _gates(b, hidden, biases))
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
