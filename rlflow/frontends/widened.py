"""Operators in double precision that ONNX's evaluator would give other constants than are meant.

A graph of single precision is evaluated in double precision to see it without roundings. Its constants stay what they
are: the nearest single-precision numbers. ONNX's evaluator takes those of GELU anew in double precision, and the root
of Attention's scale in single precision. HardSwish's own constant is 1/6 by definition, which no model could write;
ONNX's evaluator rounds it to single precision, and an alpha of HardSigmoid comes rounded from the file.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_attention import Attention_23

from rlflow.frontends.constants import Array
from rlflow.ops.numbers import meant

__all__ = ["WIDENED"]

_INNER, _CUBIC = float(np.float32(math.sqrt(2 / math.pi))), float(np.float32(0.044715))
_ERF = np.frompyfunc(math.erf, 1, 1)


class Gelu(OpRun):
    """x times the normal distribution's function at x, or its approximation by Tanh."""

    op_domain = ""

    def _run(self, x: Array, approximate: str = "none") -> tuple[Array]:
        if approximate == "tanh":
            return (0.5 * x * (1 + np.tanh(_INNER * (x + _CUBIC * x * x * x))),)
        distribution = np.asarray(_ERF(x / math.sqrt(2)), dtype=x.dtype)
        return (0.5 * x * (1 + distribution),)


class Attention(Attention_23):
    """ONNX's own, with the scale in double precision."""

    op_domain = ""

    def _run(self, *operands: Any, **attributes: Any) -> Any:
        if attributes.get("scale") is not None:
            attributes["scale"] = np.float64(attributes["scale"])
        return super()._run(*operands, **attributes)


class HardSigmoid(OpRun):
    """A ramp from 0 to 1, with the numbers that its attributes stand for."""

    op_domain = ""

    def _run(self, x: Array, alpha: float = 0.2, beta: float = 0.5) -> tuple[Array]:
        slope, height = (float(meant(float(one))) if math.isfinite(one) else one for one in (alpha, beta))
        return (np.clip(slope * x + height, 0, 1).astype(x.dtype),)


class HardSwish(OpRun):
    """x times the ramp whose slope is 1/6."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return ((x * np.clip(x / 6 + 0.5, 0, 1)).astype(x.dtype),)


WIDENED: tuple[type[OpRun], ...] = (Gelu, Attention, HardSigmoid, HardSwish)
