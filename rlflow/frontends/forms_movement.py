"""Adaptors of the operators that move elements: axes, shapes, sizes and pads that ONNX writes as attributes or as
operands.

Which opset wants which: https://github.com/onnx/onnx/blob/main/docs/Changelog.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rlflow.frontends import symbolic
from rlflow.frontends.constants import Array, is_float, numpy_dtype
from rlflow.frontends.forms import (
    Canonical,
    Declined,
    Form,
    Source,
    Target,
    form,
    plain_attrs,
    read_plain,
    write_plain,
)
from rlflow.frontends.symbolic import Dim


def static_ints(source: Source, name: str, slot: int, since: int) -> list[Dim] | None:
    """A list that is attribute ``name`` before opset ``since`` and operand ``slot`` from then on; None where it is
    absent.

    Raises Declined where it is a tensor whose elements are not all known as integers.
    """
    if source.opset < since:
        values = source.attrs.get(name)
        return None if values is None else list(values)
    if not source.has(slot):
        return None
    values = source.ints(slot)
    if values is None or not symbolic.is_plain(values):
        raise Declined(f"its {name} are computed")
    return values


def dynamic(source: Source, *drop: str) -> Canonical:
    """The node with its tensor operands, for lists that are not known."""
    return read_plain(source, drop=drop)


# -- Squeeze, Unsqueeze
# ------------------------------------------------------------------------------------------------------------------


def read_axes(source: Source) -> Canonical:
    try:
        axes = static_ints(source, "axes", 1, 13)
    except Declined:
        return dynamic(source)
    if source.op == "Squeeze" and not axes:
        axes = None  # the runtime takes an empty list for an absent one: all extents of 1 go
    return Canonical(source.op, {} if axes is None else {"axes": axes}, [0])


def write_axes(target: Target) -> Form:
    return list_operand(target, "axes", 13)


def list_operand(target: Target, name: str, since: int) -> Form:
    """Writes list attribute ``name`` as it is before opset ``since``, and as the second operand from then on."""
    if len(target.inputs) > 1 and target.opset < since:
        raise Declined(f"opset {target.opset} takes {name} as an attribute only, and they are computed here")
    if name not in target.attrs or target.opset < since:
        return write_plain(target)
    rest = {key: value for key, value in target.attrs.items() if key != name}
    return write_plain(target, attrs=rest, inputs=[target.inputs[0], target.ints(target.attrs[name])])


# -- Reshape, Expand, Tile
# ---------------------------------------------------------------------------------------------------------------


def read_reshape(source: Source) -> Canonical:
    wanted = source.ints(1)
    if wanted is None or not symbolic.is_known(wanted):
        return dynamic(source)
    attrs = {"shape": wanted, **({"allowzero": 1} if source.attrs.get("allowzero", 0) else {})}
    return Canonical("Reshape", attrs, [0], otherwise=dynamic(source))


def spell_shape(wanted: Sequence[Dim], shape: Sequence[Dim] | None) -> tuple[list[int], bool] | None:
    """(ONNX target shape, allowzero) for a result shape, or None where ONNX's 0 and -1 cannot say it."""
    spelled = [
        dim if isinstance(dim, int) else 0 if _copied(dim, axis, shape) else -1 for axis, dim in enumerate(wanted)
    ]
    if spelled.count(-1) > 1:
        return None
    if 0 not in wanted:
        return spelled, False
    # A real extent of zero: "as it was" says it too where the operand has a zero in the same place; else zeros must be
    # literal.
    copies = all(
        dim != 0 or (shape is not None and axis < len(shape) and shape[axis] == 0) for axis, dim in enumerate(wanted)
    )
    if copies and -1 not in spelled:
        return spelled, False
    return (spelled, True) if symbolic.is_plain(wanted) else None


def _copied(dim: Dim, axis: int, shape: Sequence[Dim] | None) -> bool:
    return shape is not None and axis < len(shape) and symbolic.equal(dim, shape[axis])


def _fails_when_empty(spelled: Sequence[int], wanted: Sequence[Dim]) -> bool:
    """Whether a -1 stands beside an open extent that is copied: the runtime refuses that where the extent is 0."""
    return -1 in spelled and any(
        one == 0 and not isinstance(dim, int) for one, dim in zip(spelled, wanted, strict=True)
    )


def write_reshape(target: Target) -> Form:
    if "shape" not in target.attrs:
        return write_plain(target)
    wanted = target.attrs["shape"]
    spelled = spell_shape(wanted, target.shapes[0])
    if spelled is not None and _fails_when_empty(spelled[0], wanted):
        with contextlib.suppress(Declined):  # where an extent is not one of the inputs', it cannot be computed
            return write_plain(target, attrs={}, inputs=[target.inputs[0], target.dims(wanted)])
    if spelled is None:
        return write_plain(target, attrs={}, inputs=[target.inputs[0], target.dims(wanted)])
    values, allowzero = spelled
    if allowzero and target.opset < 14:
        raise Declined(
            f"opset {target.opset} cannot reshape to {list(wanted)}: a zero means 'as it was' before opset 14"
        )
    return write_plain(
        target, attrs={"allowzero": 1} if allowzero else {}, inputs=[target.inputs[0], target.ints(values)]
    )


