"""Adaptors of the operators that compute: reductions, softmax, clipping, normalisation, products, casts, generators."""

from __future__ import annotations

import numpy as np

from rlflow.frontends.constants import is_float, numpy_dtype, onnx_dtype
from rlflow.frontends.forms import (
    Canonical,
    Declined,
    Form,
    Operand,
    Source,
    Target,
    form,
    plain_attrs,
    read_plain,
    write_plain,
)
from rlflow.frontends.forms_movement import dynamic, list_operand, static_ints

_REDUCTIONS = tuple(
    f"Reduce{name}" for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
)
# Without axes and with noop_with_empty_axes these return their operand; of the others the standard has changed its
# mind.
_PLAIN_NOOP = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"})


def _axes_since(op: str) -> int:
    return 13 if op == "ReduceSum" else 18


def read_reduce(source: Source) -> Canonical:
    keep = source.attrs.get("keepdims", 1)
    try:
        axes = static_ints(source, "axes", 1, _axes_since(source.op))
    except Declined:
        return dynamic(source)
    if not axes:
        if source.attrs.get("noop_with_empty_axes", 0):
            if source.op not in _PLAIN_NOOP:
                raise Declined("it reduces no axis, which means different things to different runtimes")
            return Canonical("Identity", {}, [0])
        return Canonical(source.op, {"keepdims": keep}, [0])
    return Canonical(source.op, {"keepdims": keep, "axes": axes}, [0])


def write_reduce(target: Target) -> Form:
    axes = target.attrs.get("axes")
    if axes is None or len(target.inputs) > 1:
        return list_operand(target, "axes", _axes_since(target.op))
    rest = {name: value for name, value in target.attrs.items() if name != "axes"}
    if not axes:
        if target.rank(0) != 0:
            raise Declined("it reduces no axis, which opsets before 18 cannot say")
        return write_plain(target, attrs=rest)  # all axes of a scalar are none
    if target.rank(0) == len(axes) and target.opset >= _axes_since(target.op):
        return write_plain(target, attrs=rest)
    return list_operand(target, "axes", _axes_since(target.op))


