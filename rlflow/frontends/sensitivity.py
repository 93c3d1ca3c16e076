"""Where a model changes its ways: the constants that its values are compared with, read off the nodes of an ONNX file.

Whole-model checks draw their inputs there. What stands in the bodies of If, Loop and Scan is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Largest constant operand whose elements are taken for thresholds, and how many of its values are.
_FEW, _MOST_VALUES = 4096, 6
_MOVES = frozenset(
    {
        "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Expand", "Tile",
        "Pad", "Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth", "Dropout",
    }
)  # fmt: skip
_ORDERED = frozenset({"Relu", "Clip", "Min", "Max", "LeakyRelu", "PRelu", "Where", "Concat"})
_COMPARISONS = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"})
_STEPPED = frozenset({"Sigmoid", "Tanh", "Erf", "Gelu", "Softplus", "Mish", "Swish"})
#: Operators whose result jumps: where their operand is rounded before, equals are a matter of rounding.
_JUMPS = _COMPARISONS | {
    "Floor", "Ceil", "Round", "Sign", "ArgMax", "ArgMin", "TopK", "QuantizeLinear", "DynamicQuantizeLinear", "Cast",
    "Mod", "Hardmax", "NonMaxSuppression", "NonZero", "Unique", "OneHot", "IsInf", "IsNaN",
}  # fmt: skip
_EXACT = (
    _MOVES
    | _COMPARISONS
    | {
        "Relu",
        "Clip",
        "Min",
        "Max",
        "Where",
        "Concat",
        "Neg",
        "Abs",
        "MaxPool",
        "GlobalMaxPool",
        "ReduceMax",
        "ReduceMin",
    }
    | {"Floor", "Ceil", "Round", "Sign", "Cast", "Not", "And", "Or", "Xor", "ArgMax", "ArgMin", "TopK", "Shape", "Size"}
)
#: Operand slots that sizes, places or loop counts are read from (``None``: all of them).
_STRUCTURE: dict[str, frozenset[int] | None] = {
    **dict.fromkeys(
        (
            "Reshape", "Expand", "Tile", "TopK", "Squeeze", "Unsqueeze", "CumSum", "Trilu", "BitShift", "Gather",
            "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Scatter", "OneHot",
        ),
        frozenset({1}),
    ),
    **dict.fromkeys(("Slice", "Pad", "Resize", "Upsample", "Split", "ReverseSequence"), frozenset({1, 2, 3, 4})),
    **dict.fromkeys(("Range", "ConstantOfShape", "EyeLike", "HannWindow", "HammingWindow", "BlackmanWindow"), None),
    **dict.fromkeys(("Loop", "If", "Scan", "SequenceAt", "SequenceErase", "SequenceInsert", "SplitToSequence"), None),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), frozenset({4})),
    "NonMaxSuppression": frozenset({2}),
}  # fmt: skip
#: Operators whose results are within bounds of their own, whatever comes in.
_BOUNDED = _COMPARISONS | {"Shape", "Size", "ArgMax", "ArgMin", "NonZero", "Not", "And", "Or", "Xor", "IsNaN", "IsInf"}
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})


@dataclass(frozen=True)
class Sensitivity:
    """``inputs``: thresholds carried back to a graph input, by its name. ``inside``: values of the graph and the
    thresholds that they are compared with where no such way leads back. ``exact``: whether every jump reads the inputs
    without rounding, so that equal values stay equal. ``structural``: inputs that sizes, places or divisors are read
    from. ``summed``: integer inputs that become floats. ``half``: whether floats of 16 bits occur. ``stepped``: outputs
    of functions that runtimes compute in steps of a fixed size, however small the result is.
    """

    inputs: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    inside: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    exact: bool = True
    structural: frozenset[str] = frozenset()
    summed: frozenset[str] = frozenset()
    half: bool = False
    stepped: frozenset[str] = frozenset()


def sensitivity(model: onnx.ModelProto) -> Sensitivity:
    """What the nodes of ``model`` tell; weights in other files are not needed."""
    return _Reader(model).read()


class _Reader:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.constants = dict(_constants(model.graph))
        self.fixed = {tensor.name for tensor in model.graph.initializer} | set(self.constants)
        self.inputs = {info.name for info in model.graph.input} - self.fixed
        self.producers = {name: node for node in model.graph.node for name in node.output if name}
        self.users: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        for node in model.graph.node:
            for slot, name in _reads(node):
                self.users.setdefault(name, []).append((node, slot))

    def read(self) -> Sensitivity:
        at: dict[str, set[float]] = {}
        inside: dict[str, set[float]] = {}
        for node in self.graph.node:
            for value, bounds in self._thresholds(node):
                for bound in bounds:
                    origin = self._back(value, bound)
                    if origin is not None:
                        at.setdefault(origin[0], set()).add(origin[1])
                    elif bound != 0.0:
                        inside.setdefault(value, set()).add(bound)
        reach = {name: self._reach(name) for name in self.inputs}
        return Sensitivity(
            {name: tuple(sorted(found)) for name, found in at.items()},
            {name: tuple(sorted(found)) for name, found in inside.items()},
            self._is_exact(),
            frozenset(name for name, (structural, _) in reach.items() if structural),
            frozenset(name for name, (_, summed) in reach.items() if summed),
            self._has_halves(),
            frozenset(info.name for info in self.graph.output if self._is_stepped(info.name)),
        )

    # -- thresholds

    def _thresholds(self, node: onnx.NodeProto) -> Iterator[tuple[str, list[float]]]:
        """(operand, constants that it is compared with) of one node."""
        op, attributes = node.op_type, _numbers(node)
        if op in ("Min", "Max", "Mod", "Div") or op in _COMPARISONS:
            known = [bound for name in node.input for bound in self._values(name)]
            yield from ((name, known) for name in node.input if name not in self.fixed and known)
        elif op == "Clip":
            bounds = [bound for name in node.input[1:] for bound in self._values(name)]
            yield node.input[0], bounds + [attributes[name] for name in ("min", "max") if name in attributes]
        elif op in ("Relu", "LeakyRelu", "PRelu", "Abs", "Sign", "Elu", "Selu", "Celu"):
            yield node.input[0], [0.0]
        elif op == "HardSwish":
            yield node.input[0], [-3.0, 3.0]
        elif op == "HardSigmoid":
            slope, shift = attributes.get("alpha", 0.2), attributes.get("beta", 0.5)
            yield node.input[0], [-shift / slope, (1.0 - shift) / slope] if slope else []
        elif op in ("ThresholdedRelu", "Shrink"):
            bound = attributes.get("alpha", 1.0) if op == "ThresholdedRelu" else attributes.get("lambd", 0.5)
            yield node.input[0], [-bound, bound]
        elif op in ("Floor", "Ceil", "Round"):
            yield node.input[0], [-1.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.5]
        elif op == "QuantizeLinear":
            yield (
                node.input[0],
                [limit * scale for scale in self._values(node.input[1]) for limit in (-128.0, 127.0, 255.0)],
            )

    def _values(self, name: str) -> list[float]:
        array = self.constants.get(name)
        if array is None or array.dtype.kind not in "fiu":
            return []
        found = np.unique(array[np.isfinite(array)] if array.dtype.kind == "f" else array)
        picked = found[np.linspace(0, found.size - 1, min(found.size, _MOST_VALUES)).astype(int)]
        return [float(value) for value in picked if abs(float(value)) < 1e30]

    def _back(self, value: str, bound: float) -> tuple[str, float] | None:
        """The graph input, and the number in it, at which ``value`` is ``bound``; through at most 64 nodes."""
        for _ in range(64):
            if value in self.inputs:
                return value, bound
            node = self.producers.get(value)
            step = None if node is None else self._before(node, bound)
            if step is None:
                return None
            value, bound = step
        return None

    def _before(self, node: onnx.NodeProto, bound: float) -> tuple[str, float] | None:
        op, operands = node.op_type, list(node.input)
        if op in _MOVES or op in ("Cast", "Relu", "Clip", "LeakyRelu"):
            return operands[0], bound
        if op == "Neg":
            return operands[0], -bound
        if op in ("Min", "Max", "Add", "Sub", "Mul", "Div") and len(operands) == 2:
            known = [self._values(name) for name in operands]
            if bool(known[0]) == bool(known[1]):
                return None
            second = bool(known[1])
            constant = known[1][0] if second else known[0][0]
            solved = _solve(op, bound, constant, second)
            return None if solved is None or not np.isfinite(solved) else (operands[0 if second else 1], solved)
        return None

    # -- exactness

    def _is_exact(self) -> bool:
        exact: dict[str, bool] = {}
        for node in self.graph.node:  # in topological order
            whole = all(exact.get(name, True) for name in node.input if name)
            if node.op_type in _JUMPS and not whole:
                return False
            exact |= dict.fromkeys(node.output, whole and node.op_type in _EXACT and not node.domain)
        return True

    def _is_stepped(self, value: str) -> bool:
        """Whether ``value`` is what a sigmoid or the like gave, moved or multiplied at most."""
        seen, waiting = {value}, [value]
        while waiting:
            node = self.producers.get(waiting.pop())
            if node is not None and node.op_type in _STEPPED:
                return True
            if node is not None and node.op_type in _MOVES | _ORDERED | {"Mul", "Cast"}:
                fresh = [name for name in node.input if name and name not in seen]
                seen.update(fresh)
                waiting.extend(fresh)
        return False

    # -- what an input reaches

    def _reach(self, name: str) -> tuple[bool, bool]:
        """(whether structure depends on it, whether it becomes a float)."""
        seen, waiting, summed = {name}, [name], False
        while waiting:
            for node, slot in self.users.get(waiting.pop(), ()):
                if self._is_structure(node, slot):
                    return True, summed
                summed |= node.op_type == "Cast" and _numbers(node).get("to") in _FLOATS
                if node.op_type not in _BOUNDED:
                    fresh = [out for out in node.output if out and out not in seen]
                    seen.update(fresh)
                    waiting.extend(fresh)
        return False, summed

    def _is_structure(self, node: onnx.NodeProto, slot: int) -> bool:
        if slot < 0 or (node.domain not in ("", "ai.onnx")):
            return True
        op = node.op_type
        if op in ("Div", "Mod"):  # the processor stops on a division by zero, and on the least integer by -1
            return slot == 1 or -1.0 in self._values(node.input[1]) or 0.0 in self._values(node.input[1])
        if op in _STRUCTURE:
            slots = _STRUCTURE[op]
            return slots is None or slot in slots
        return op.startswith("Reduce") and slot == 1

    def _has_halves(self) -> bool:
        kinds = {
            info.type.tensor_type.elem_type for info in (*self.graph.input, *self.graph.value_info, *self.graph.output)
        }
        kinds |= {tensor.data_type for tensor in self.graph.initializer}
        kinds |= {int(_numbers(node).get("to", 0)) for node in self.graph.node if node.op_type == "Cast"}
        return bool(kinds & _HALVES)


def _solve(op: str, bound: float, constant: float, second: bool) -> float | None:
    """The other operand's value where ``op`` gives ``bound``; ``second``: whether the constant comes second."""
    if op in ("Min", "Max"):
        return bound
    if op == "Add":
        return bound - constant
    if op == "Sub":
        return bound + constant if second else constant - bound
    if op == "Mul":
        return bound / constant if constant else None
    if second:
        return bound * constant
    return constant / bound if bound else None


