"""Nodes of ONNX Runtime's optimised graph that code of another compiler could do: which there are, what exactly each
computes, and the graph in which a function of a library does it.

Such code is for fixed shapes. So it has a place only in graphs whose shapes can be told before they run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import onnx

from rlflow.errors import ModelError
from rlflow.frontends.kernel_sites import BLOCKED, CONTRIB, Site, Surroundings, attributes_of, input_of, replace

__all__ = ["CONVOLUTION", "FUNCTION", "PRODUCT", "Convolution", "Product", "code_sites", "put_code", "tensor_shapes"]

#: The attribute of a node that is a function of a library; the kinds of sites.
FUNCTION, CONVOLUTION, PRODUCT = "function", "generated-convolution", "generated-product"
#: What may follow a convolution: nothing, Relu, or Clip from 0 to 6.
RELU, RELU6 = 1, 2
_AFTER: Mapping[tuple[str, tuple[float, ...]], int] = {
    ("", ()): 0, ("Relu", ()): RELU, ("Clip", (0.0, 6.0)): RELU6,
}  # fmt: skip
#: A product of more rows has its weights in the caches, and the runtime is at its peak there.
MOST_ROWS = 4
#: The sizes of what these give are not known before they run; of what has bodies, nobody looks.
_OPEN_OPERATORS = frozenset({"NonZero", "Compress", "Unique", "NonMaxSuppression", "If", "Loop", "Scan"})


class Convolution(NamedTuple):
    """The sizes of a site of kind :data:`CONVOLUTION`: a convolution with groups. ``members``: input channels of a
    group. ``block``: channels in a block, of a depthwise one; 0: its tensors are plain. ``activation``: see above.
    """

    channels: int
    members: int
    height: int
    width: int
    groups: int
    down: int
    right: int
    dilation_down: int
    dilation_right: int
    top: int
    left: int
    bottom: int
    last: int
    bias: int
    activation: int
    block: int


class Product(NamedTuple):
    """The sizes of a site of kind :data:`PRODUCT`: few rows times a constant matrix. ``bias``: its rank, 0: none."""

    depth: int
    columns: int
    bias: int


def code_sites(graph: onnx.GraphProto, around: Surroundings) -> Iterator[tuple[onnx.NodeProto, Site]]:
    """The places for generated code, each with its node; none where sizes are open. Of nodes with one name it is the
    first.
    """
    if not _is_fixed(graph):
        return
    seen: set[str] = set()
    for node in graph.node:
        if node.name in seen or not node.name:
            continue
        site = _convolution(node, around) or _product(node, around)
        if site is not None:
            seen.add(node.name)
            yield node, site


def tensor_shapes(site: Site, first: Sequence[int]) -> list[tuple[int, ...]] | None:
    """The shapes of a site's inputs and of its output, where the first input has this one; ``None``: it cannot be."""
    return (_convolution_shapes if site.kind == CONVOLUTION else _product_shapes)(site.sizes, tuple(first))


def put_code(graph: onnx.GraphProto, functions: Mapping[str, int], around: Surroundings) -> None:
    """Let functions of a library, by their numbers, do the sites of these names, in place. Raises ModelError."""
    left = dict(functions)
    for node, site in list(code_sites(graph, around)) if left else ():
        if site.name in left:
            replace(node, "Generated", list(node.input), list(node.output), {FUNCTION: left.pop(site.name)})
    if left:
        raise ModelError(f"The optimised graph has no node {next(iter(left))!r} that generated code could do.")


def _is_fixed(graph: onnx.GraphProto) -> bool:
    """Whether the inputs have one size each, and nothing makes others on the way."""
    constants = {one.name for one in graph.initializer}
    given = [one.type.tensor_type for one in graph.input if one.name not in constants]
    closed = all(one.HasField("shape") and all(dim.HasField("dim_value") for dim in one.shape.dim) for one in given)
    return closed and not any(node.op_type in _OPEN_OPERATORS for node in graph.node)


# --- convolutions with groups -----------------------------------------------------------------------------------------


def _convolution(node: onnx.NodeProto, around: Surroundings) -> Site | None:
    """With groups: of plain tensors, or a depthwise one of blocked tensors. Nothing is added to it."""
    blocked = (node.domain, node.op_type) == (BLOCKED, "Conv")
    if not blocked and (node.domain, node.op_type) not in (("", "Conv"), (CONTRIB, "FusedConv")):
        return None
    given, shape = attributes_of(node), around.shape(input_of(node, 1)) or ()
    groups = given.get("group", 1)
    if len(shape) != 4 or groups == 1 or not min(shape) or shape[0] % groups or input_of(node, 3):
        return None
    if blocked and (shape[1] != 1 or shape[0] != groups or not around.block or shape[0] % around.block):
        return None
    bias, after, pads = input_of(node, 2), _activation(given), _pads(given)
    if after is None or pads is None or (bias and around.shape(bias) != shape[:1]):
        return None
    steps = (*given.get("strides", (1, 1)), *given.get("dilations", (1, 1)))
    sizes = (*shape, groups, *steps, *pads, int(bool(bias)), after, around.block if blocked else 0)
    return Site(CONVOLUTION, node.name, Convolution(*sizes))


def _activation(given: Mapping[str, Any]) -> int | None:
    name = given.get("activation", "")
    return _AFTER.get((name, tuple(given.get("activation_params", ())) if name else ()))


def _pads(given: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Top, left, bottom, right; ``None``: they are computed elsewhere, or negative."""
    if given.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    pads = tuple(given.get("pads", (0, 0, 0, 0)))
    return pads if len(pads) == 4 and min(pads) >= 0 else None


def _convolution_shapes(sizes: Sequence[int], first: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    s = Convolution(*sizes)
    if len(first) != 4 or min(first) < 1 or first[1] != s.members * s.groups:
        return None
    reach = (s.dilation_down * (s.height - 1) + 1, s.dilation_right * (s.width - 1) + 1)
    padded = (first[2] + s.top + s.bottom, first[3] + s.left + s.last)
    if any(have < need for have, need in zip(padded, reach, strict=True)):
        return None
    out = ((padded[0] - reach[0]) // s.down + 1, (padded[1] - reach[1]) // s.right + 1)
    bias = [(s.channels,)] if s.bias else []
    return [first, (s.channels, s.members, s.height, s.width), *bias, (first[0], s.channels, *out)]


# --- products of few rows ---------------------------------------------------------------------------------------------


def _product(node: onnx.NodeProto, around: Surroundings) -> Site | None:
    """x · w, or with a bias, where w is a constant matrix in its natural order."""
    shape = around.shape(input_of(node, 1))
    if node.domain or node.op_type not in ("MatMul", "Gemm") or shape is None or len(shape) != 2 or not min(shape):
        return None
    given, bias = attributes_of(node), input_of(node, 2)
    usual = (("transA", 0), ("transB", 0), ("alpha", 1.0), ("beta", 1.0))
    if any(given.get(name, value) != value for name, value in usual):
        return None
    added = around.shape(bias) if bias else ()
    if added not in ((), shape[1:], (1, shape[1])):
        return None
    return Site(PRODUCT, node.name, Product(*shape, len(added)))


def _product_shapes(sizes: Sequence[int], first: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    s = Product(*sizes)
    rows = 1
    for size in first[:-1]:
        rows *= size
    if len(first) < 2 or first[-1] != s.depth or not 1 <= rows <= MOST_ROWS:
        return None
    bias = [(1,) * (s.bias - 1) + (s.columns,)] if s.bias else []
    return [first, (s.depth, s.columns), *bias, (*first[:-1], s.columns)]
