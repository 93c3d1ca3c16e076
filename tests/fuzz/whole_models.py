"""Models of several operators: seeds, changes in their own terms, and how one is read."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def _value(name: str, shape: list[Any], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], tensors: dict[str, Any], **more: Any) -> bytes:
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()]
    graph = helper.make_graph(nodes, "main", inputs, outputs, weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, **more).SerializeToString()


def seeds() -> list[bytes]:
    random = np.random.default_rng(0)
    w = {name: random.standard_normal((4, 4)).astype(np.float32) for name in ("w", "v")}
    node, x, y = helper.make_node, _value("x", ["N", 4]), _value("y", ["N", 4])
    plain = [
        node("MatMul", ["x", "w"], ["a"], name="m"),
        node("Gemm", ["a", "v", "b"], ["c"], alpha=0.5),
        node("Shape", ["c"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "zero1"], ["n1"]),
        node("Concat", ["n1", "four"], ["to"], axis=0),
        node("Reshape", ["c", "to"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[1, 0]),
        node("Transpose", ["t"], ["u"], perm=[1, 0]),
        node("Clip", ["u", "", "six"], ["y"]),
    ]
    constants = {
        **w, "b": np.ones(4, np.float32), "zero": np.int64(0), "zero1": np.array([0]), "four": np.array([4]),
        "six": np.float32(6),
    }  # fmt: skip
    body = helper.make_graph([node("MatMul", ["x", "w"], ["p"])], "body", [], [_value("p", ["N", 4])])
    other = helper.make_graph(
        [node("Constant", [], ["q"], value_floats=[1.0, 2.0, 3.0, 4.0])], "o", [], [_value("q", [4])]
    )
    branches = [node("If", ["flag"], ["y"], then_branch=body, else_branch=other)]
    image = [
        node("Conv", ["i", "k"], ["a"], pads=[1, 1, 1, 1], strides=[1, 2]),
        node("BatchNormalization", ["a", "g", "g", "g", "g"], ["c"]),
        node("Relu", ["c"], ["d"]),
        node("Split", ["d", "parts"], ["e", "f"], axis=1),
        node("MaxPool", ["e"], ["h"], kernel_shape=[2, 2]),
        node("Resize", ["f", "", "scales"], ["r"]),
        node("Slice", ["r", "starts", "ends", "axes"], ["y"]),
    ]
    kernel = {
        "k": random.standard_normal((4, 3, 3, 3)).astype(np.float32), "g": np.ones(4, np.float32),
        "parts": np.array([2, 2]), "scales": np.array([1, 1, 2, 2], np.float32), "starts": np.array([0]),
        "ends": np.array([2]), "axes": np.array([2]),
    }  # fmt: skip
    called = helper.make_function("own", "F", ["a"], ["b"], [node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)])
    fills = [
        node("ConstantOfShape", ["big"], ["z"]),
        node("Concat", ["z", "z"], ["l"], axis=0),
        node("Expand", ["x", "to"], ["y"]),
    ]
    return [
        _model(plain, [x], [y], constants),
        _model(branches, [x, _value("flag", [], TensorProto.BOOL)], [_value("y", [])], w),
        _model(image, [_value("i", [1, 3, 8, 8])], [_value("y", [1, 2, 2, 8]), _value("h", [])], kernel),
        _model([node("F", ["x"], ["y"], domain="own")], [x], [y], {}, functions=[called]),
        _model(fills, [x], [_value("l", []), y], {"big": np.array([9, 9]), "to": np.array([1, 4])}),
    ]


def changed(data: bytes, random: Random) -> bytes:
    """A model with fields of its messages removed, repeated, exchanged or set to odd values."""
    model = onnx.ModelProto()
    model.ParseFromString(data)
    messages = list(_messages(model))
    for _ in range(random.choice((1, 1, 2, 4))):
        _change(random.choice(messages), random)
    return model.SerializeToString()


def _messages(message: Any) -> Any:
    yield message
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for inner in value if hasattr(value, "add") else [value]:
                yield from _messages(inner)


_NUMBERS = (0, 1, -1, 2, 7, 99, 1 << 31, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 40)
_TEXTS = ("", "x", "y", "w", "N", "if", "Loop", "Relu", "Constant", "axis", "a" * 3000, "../x", "ü", "'", "N*M", "own")


def _change(message: Any, random: Random) -> None:
    fields = list(message.DESCRIPTOR.fields)
    field = random.choice([one for one, _ in message.ListFields()] or fields)
    value = getattr(message, field.name)
    if hasattr(value, "__len__") and hasattr(value, "extend") and len(value):
        kind = random.randrange(4)
        if kind == 0:
            del value[random.randrange(len(value))]
        elif kind == 1:
            value.extend([value[random.randrange(len(value))]])
        elif kind == 2:
            copied = [value[random.randrange(len(value))] for _ in value]
            del value[:]
            value.extend(copied)
        elif field.message_type is None:
            value[random.randrange(len(value))] = _scalar(field, random)
    elif field.message_type is not None or random.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _scalar(field, random))


def _scalar(field: Any, random: Random) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        text = random.choice(_TEXTS)
        return text.encode() if field.type == field.TYPE_BYTES else text
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return random.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    if field.cpp_type == field.CPPTYPE_ENUM:
        return random.choice([one.number for one in field.enum_type.values])
    number = random.choice(_NUMBERS)
    if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32):
        return number % (1 << 31)
    return number if field.cpp_type == field.CPPTYPE_INT64 else abs(number)


def read(data: bytes, _: Any) -> None:
    from rlflow.frontends import load_model, save_model

    imported = load_model(data)
    misread = [note for note in imported.notes if "are not those of its operator" in note]
    assert not misread or _onnx_objects(imported.origin.model), misread[0]
    save_model(imported, imported.graph)


def _onnx_objects(model: onnx.ModelProto) -> bool:
    """Whether onnx's checker or its strict inference finds fault with a node. If not, a node that was not understood is
    sound, and the reader is at fault. Inference that follows wrong numbers ends the process, so it has one of its own.
    """
    from rlflow import forks

    def judge() -> bytes:
        context = onnx.checker.C.CheckerContext()
        context.ir_version = model.ir_version
        context.opset_imports = {one.domain: one.version for one in model.opset_import}
        for node in model.graph.node:
            onnx.checker.check_node(node, context)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        return b""

    try:
        forks.apart(judge)
    except forks.Failed:
        return True
    return False