def read_expand(source: Source) -> Canonical:
    wanted = source.ints(1)
    if wanted is None or not symbolic.is_known(wanted):
        return dynamic(source)
    return Canonical("Expand", {"shape": wanted}, [0], otherwise=dynamic(source))


def write_expand(target: Target) -> Form:
    if "shape" not in target.attrs:
        return write_plain(target)
    return write_plain(target, attrs={}, inputs=[target.inputs[0], target.dims(target.attrs["shape"])])


def read_tile(source: Source) -> Canonical:
    repeats = source.ints(1)
    if repeats is None or not symbolic.is_plain(repeats):
        return dynamic(source)
    return Canonical("Tile", {"repeats": repeats}, [0])


def write_tile(target: Target) -> Form:
    return list_operand(target, "repeats", 6)


# -- Slice -------------------------------------------------------------------------------------------------------------
# ------------------


def read_slice(source: Source) -> Canonical:
    slots = {"starts": 1, "ends": 2, "axes": 3, "steps": 4}
    try:
        lists = {name: static_ints(source, name, slot, 10) for name, slot in slots.items()}
    except Declined:
        return dynamic(source)
    attrs = {name: [_clamped(value) for value in values] for name, values in lists.items() if values is not None}
    return Canonical("Slice", attrs, [0])


def _clamped(value: Dim) -> Dim:
    """A bound within what the core takes for an integer; beyond that it can only mean "to the end"."""
    return max(value, 1 - (1 << 62)) if isinstance(value, int) else value


def write_slice(target: Target) -> Form:
    if "starts" not in target.attrs:
        if target.opset < 10:
            raise Declined(
                f"opset {target.opset} takes the bounds of a Slice as attributes only, and they are computed here"
            )
        return write_plain(target)
    attrs = dict(target.attrs)
    steps = attrs.pop("steps", [])
    stepped = any(step != 1 for step in steps)
    if target.opset < 10:
        if stepped:
            raise Declined(f"opset {target.opset} has no steps in Slice, which are {steps} here")
        return write_plain(target, attrs=attrs)
    operands = [target.inputs[0], *(target.ints(attrs[name]) for name in ("starts", "ends", "axes"))]
    return write_plain(target, attrs={}, inputs=[*operands, target.ints(steps)] if stepped else operands)


# -- Split -------------------------------------------------------------------------------------------------------------
# ------------------


def read_split(source: Source) -> Canonical:
    attrs: dict[str, object] = {"axis": source.attrs.get("axis", 0)}
    try:
        sizes = static_ints(source, "split", 1, 13)
    except Declined:
        return Canonical("Split", attrs, [0, 1], source.outputs)
    if sizes is not None:
        attrs["split"] = sizes
    elif "num_outputs" in source.attrs:
        attrs["num_outputs"] = source.attrs["num_outputs"]
    return Canonical("Split", attrs, [0], source.outputs)


def write_split(target: Target) -> Form:
    attrs = dict(target.attrs)
    parts = attrs.pop("num_outputs", None)
    if "split" in attrs or len(target.inputs) > 1:
        return list_operand(replace(target, attrs=attrs), "split", 13)
    if target.opset >= 18:
        attrs["num_outputs"] = target.outputs if parts is None else parts
    return write_plain(target, attrs=attrs)


# -- Pad ---------------------------------------------------------------------------------------------------------------
# ------------------


def read_pad(source: Source) -> Canonical:
    mode = source.attrs.get("mode", "constant")
    if source.opset < 11:
        return Canonical(
            "Pad", {"mode": mode, "pads": source.attrs["pads"], "value": source.attrs.get("value", 0.0)}, [0]
        )
    pads, value = source.ints(1), _pad_value(source)
    axes = source.ints(3) if source.has(3) else []
    if pads is None or value is None or axes is None or not symbolic.is_plain([*pads, *axes]):
        return dynamic(source)
    return Canonical("Pad", {"mode": mode, "pads": pads, "value": value, **({"axes": axes} if axes else {})}, [0])


def _pad_value(source: Source) -> float | None:
    """The padding as a number, or None where it is computed or no double can hold it."""
    if not source.has(2):
        return 0.0
    value = source.const(2)
    if value is None or value.size != 1 or value.dtype.kind in "OUSc":
        return None
    number = float(value.reshape(-1)[0])
    return number if is_float(source.dtype(2)) or abs(number) < 1 << 53 else None


