"""The kinds of nodes in ONNX Runtime's optimised graph that a kernel of ours can do, a row of :data:`KINDS` each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from rlflow.frontends.kernel_sites import (
    ACTIVATIONS,
    BLOCKED,
    CONTRIB,
    KernelKind,
    Site,
    Surroundings,
    attributes_of,
    convolution_attributes,
    input_of,
    replace,
)
from rlflow.frontends.winograd_weights import transformed

_SAME = ("SAME_UPPER", "SAME_LOWER")


def found_sites(graph: onnx.GraphProto, around: Surroundings) -> Iterator[tuple[onnx.NodeProto, Site]]:
    """The sites of a graph in its order, each with its node; of nodes with one name the first."""
    seen: set[str] = set()
    for node in graph.node:
        if not node.name or node.name in seen:
            continue
        for kind in KINDS.values():
            site = kind.read(node, around)
            if site is not None:
                seen.add(node.name)
                yield node, site
                break


# --- convolutions on blocked tensors ----------------------------------------------------------------------------------


#: Kernels that have an algorithm, height and width, and the kind of site that they make.
TAPS = {
    (3, 3): "convolution", (5, 5): "convolution-5x5", (1, 7): "convolution-7", (7, 1): "convolution-7",
    (1, 3): "convolution-3", (3, 1): "convolution-3",
}  # fmt: skip


def _blocked_convolution(node: onnx.NodeProto, around: Surroundings) -> tuple[dict[str, Any], tuple[int, ...]] | None:
    """The attributes and the weights' shape of a convolution without groups that reads and writes blocked tensors."""
    if node.domain != BLOCKED or node.op_type != "Conv" or not around.block:
        return None
    given, shape = attributes_of(node), around.shape(node.input[1]) or ()
    blocked = len(shape) == 4 and not shape[0] % around.block and not shape[1] % around.block
    blocked = blocked and given.get("group", 1) == 1 and tuple(given.get("kernel_shape", shape[2:])) == shape[2:]
    if not blocked or given.get("activation", "") not in ACTIVATIONS or _pads(given, shape[2:]) is None:
        return None
    return given, shape


def _read_convolution(node: onnx.NodeProto, around: Surroundings) -> Site | None:
    """A convolution of stride 1 by one of the kernels above."""
    found = _blocked_convolution(node, around)
    if found is None:
        return None
    given, shape = found
    kind = TAPS.get((shape[2], shape[3]))
    if kind is None or any(list(given.get(name, (1, 1))) != [1, 1] for name in ("strides", "dilations")):
        return None
    return Site(kind, node.name, shape[:2] if kind == "convolution" else shape)


def _write_convolution(node: onnx.NodeProto, around: Surroundings, attributes: Mapping[str, int]) -> None:
    given, shape, block = attributes_of(node), around.shape(node.input[1]) or (), around.block
    chosen = {name: value for name, value in attributes.items() if name != "kept"}
    own = {**convolution_attributes(given), "block": block, "pads": _pads(given, shape[2:]), **chosen}
    inputs = list(node.input)
    if attributes.get("kept"):
        tile = attributes["tile"]
        inputs[1] = around.other_form(
            inputs[1], f"transformed for {tile}", lambda values: transformed(values, tile, block)
        )
        own["taps"] = shape[2:]
    own["threads"] = around.threads if around.threads > 1 else None
    replace(node, "NchwcWinograd", inputs, list(node.output), own)


def _read_unrolled(node: onnx.NodeProto, around: Surroundings) -> Site | None:
    """A convolution by another kernel or stride. ``sizes``: those of the weights, the strides."""
    found = _blocked_convolution(node, around)
    if found is None:
        return None
    given, shape = found
    return Site("convolution-other", node.name, (*shape, *given.get("strides", (1, 1))))


def _write_unrolled(node: onnx.NodeProto, around: Surroundings, attributes: Mapping[str, int]) -> None:
    steps = _steps(attributes_of(node), (around.shape(node.input[1]) or ())[2:])
    own = {**steps, "block": around.block, **attributes}
    replace(node, "NchwcUnrolled", list(node.input), list(node.output), own)


