"""Whether a plan of kernels is wanted, and can be made; :mod:`rlflow.pipeline.kernel_planning` makes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlflow.errors import UsageError
from rlflow.files import is_stream

if TYPE_CHECKING:
    from rlflow.graph import Graph
    from rlflow.pipeline.context import Context
    from rlflow.pipeline.loading import Loaded

_PRODUCTS = ("MatMul", "Gemm", "Linear")

__all__ = ["check_kernels", "kernels_alone", "wants_kernels"]


def wants_kernels(options: Any) -> bool:
    """Whether a plan is made at the end: it was asked for, or the graph was chosen by prices with kernels."""
    return bool(options.kernels) or options.place.with_kernels


def check_kernels(options: Any, output: Path | None) -> None:
    """Refuse ``--kernels`` where no plan can be made, or added to the ``output``, before any work begins. Raises
    :class:`UsageError`.
    """
    if not wants_kernels(options):
        return
    if output is not None and is_stream(output):
        raise UsageError(f"A plan of kernels cannot be added to {output}, a pipe or a device; name a file.")
    if not (options.place.is_default or options.place.with_kernels) or options.place.command is not None:
        raise UsageError("--kernels is for ONNX Runtime on the processor; leave out the other runtime, or --kernels.")
    from rlflow.kernels.shared_library import unavailable

    reason = unavailable()
    if reason is not None:
        raise UsageError(f"--kernels cannot be used here: {reason}.")


def kernels_alone(loaded: Loaded, context: Context) -> str | None:
    """Why nothing but the kernels is in the time, where that is so: the model takes long, has what they are much faster
    for, and its user asks for them. Where it has not, rewrites have that time. The clock of the budget starts here,
    where kernels were asked for.
    """
    options, parts = context.options, context.parts
    if not options.kernels or options.place.with_kernels or parts.seconds is None or not context.cost_model.measures:
        return None
    parts.begin()
    if not parts.leaves_kernels_alone(context.pace(loaded)):
        return None
    if not _gains_much(loaded.graph):
        parts.drop_kernels()
        return None
    return (
        f"the model takes so long that rewrites and kernels are not both in {parts.seconds:g} s, and the kernels were "
        "asked for; give more time, or leave out --kernels"
    )


def _gains_much(graph: Graph) -> bool:
    """Whether kernels are worth more than rewrites, as far as operators tell: a convolution of several taps that meet
    the pixels one after the other, or one row that meets most of the weights.
    """
    nodes = list(graph.order())
    if any(graph.op(node) == "Conv" and _is_winograds(graph.attrs(node) or {}) for node in nodes):
        return True
    rows: dict[bool, int] = {True: 0, False: 0}
    for node in (node for node in nodes if graph.op(node) in (*_PRODUCTS, "Conv")):
        shape, weights = (graph.shape(value) for value in (graph.node_outputs(node)[0], graph.node_inputs(node)[1]))
        if shape and weights and all(isinstance(extent, int) for extent in (*shape, *weights)):
            rows[graph.op(node) != "Conv" and set(shape[:-1]) <= {1}] += math.prod(weights)
    return rows[True] > rows[False]


def _is_winograds(attributes: Mapping[str, Any]) -> bool:
    """Whether it convolves images, with several taps, stride 1, no groups and no dilation."""
    kernel = attributes["kernel_shape"]
    several = len(kernel) == 2 and math.prod(kernel) > 1
    return several and attributes["group"] == 1 and {*attributes["strides"], *attributes["dilations"]} == {1}