def read_softmax(source: Source) -> Canonical:
    if source.opset >= 13:
        return read_plain(source)
    # Before opset 13 all dimensions from the axis on are one: the same as one axis where the others have extent 1.
    shape = source.shape(0)
    if shape is None:
        raise Declined("before opset 13 it flattens a shape that is not known")
    axis = source.attrs.get("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    if axis < 0:
        raise Declined("its axis is not one of its operand's")
    wide = [index for index in range(axis, len(shape)) if shape[index] != 1]
    if len(wide) > 1 or not axis < len(shape):
        raise Declined("before opset 13 it normalises over several dimensions together")
    return Canonical(source.op, {"axis": wide[0] if wide else axis}, [0])


def write_softmax(target: Target) -> Form:
    if target.opset >= 13:
        return write_plain(target)
    shape, axis = target.shapes[0], target.attrs["axis"]
    if shape is not None and axis < 0:
        axis += len(shape)
    if shape is None or any(dim != 1 for dim in shape[axis + 1 :]):
        raise Declined(
            f"opset {target.opset} normalises over all dimensions from an axis on; here only axis {axis} is meant"
        )
    return write_plain(target, attrs={"axis": axis})


def read_clip(source: Source) -> Canonical:
    if source.opset >= 11:
        return read_plain(source)
    dtype = source.dtype(0)
    if dtype == 0:
        raise Declined("its element type is not known")
    limits: list[Operand] = []
    for name in ("min", "max"):
        value = source.attrs.get(name)
        extreme = value is None or abs(value) >= float(np.finfo(np.float32).max)
        limits.append(None if extreme else np.asarray(np.float32(value)).astype(numpy_dtype(dtype)))
    while limits and limits[-1] is None:
        limits.pop()
    return Canonical("Clip", {}, [0, *limits])


def write_clip(target: Target) -> Form:
    if target.opset >= 11:
        return write_plain(target)
    attrs = {}
    for name, slot in (("min", 1), ("max", 2)):
        if slot >= len(target.inputs) or not target.inputs[slot]:
            continue
        value = target.known(slot)
        if value is None or value.size != 1:
            raise Declined(
                f"opset {target.opset} takes the bounds of a Clip as attributes only, and {name} is computed here"
            )
        attrs[name] = float(value.reshape(-1)[0])
    return Form("Clip", attrs, [target.inputs[0]])


def read_batch_norm(source: Source) -> Canonical:
    if source.attrs.get("training_mode", 0):
        raise Declined("it is in training mode")
    if source.opset < 14 and source.declared > 1:
        raise Declined("it has the outputs of training mode")
    if source.attrs.get("spatial", 1) != 1:
        raise Declined("its statistics are per element, not per channel")
    return read_plain(source, drop=("momentum", "spatial", "training_mode", "consumed_inputs", "is_test"))


def read_dropout(source: Source) -> Canonical:
    if source.outputs > 1:
        raise Declined("its mask is used")
    if source.opset >= 12 and source.has(2):
        training = source.const(2)
        if training is None or bool(training.reshape(-1)[0]):
            raise Declined("it is in training mode")
    return Canonical("Identity", {}, [0])


def read_gemm(source: Source) -> Canonical:
    form = read_plain(source)
    addend = source.const(2) if source.opset < 11 else None
    if addend is not None and addend.size == 1 and not addend.any():
        return Canonical("Gemm", form.attrs, form.inputs[:2])  # there only because the addend was not optional
    return form


def write_gemm(target: Target) -> Form:
    if target.opset >= 11 or len(target.inputs) > 2:
        return write_plain(target)
    zero = target.constant(np.zeros(1, numpy_dtype(target.dtypes[0])))  # the addend was not optional before opset 11
    return write_plain(target, inputs=[*target.inputs, zero])


def read_top_k(source: Source) -> Canonical:
    if source.opset >= 10:
        return read_plain(source, drop=("k",))
    k = np.asarray([source.attrs["k"]], np.int64)
    return Canonical("TopK", plain_attrs(source, "TopK", drop=("k",)), [0, k], 2)


def write_top_k(target: Target) -> Form:
    if target.opset >= 10:
        return write_plain(target)
    k = target.known(1)
    if k is None or not target.attrs.get("largest", 1):
        raise Declined(f"opset {target.opset} takes k as an attribute and the largest elements only")
    return Form("TopK", {"axis": target.attrs["axis"], "k": int(k.reshape(-1)[0])}, [target.inputs[0]])


def read_scatter(source: Source) -> Canonical:
    return read_plain(source, op="ScatterElements")


def write_scatter(target: Target) -> Form:
    if target.opset >= 11:
        return write_plain(target)
    return write_plain(target, op="Scatter")


def read_cast_like(source: Source) -> Canonical:
    dtype = source.dtype(1)
    if dtype == 0:
        raise Declined("the element type to cast to is not known")
    return Canonical("Cast", {**plain_attrs(source, "Cast"), "to": dtype}, [0])


def read_constant_of_shape(source: Source) -> Canonical:
    value = source.attrs.get("value", np.zeros(1, np.float32))
    if value.size != 1 or value.dtype.kind in "OUSc":
        raise Declined("its value is not one number")
    number = float(value.reshape(-1)[0])
    if not is_float(onnx_dtype(value)) and abs(number) >= 1 << 53:
        raise Declined("its value does not fit a double")
    return Canonical("ConstantOfShape", {"value": number, "dtype": onnx_dtype(value)}, [0])


def write_constant_of_shape(target: Target) -> Form:
    value = np.asarray([target.attrs["value"]]).astype(numpy_dtype(target.attrs["dtype"]))
    return write_plain(target, attrs={"value": value})


form(*_REDUCTIONS, read=read_reduce, write=write_reduce)
form("Softmax", "LogSoftmax", "Hardmax", read=read_softmax, write=write_softmax)
form("Clip", read=read_clip, write=write_clip)
form("BatchNormalization", read=read_batch_norm)
form("Dropout", read=read_dropout)
form("Gemm", read=read_gemm, write=write_gemm)
form("TopK", read=read_top_k, write=write_top_k)
form("Scatter", read=read_scatter)
form("ScatterElements", write=write_scatter)
form("CastLike", read=read_cast_like)
form("ConstantOfShape", read=read_constant_of_shape, write=write_constant_of_shape)
# Forms before these opsets mean something else than the table's rows do.
form("RoiAlign", means_since=16)
form("GridSample", means_since=20)
form("GroupNormalization", means_since=21)
form("DFT", means_since=20)