def _pads(given: Mapping[str, Any], kernel: tuple[int, ...]) -> list[int] | None:
    """Padding in ONNX's order; ``None``: it is not known, or negative. SAME is known for odd kernels of stride 1."""
    how = given.get("auto_pad", "NOTSET")
    steps = [*given.get("strides", (1, 1)), *given.get("dilations", (1, 1))]
    if how in _SAME:
        return [size // 2 for size in kernel] * 2 if steps == [1] * 4 and all(size % 2 for size in kernel) else None
    pads = [0] * 4 if how == "VALID" else list(given.get("pads", [0] * 4))
    return pads if len(pads) == 4 and min(pads) >= 0 else None


# --- normalised rows --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Norm:
    """Where an operator has what RowNorm takes: positions among its inputs (-1: it has none); its own epsilon."""

    centred: int
    epsilon: float
    scale: int
    skip: int = -1
    shift: int = -1
    bias: int = -1


_NORMS = {
    ("", "LayerNormalization"): _Norm(1, 1e-5, scale=1, shift=2),
    ("", "SimplifiedLayerNormalization"): _Norm(0, 1e-5, scale=1),
    ("", "RMSNormalization"): _Norm(0, 1e-5, scale=1),
    (CONTRIB, "SkipLayerNormalization"): _Norm(1, 1e-12, skip=1, scale=2, shift=3, bias=4),
    (CONTRIB, "SkipSimplifiedLayerNormalization"): _Norm(0, 1e-12, skip=1, scale=2, bias=3),
}
_KEPT_SUM = 3  # the output of the Skip operators that holds what was normalised


def _read_norm(node: onnx.NodeProto, around: Surroundings) -> Site | None:
    """Rows of the last axis, whose scale is constant; no other output than the rows and their sum is used."""
    found = _NORMS.get((node.domain, node.op_type))
    if found is None:
        return None
    given, shape = attributes_of(node), around.shape(input_of(node, found.scale))
    if shape is None or len(shape) != 1 or not shape[0] or given.get("axis", -1) != -1:
        return None
    may_be_used = {0, _KEPT_SUM} if found.skip >= 0 else {0}
    if any(name and around.is_used(name) for at, name in enumerate(node.output) if at not in may_be_used):
        return None
    added = sum(bool(input_of(node, place)) for place in (found.skip, found.bias))
    return Site("norm", node.name, (shape[0], found.centred, added))


def _write_norm(node: onnx.NodeProto, around: Surroundings, attributes: Mapping[str, int]) -> None:
    found = _NORMS[node.domain, node.op_type]
    inputs = [input_of(node, place) for place in (0, found.scale, found.skip, found.shift, found.bias)]
    kept = node.output[_KEPT_SUM] if len(node.output) > _KEPT_SUM else ""
    outputs = [node.output[0], *([kept] if kept and around.is_used(kept) else [])]
    epsilon = float(attributes_of(node).get("epsilon", found.epsilon))
    own = {"epsilon": epsilon, "centred": found.centred, "keeps_sum": len(outputs) - 1, **attributes}
    replace(node, "RowNorm", inputs, outputs, own)


def _read_norm_of_blocks(node: onnx.NodeProto, around: Surroundings) -> Site | None:
    """LayerNormalization of channels that fill their blocks: its input was put in plain order with the channels last.
    Its output is put in blocks again, and nothing else reads that.
    """
    site, block = _read_norm(node, around), around.block
    if site is None or node.op_type != "LayerNormalization" or not block or site.sizes[0] % block:
        return None
    before, after = around.producer(node.input[0]), around.only_reader(node.output[0])
    if before is None or not _is_reorder(before, "ReorderOutput", channels_last=True):
        return None
    if after is None or not _is_reorder(after, "ReorderInput", channels_last=True):
        return None
    if attributes_of(before).get("channels") != site.sizes[0]:
        return None
    others = [after.name, *([before.name] if around.only_reader(node.input[0]) is not None else [])]
    return Site("norm-of-blocks", node.name, site.sizes, tuple(others))


def _write_norm_of_blocks(node: onnx.NodeProto, around: Surroundings, attributes: Mapping[str, int]) -> None:
    if "blocked" not in attributes:
        _write_norm(node, around, attributes)
        return
    site, before = _read_norm_of_blocks(node, around), around.producer(node.input[0])
    after = around.only_reader(node.output[0])
    assert site is not None, "only sites are written"
    assert before is not None
    assert after is not None
    epsilon = float(attributes_of(node).get("epsilon", _NORMS["", "LayerNormalization"].epsilon))
    chosen = {name: value for name, value in attributes.items() if name != "blocked"}
    inputs = [before.input[0], node.input[1], input_of(node, 2)]
    for other in (before, after):
        if other.name in site.others:
            around.drop(other)
    replace(node, "NchwcNorm", inputs, list(after.output), {"block": around.block, "epsilon": epsilon, **chosen})


def _is_reorder(node: onnx.NodeProto, operator: str, *, channels_last: bool) -> bool:
    """Whether a node brings a tensor out of its blocks, or into them, where the plain one has its channels there."""
    return (node.domain, node.op_type) == (BLOCKED, operator) and channels_last == bool(
        attributes_of(node).get("channels_last", 0)
    )


# --- Gelu -------------------------------------------------------------------------------------------------------------

_GELUS = (("", "Gelu"), (CONTRIB, "Gelu"), (CONTRIB, "BiasGelu"))


def _read_gelu(node: onnx.NodeProto, around: Surroundings) -> Site | None:
    """By the error function, with or without a constant bias."""
    if (node.domain, node.op_type) not in _GELUS or attributes_of(node).get("approximate", "none") != "none":
        return None
    bias = input_of(node, 1)
    shape = around.shape(bias) if bias else (0,)
    return Site("gelu", node.name, shape) if shape is not None and len(shape) == 1 else None


def _write_gelu(node: onnx.NodeProto, around: Surroundings, attributes: Mapping[str, int]) -> None:
    replace(node, "RowGelu", list(node.input), list(node.output), attributes)


# --- products by a constant matrix ------------------------------------------------------------------------------------

_PANEL = 64  # columns; as cext/kernels/product_op.cc has it
_NARROW = 8  # columns of a block where the runtime has no blocked tensors


def _read_product(node: onnx.NodeProto, around: Surroundings) -> Site | None:
    """x · w, or with a bias, where w is a constant matrix. ``sizes``: its height and width."""
    shape = around.shape(input_of(node, 1))
    if shape is None or len(shape) != 2 or not min(shape):
        return None
    if (node.domain, node.op_type) == ("", "MatMul"):
        return Site("product", node.name, shape)
    if (node.domain, node.op_type) != ("", "Gemm"):
        return None
    given = attributes_of(node)
    if given.get("transA", 0) or given.get("alpha", 1.0) != 1.0 or given.get("beta", 1.0) != 1.0:
        return None
    depth, columns = shape[::-1] if given.get("transB", 0) else shape
    bias = input_of(node, 2)
    if bias and around.shape(bias) not in ((columns,), (1, columns)):
        return None
    return Site("product", node.name, (depth, columns))


def _write_product(node: onnx.NodeProto, around: Surroundings, attributes: Mapping[str, int]) -> None:
    site, turned = _read_product(node, around), bool(attributes_of(node).get("transB", 0))
    assert site is not None, "only sites are written"
    columns, block = site.sizes[1], around.block or _NARROW

    def panels(values: np.ndarray) -> np.ndarray:
        w = values.T if turned else values
        w = np.pad(w, ((0, 0), (0, -columns % _PANEL)))
        return w.reshape(w.shape[0], -1, _PANEL).transpose(1, 0, 2)

    def blocks(values: np.ndarray) -> np.ndarray:
        w = values.T if turned else values
        return w.reshape(w.shape[0] // block, block, -1, block).transpose(2, 0, 1, 3)

    in_blocks = "strassen" in attributes
    form = f"blocks of {block}" if in_blocks else "panels"
    weights = around.other_form(
        node.input[1], f"{form} of columns" if turned else form, blocks if in_blocks else panels
    )
    own = dict(attributes) if in_blocks else {"columns": columns, **attributes}
    inputs = [node.input[0], weights, input_of(node, 2)]
    replace(node, "BlockedProduct" if in_blocks else "RowProduct", inputs, list(node.output), own)


# --- depthwise and grouped convolutions of plain tensors --------------------------------------------------------------


def _plain_convolution(node: onnx.NodeProto, around: Surroundings) -> tuple[dict[str, Any], tuple[int, ...]] | None:
    """The attributes and the weights' shape of a convolution of plain tensors with groups that the kernels could do."""
    if (node.domain, node.op_type) not in (("", "Conv"), (CONTRIB, "FusedConv")):
        return None
    given, shape = attributes_of(node), around.shape(input_of(node, 1)) or ()
    if (
        len(shape) != 4
        or not min(shape)
        or given.get("group", 1) == 1
        or given.get("activation", "") not in ACTIVATIONS
    ):
        return None
    if _pads(given, shape[2:]) is None or shape[0] % given["group"]:
        return None
    return given, shape


def _steps(given: Mapping[str, Any], kernel: tuple[int, ...]) -> dict[str, Any]:
    found = {name: list(given.get(name, (1, 1))) for name in ("strides", "dilations")}
    return {**convolution_attributes(given), "pads": _pads(given, kernel), **found}


def _read_depthwise(node: onnx.NodeProto, around: Surroundings) -> Site | None:
    """One channel a group. ``sizes``: channels, the kernel's height and width, the strides."""
    found = _plain_convolution(node, around)
    if found is None or found[1][1] != 1 or found[1][0] != found[0]["group"]:
        return None
    given, shape = found
    return Site("depthwise", node.name, (shape[0], *shape[2:], *given.get("strides", (1, 1))))


def _write_depthwise(node: onnx.NodeProto, around: Surroundings, attributes: Mapping[str, int]) -> None:
    steps = _steps(attributes_of(node), (around.shape(node.input[1]) or ())[2:])
    replace(node, "DepthwiseConv", list(node.input), list(node.output), {**steps, **attributes})


def _read_grouped(node: onnx.NodeProto, around: Surroundings) -> Site | None:
    """2, 4 or 8 channels a group between blocked tensors: its input was put in plain order, its output is put in
    blocks again, and nothing else reads either. ``sizes``: channels, those of a group, the kernel, the strides.
    """
    found = _plain_convolution(node, around)
    if found is None or not around.block or input_of(node, 3):
        return None
    given, (channels, members, *kernel) = found
    if members not in (2, 4, 8) or channels != members * given["group"] or channels % around.block:
        return None
    before, after = around.producer(node.input[0]), around.only_reader(node.output[0])
    if before is None or not _is_reorder(before, "ReorderOutput", channels_last=False):
        return None
    if after is None or not _is_reorder(after, "ReorderInput", channels_last=False):
        return None
    others = [after.name, *([before.name] if around.only_reader(node.input[0]) is not None else [])]
    sizes = (channels, members, *kernel, *given.get("strides", (1, 1)))
    return Site("grouped", node.name, sizes, tuple(others))


def _write_grouped(node: onnx.NodeProto, around: Surroundings, attributes: Mapping[str, int]) -> None:
    site, given = _read_grouped(node, around), attributes_of(node)
    before, after = around.producer(node.input[0]), around.only_reader(node.output[0])
    assert site is not None, "only sites are written"
    assert before is not None
    assert after is not None
    block = around.block

    def blocks(values: np.ndarray) -> np.ndarray:
        return values.reshape(-1, block, *values.shape[1:]).transpose(0, 3, 4, 2, 1)

    weights = around.other_form(node.input[1], f"blocks of {block}", blocks)
    steps = _steps(given, site.sizes[2:4])
    for other in (before, after):
        if other.name in site.others:
            around.drop(other)
    replace(
        node, "NchwcGrouped", [before.input[0], weights, input_of(node, 2)], list(after.output), {**steps, **attributes}
    )


KINDS: Mapping[str, KernelKind] = {
    one.name: one
    for one in (
        *(KernelKind(kind, _read_convolution, _write_convolution) for kind in dict.fromkeys(TAPS.values())),
        KernelKind("convolution-other", _read_unrolled, _write_unrolled),
        KernelKind("norm-of-blocks", _read_norm_of_blocks, _write_norm_of_blocks),
        KernelKind("norm", _read_norm, _write_norm),
        KernelKind("gelu", _read_gelu, _write_gelu),
        KernelKind("product", _read_product, _write_product),
        KernelKind("depthwise", _read_depthwise, _write_depthwise),
        KernelKind("grouped", _read_grouped, _write_grouped),
    )
}
