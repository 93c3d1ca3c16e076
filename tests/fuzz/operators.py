"""Models of one operator of ONNX, any of any version, with numbers at their limits in its attributes, its extents and
its constant operands: what shape inference multiplies, divides by, and steps through.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, defs, helper, numpy_helper

_LARGEST = (1 << 63) - 1
_EDGES = (_LARGEST, -_LARGEST - 1, 1 << 62, 1 << 32, 1 << 31, (1 << 31) - 1, -(1 << 31), 1000, 0, -1)
_TYPES = (
    TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL,
    TensorProto.INT8, TensorProto.UINT8, TensorProto.STRING,
)  # fmt: skip
_WORDS = ("SAME_UPPER", "VALID", "NOTSET", "ij,jk->ik", "i...->i", "linear", "stretch", "Tanh", "")
_MOST_OPERANDS = 6


@cache
def _versions() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            found[schema.name].append(schema)
    return found


def seeds(count: int = 12) -> list[bytes]:
    """The models of the first ``count`` seeds."""
    return [one_operator(b"", Random(seed)) for seed in range(count)]


def one_operator(_: bytes, random: Random) -> bytes:
    """A serialised model of one operator, or of one and a Reshape that reads it; what it is made of is not read."""
    schema = random.choice(_versions()[random.choice(sorted(_versions()))])
    graph = onnx.GraphProto(name="one")
    count = random.randint(schema.min_input, max(schema.min_input, min(schema.max_input, _MOST_OPERANDS)))
    reads = [_operand(graph, f"i{number}", random) for number in range(count)]
    outputs = [f"o{number}" for number in range(max(1, schema.min_output))]
    node = helper.make_node(schema.name, reads, outputs)
    for known in schema.attributes.values():
        if known.required or random.random() < 0.5:
            _set(node, known, random)
    graph.node.append(node)
    if random.random() < 0.3:
        graph.input.append(_tensor("read", [4, 6], random))
        graph.node.append(helper.make_node("Reshape", ["read", outputs[0]], ["o"]))
        outputs = ["o"]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    imports = [helper.make_opsetid("", schema.since_version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def _operand(graph: onnx.GraphProto, name: str, random: Random) -> str:
    """Adds an input, a constant, or the shape of an input; or gives the empty name of an operand that is left out."""
    kind = random.random()
    if kind < 0.35:
        numbers = [_number(random) for _ in range(random.randint(0, 3))]
        array = np.array(numbers or _number(random), np.int64)
        graph.initializer.append(numpy_helper.from_array(array, name))
    elif kind < 0.5:
        graph.input.append(_tensor(f"of_{name}", _extents(random), random))
        graph.node.append(helper.make_node("Shape", [f"of_{name}"], [name]))
    elif kind < 0.55:
        return ""
    else:
        graph.input.append(_tensor(name, None if kind < 0.6 else _extents(random), random))
    return name


def _tensor(name: str, dims: list[Any] | None, random: Random) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, random.choice(_TYPES), dims)


def _extents(random: Random) -> list[Any]:
    odd = random.random() < 0.3
    choices = (0, 1, 2, 3, 4, 8, "N", 1 << 32, _LARGEST) if odd else (1, 2, 3, 4)
    return [random.choice(choices) for _ in range(random.randint(0, 5))]


def _number(random: Random) -> int:
    return random.choice(_EDGES) if random.random() < 0.5 else random.randint(-3, 5)


def _set(node: onnx.NodeProto, known: Any, random: Random) -> None:
    floats = (0.0, 1.0, -1.0, 1e30, float("nan"))
    kinds = AttributeProto
    made = {
        kinds.INT: lambda: _number(random),
        kinds.INTS: lambda: [_number(random) for _ in range(random.choice((0, 1, 2, 2, 4, 8)))],
        kinds.FLOAT: lambda: random.choice(floats),
        kinds.FLOATS: lambda: [random.choice(floats) for _ in range(random.randint(0, 4))],
        kinds.STRING: lambda: random.choice(_WORDS),
        kinds.STRINGS: lambda: [random.choice(_WORDS) for _ in range(random.randint(0, 2))],
        kinds.TENSOR: lambda: numpy_helper.from_array(np.array([_number(random)], np.int64)),
    }
    kind = int(known.type)
    if kind in made:
        node.attribute.append(helper.make_attribute(known.name, made[kind](), attr_type=kind))
