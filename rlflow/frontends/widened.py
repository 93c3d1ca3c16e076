"""Operators in double precision that ONNX's evaluator would give other constants than single precision has.

A graph of single precision is evaluated in double precision to see it without roundings. Its constants stay what they
are: the nearest single-precision numbers. ONNX's evaluator takes those of GELU anew in double precision, and the root
of Attention's scale in single precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_attention import Attention_23

from rlflow.frontends.constants import Array

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


WIDENED: tuple[type[OpRun], ...] = (Gelu, Attention)