def _reads(node: onnx.NodeProto) -> Iterator[tuple[int, str]]:
    """(slot, name) of what a node reads; -1 for what its subgraphs take from outside."""
    yield from ((slot, name) for slot, name in enumerate(node.input) if name)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs) if attribute.type in (attribute.GRAPH, attribute.GRAPHS) else ():
            yield from ((-1, name) for inner in body.node for _, name in _reads(inner))


def _numbers(node: onnx.NodeProto) -> dict[str, float]:
    return {
        attribute.name: attribute.f if attribute.type == attribute.FLOAT else float(attribute.i)
        for attribute in node.attribute
        if attribute.type in (attribute.FLOAT, attribute.INT)
    }


def _constants(graph: onnx.GraphProto) -> Iterator[tuple[str, np.ndarray]]:
    """Small constants by name: initialisers, and nodes that hold one."""
    named = [(tensor.name, tensor) for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    named.append((node.output[0], attribute.t))
                elif attribute.name in ("value_float", "value_int"):
                    yield node.output[0], np.asarray(helper.get_attribute_value(attribute))
    for name, tensor in named:
        if _is_small(tensor) and (tensor.data_type in _FLOATS or _is_integer(tensor.data_type)):
            yield name, np.asarray(numpy_helper.to_array(tensor)).astype(_readable(tensor.data_type))


def _is_small(tensor: onnx.TensorProto) -> bool:
    inside = tensor.data_location != TensorProto.EXTERNAL
    return inside and int(np.prod(tensor.dims, dtype=np.int64)) <= _FEW


def _is_integer(kind: int) -> bool:
    return kind in (2, 3, 4, 5, 6, 7, 12, 13)


def _readable(kind: int) -> type:
    return np.float64 if not _is_integer(kind) else (np.uint64 if kind == TensorProto.UINT64 else np.int64)