def write_pad(target: Target) -> Form:
    if len(target.inputs) > 1:
        if target.opset < 11:
            raise Declined(f"opset {target.opset} takes the pads as an attribute only, and they are computed here")
        return write_plain(target)
    if target.opset < 11:
        if not (target.dtypes[0] == 0 or is_float(target.dtypes[0])):
            raise Declined(f"opset {target.opset} pads floating-point tensors only")
        return write_plain(target)
    operands = [target.inputs[0], target.ints(target.attrs["pads"])]
    value = target.attrs.get("value", 0.0)
    if value != 0:  # NaN differs too
        operands.append(target.constant(scalar(value, target.dtypes[0])))
    rest = {key: value for key, value in target.attrs.items() if key not in ("pads", "value")}
    if "axes" in rest:
        axes = target.ints(rest.pop("axes"))
        operands.extend([""] * (3 - len(operands)) + [axes])
    return write_plain(target, attrs=rest, inputs=operands)


def scalar(value: float, dtype: int) -> Array:
    """A rank-0 array of an ONNX element type. Raises Declined where the type is not known."""
    if dtype == 0:
        raise Declined("its element type is not known")
    return np.asarray(value).astype(numpy_dtype(dtype))


# -- Resize, Upsample
# --------------------------------------------------------------------------------------------------------------------

_OLD_RESIZE = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def read_upsample(source: Source) -> Canonical:
    scales = source.attrs.get("scales") if source.opset < 9 else _floats(source, 1)
    return _old_resize(source, scales)


def _floats(source: Source, slot: int) -> list[float] | None:
    values = source.const(slot) if source.has(slot) else None
    return (
        None if values is None or not values.size else [float(str(np.float32(value))) for value in values.reshape(-1)]
    )


def _old_resize(source: Source, scales: Sequence[float] | None) -> Canonical:
    """Upsample, and Resize of opset 10: pixel i reads from i / scale, the nearest one below it."""
    if scales is None:
        raise Declined("its scales are computed")
    if any(scale < 1 for scale in scales):
        raise Declined("before opset 11 runtimes disagree on what it means to scale down")
    mode = source.attrs.get("mode", "nearest")
    if mode == "bilinear":
        mode = "linear"
    attrs = {"mode": mode, "scales": list(scales), "coordinate_transformation_mode": "asymmetric"}
    if mode == "nearest":
        attrs["nearest_mode"] = "floor"
    return Canonical("Resize", attrs, [0])


def read_resize(source: Source) -> Canonical:
    if source.opset < 11:
        return _old_resize(source, _floats(source, 1))
    attrs = plain_attrs(source, "Resize")
    whole = Canonical("Resize", attrs, [slot if source.has(slot) else None for slot in range(source.inputs)])
    if attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        roi = _floats(source, 1)
        if roi is None:
            return whole
        attrs = {**attrs, "roi": roi}
    scales, sizes = _floats(source, 2), source.ints(3)
    if scales is not None:
        return Canonical("Resize", {**attrs, "scales": scales}, [0], otherwise=whole)
    if sizes and symbolic.is_plain(sizes):
        return Canonical("Resize", {**attrs, "sizes": sizes}, [0], otherwise=whole)
    return whole


def write_resize(target: Target) -> Form:
    attrs = dict(target.attrs)
    scales, sizes, roi = (attrs.pop(name, None) for name in ("scales", "sizes", "roi"))
    if not scales and not sizes:
        return write_plain(target)
    if target.opset < 11:
        return _write_old_resize(target, attrs, scales)
    empty = "" if target.opset >= 13 else target.constant(np.zeros(0, np.float32))
    region = target.constant(np.asarray(roi, np.float32)) if roi else empty
    if scales:
        operands = [target.inputs[0], region, target.constant(np.asarray(scales, np.float32))]
    else:
        operands = [target.inputs[0], region, empty, target.dims(sizes)]
    return write_plain(target, attrs=attrs, inputs=operands)


def _write_old_resize(target: Target, attrs: dict[str, object], scales: Sequence[float] | None) -> Form:
    mode = attrs.get("mode", "nearest")
    matters = ["coordinate_transformation_mode", *(["nearest_mode"] if mode == "nearest" else [])]
    if (
        scales is None
        or min(scales) < 1
        or mode == "cubic"
        or any(attrs.get(name) != _OLD_RESIZE[name] for name in matters)
    ):
        raise Declined(
            f"opset {target.opset} has no Resize of this kind, only Upsample by scales with asymmetric coordinates"
        )
    written = {} if mode == "nearest" else {"mode": mode}
    if target.opset == 10:
        return Form("Resize", written, [target.inputs[0], target.constant(np.asarray(scales, np.float32))])
    if target.opset == 9:
        return Form("Upsample", written, [target.inputs[0], target.constant(np.asarray(scales, np.float32))])
    return Form("Upsample", {**written, "scales": list(scales)}, [target.inputs[0]])


form("Squeeze", "Unsqueeze", read=read_axes, write=write_axes)
form("Reshape", read=read_reshape, write=write_reshape)
form("Expand", read=read_expand, write=write_expand)
form("Tile", read=read_tile, write=write_tile)
form("Slice", read=read_slice, write=write_slice)
form("Split", read=read_split, write=write_split)
form("Pad", read=read_pad, write=write_pad)
form("Upsample", read=read_upsample)
form("Resize", read=read_resize, write=write_resize)
