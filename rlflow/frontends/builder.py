"""A small ONNX writer: nodes by name, seeded weights, and each operator in the form that the chosen opset wants.

The zoo's builders are functions over a :class:`ModelBuilder`; they never see a protobuf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import pi, prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from rlflow.errors import GraphError, UsageError
from rlflow.frontends.constants import outlined
from rlflow.frontends.inference import bare_model
from rlflow.frontends.stats import infer_types

OLDEST_OPSET = 11
# The newest container version written: runtimes of recent years read it, and no operator here needs a newer one.
NEWEST_IR = 10
INT64_MAX = int(np.iinfo(np.int64).max)
# A model without values still holds those of the small weights: the checker reads them, and they cost nothing.
_SMALL_WEIGHT = 4096

# Operand of an operator -> (input position, first opset that takes it as an input and not an attribute, element type).
_Operand = tuple[int, int, type]
_AXES_SINCE_18 = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
                  "ReduceLogSumExp", "ReduceSumSquare")  # fmt: skip
_OPERANDS: dict[str, dict[str, _Operand]] = {
    **{op: {"axes": (1, 18, np.int64)} for op in _AXES_SINCE_18},
    "ReduceSum": {"axes": (1, 13, np.int64)},
    "Squeeze": {"axes": (1, 13, np.int64)},
    "Unsqueeze": {"axes": (1, 13, np.int64)},
    "Split": {"split": (1, 13, np.int64)},
    "Slice": {
        "starts": (1, 10, np.int64),
        "ends": (2, 10, np.int64),
        "axes": (3, 10, np.int64),
        "steps": (4, 10, np.int64),
    },
    "Clip": {"min": (1, 11, np.float32), "max": (2, 11, np.float32)},
    "Pad": {"pads": (1, 11, np.int64), "value": (2, 11, np.float32), "axes": (3, 18, np.int64)},
    "Dropout": {"ratio": (1, 12, np.float32)},
    "Reshape": {"shape": (1, 5, np.int64)},
    "Expand": {"shape": (1, 8, np.int64)},
    "Tile": {"repeats": (1, 6, np.int64)},
    "TopK": {"k": (1, 10, np.int64)},
    "Resize": {"roi": (1, 11, np.float32), "scales": (2, 11, np.float32), "sizes": (3, 11, np.int64)},
}


class ModelBuilder:
    """Writes one ONNX model, node by node, in topological order.

    ``opset``: 11 to the newest that the installed onnx knows. ``ir_version``: derived from the opset where None.
    ``seed``: a weight is a function of (seed, its full name, its shape) and of nothing else, so that it does not depend
    on the order of construction, and a layer keeps its weights when another layer is added. ``values=False``: large
    weights get a shape and no numbers, which is enough to count with (rlflow.frontends.stats) and for nothing else.
    Raises UsageError for an opset or a seed that makes no sense.
    """

    def __init__(
        self, name: str, opset: int = 17, ir_version: int | None = None, seed: int = 0, *, values: bool = True
    ) -> None:
        newest = onnx.defs.onnx_opset_version()
        if not OLDEST_OPSET <= opset <= newest:
            raise UsageError(
                f"While building model '{name}': opset {opset} was asked for; expected {OLDEST_OPSET} to {newest}."
            )
        if seed < 0:
            raise UsageError(f"While building model '{name}': seed {seed} was given; expected zero or more.")
        self.name = name
        self.opset = opset
        self.seed = seed
        self.values = values
        self.ir_version = _ir_version(opset) if ir_version is None else ir_version
        self._scope: tuple[str, ...] = ()
        self._inputs: dict[str, onnx.ValueInfoProto] = {}
        self._outputs: list[str] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._values: set[str] = set()
        self._uses: dict[str, int] = {}
        self._metadata: dict[str, str] = {}

    # -- names

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefixes the names of nodes and weights made inside with ``name`` and a dot."""
        outer = self._scope
        self._scope = (*outer, name)
        try:
            yield
        finally:
            self._scope = outer

    def full_name(self, name: str) -> str:
        """``name`` with the prefixes of the open scopes."""
        return ".".join((*self._scope, name))

    def _unique(self, name: str) -> str:
        count = self._uses.get(name, 0)
        self._uses[name] = count + 1
        candidate = name if count == 0 else f"{name}_{count}"
        return candidate if candidate not in self._values else self._unique(name)

    def _claim(self, name: str) -> str:
        if name in self._values:
            raise GraphError(
                f"While building model '{self.name}': the name '{name}' is given to two values; expected one."
            )
        self._values.add(name)
        return name

    # -- inputs, outputs, facts

    def input(self, name: str, dtype: npt.DTypeLike, shape: Sequence[int | str]) -> str:
        """Declares a graph input of a numpy ``dtype``; a string in ``shape`` is a symbolic dimension."""
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs[self._claim(name)] = helper.make_tensor_value_info(name, element, list(shape))
        return name

    def output(self, value: str, name: str | None = None) -> str:
        """Makes ``value`` a graph output, renamed to ``name`` where given; returns its name (build() types it)."""
        self._require(value, "as a graph output")
        if name is not None and name != value:
            self._claim(name)
            value = self._rename(value, name)
        self._outputs.append(value)
        return value

    def metadata(self, key: str, text: str) -> None:
        """Adds one entry to the model's metadata_props."""
        self._metadata[key] = text

    def _rename(self, value: str, name: str) -> str:
        if value in self._inputs or value in self._weights or value in self._outputs:
            self._nodes.append(
                helper.make_node("Identity", [value], [name], name=self._unique(self.full_name("Identity")))
            )
            return name
        for node in self._nodes:
            for names in (node.input, node.output):
                for position, current in enumerate(names):
                    if current == value:
                        names[position] = name
        self._values.discard(value)
        return name

    # -- weights

    def weight(self, name: str, shape: Sequence[int], fan_in: int, gain: float = 1.0) -> str:
        """A float32 weight, normal, of standard deviation gain / sqrt(fan_in), to keep a signal's variance."""
        if not self.values and prod(shape) > _SMALL_WEIGHT:
            full = self._claim(self.full_name(name))
            self._weights[full] = outlined(full, shape, onnx.TensorProto.FLOAT)
            return full
        draw = self._generator(name).standard_normal(tuple(shape), dtype=np.float32)
        return self.parameter(name, draw * np.float32(gain / sqrt(fan_in)))

    def bias(self, name: str, size: int, spread: float = 0.1) -> str:
        """A float32 [size] vector, normal around zero: a bias, a BN beta or a BN mean."""
        return self.parameter(name, self._generator(name).standard_normal(size, dtype=np.float32) * np.float32(spread))

    def scale(self, name: str, size: int, center: float = 1.0, spread: float = 0.2) -> str:
        """A float32 [size] vector, uniform in center · (1 ± spread), so never zero for a spread below 1: a gamma."""
        uniform = self._generator(name).random(size, dtype=np.float32)
        return self.parameter(name, np.float32(center) * (1 + np.float32(spread) * (2 * uniform - 1)))

    def variance(self, name: str, size: int) -> str:
        """A float32 [size] vector, uniform in [0.5, 1.5): a BN running variance."""
        return self.parameter(name, np.float32(0.5) + self._generator(name).random(size, dtype=np.float32))

    def parameter(self, name: str, array: npt.NDArray[Any]) -> str:
        """An initialiser with the given values; returns its full name (with scope)."""
        full = self._claim(self.full_name(name))
        self._weights[full] = numpy_helper.from_array(np.ascontiguousarray(array), full)
        return full

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        """A Constant node (not a parameter): shapes, axes, epsilons, scalars. Equal constants are one node."""
        array = np.asarray(value, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._claim(self._unique("constant"))
            self._nodes.append(
                helper.make_node("Constant", [], [name], name=name, value=numpy_helper.from_array(array))
            )
            self._constants[key] = name
        return self._constants[key]

    def _generator(self, name: str) -> np.random.Generator:
        digest = hashlib.sha256(self.full_name(name).encode()).digest()
        words = [int(word) for word in np.frombuffer(digest, dtype="<u4")]
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, *words])))

    # -- nodes

    def node(self, op: str, inputs: str | Sequence[str], *, name: str | None = None, **attrs: Any) -> str:
        """Adds a node with one output and returns the output's name.

        ``attrs`` are the operator's attributes, and also the operands that some opsets take as constant inputs (axes of
        Squeeze, Unsqueeze and Reduce*, split of Split, starts/ends/axes/steps of Slice, min/max of Clip,
        pads/value/axes of Pad, shape of Reshape and Expand, …): write them as attributes always, the form that the
        opset wants is chosen here. LayerNormalization below opset 17 and Gelu below opset 20 are written out in older
        operators. Raises GraphError for an unknown operator, value or attribute.
        """
        return self.node_outputs(op, inputs, 1, name=name, **attrs)[0]

    def node_outputs(
        self, op: str, inputs: str | Sequence[str], outputs: int, *, name: str | None = None, **attrs: Any
    ) -> tuple[str, ...]:
        """Like node(), for an operator with several outputs (Split, TopK, …); returns all their names."""
        operands = [inputs] if isinstance(inputs, str) else list(inputs)
        for operand in operands:
            self._require(operand, f"by a {op} node")
        if op == "LayerNormalization" and self.opset < 17:
            return (_layer_normalization(self, operands, **attrs),)
        if op == "Gelu" and self.opset < 20:
            return (_gelu(self, operands[0], **attrs),)
        attrs = self._settle(op, operands, outputs, attrs)
        self._check_schema(op, attrs)
        label = self._unique(self.full_name(name or op))
        results = [self._claim(label if outputs == 1 else f"{label}.{index}") for index in range(outputs)]
        self._nodes.append(helper.make_node(op, operands, results, name=label, **attrs))
        return tuple(results)

    def _require(self, value: str, purpose: str) -> None:
        if value and value not in self._values:
            raise GraphError(
                f"While building model '{self.name}': value '{value}' is used {purpose} but nothing makes it."
            )

    def _settle(self, op: str, operands: list[str], outputs: int, attrs: dict[str, Any]) -> dict[str, Any]:
        """Moves attributes that this opset takes as inputs to ``operands`` (changed in place); returns the others."""
        moved = _OPERANDS.get(op, {})
        left = {key: value for key, value in attrs.items() if key not in moved or self.opset < moved[key][1]}
        for key, value in attrs.items():
            if key in left:
                continue
            position, _, dtype = moved[key]
            operands.extend([""] * (position + 1 - len(operands)))
            operands[position] = self.constant(value, dtype)
        if op == "Split" and "split" not in attrs and self.opset >= 18:
            left.setdefault("num_outputs", outputs)
        if op == "Resize" and self.opset < 13:  # roi and scales are not optional yet; an empty tensor says "not given"
            operands[1:3] = [value or self.constant([], np.float32) for value in (*operands[1:3], "", "")[:2]]
        if op in ("Softmax", "LogSoftmax") and self.opset < 13 and left.get("axis") != -1:
            raise GraphError(
                f"While building model '{self.name}': {op} below opset 13 flattens all axes "
                "from its axis on; expected axis=-1."
            )
        return left

    def _check_schema(self, op: str, attrs: dict[str, Any]) -> None:
        where = f"While building model '{self.name}' for opset {self.opset}"
        try:
            schema = onnx.defs.get_schema(op, self.opset)
        except onnx.defs.SchemaError as error:
            raise GraphError(f"{where}: operator '{op}' does not exist there.") from error
        unknown = sorted(set(attrs) - set(schema.attributes))
        if unknown:
            raise GraphError(
                f"{where}: operator '{op}' has no attribute {', '.join(unknown)}; "
                f"expected some of {sorted(schema.attributes)}."
            )

    # -- the end

    def build(self) -> onnx.ModelProto:
        """The finished model, checked by onnx with full shape inference. Raises GraphError where it is refused."""
        if not self._outputs:
            raise GraphError(f"While building model '{self.name}': it has no output; call output() before build().")
        graph = helper.make_graph(self._nodes, self.name, list(self._inputs.values()), [])
        graph.output.extend(onnx.ValueInfoProto(name=output) for output in self._outputs)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=self.ir_version
        )
        model.producer_name = "rlflow"
        helper.set_model_props(model, self._metadata)
        model.graph.initializer.extend(self._weights.values())
        types = infer_types(model)
        for info in model.graph.output:
            if info.name not in types:
                raise GraphError(
                    f"While building model '{self.name}': the type of output '{info.name}' cannot be inferred; "
                    "expected operators and operand types that ONNX knows."
                )
            info.type.CopyFrom(types[info.name])
        try:  # without the large weights, whose values the checker does not read but would copy twice
            onnx.checker.check_model(bare_model(model), full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise GraphError(f"While building model '{self.name}': onnx refuses it: {error}") from error
        return model


def _layer_normalization(builder: ModelBuilder, operands: list[str], axis: int = -1, epsilon: float = 1e-5) -> str:
    if axis >= 0:
        raise GraphError(
            f"While building model '{builder.name}': LayerNormalization below opset 17 needs a negative axis; "
            f"found {axis}."
        )
    axes = list(range(axis, 0))
    centred = builder.node("Sub", [operands[0], builder.node("ReduceMean", operands[0], axes=axes, keepdims=1)])
    square = builder.node("Pow", [centred, builder.constant(2.0, np.float32)])
    variance = builder.node("ReduceMean", square, axes=axes, keepdims=1)
    deviation = builder.node("Sqrt", builder.node("Add", [variance, builder.constant(epsilon, np.float32)]))
    scaled = builder.node("Mul", [builder.node("Div", [centred, deviation]), operands[1]])
    return builder.node("Add", [scaled, operands[2]]) if len(operands) > 2 else scaled


def _gelu(builder: ModelBuilder, x: str, approximate: str = "none") -> str:
    if approximate == "tanh":  # Hendrycks & Gimpel 2016, equation for the fast form
        cube = builder.node(
            "Mul", [builder.node("Pow", [x, builder.constant(3.0, np.float32)]), builder.constant(0.044715, np.float32)]
        )
        inner = builder.node("Mul", [builder.node("Add", [x, cube]), builder.constant(sqrt(2.0 / pi), np.float32)])
        gate = builder.node("Tanh", inner)
    else:
        gate = builder.node("Erf", builder.node("Div", [x, builder.constant(sqrt(2.0), np.float32)]))
    weighted = builder.node("Mul", [x, builder.node("Add", [gate, builder.constant(1.0, np.float32)])])
    return builder.node("Mul", [weighted, builder.constant(0.5, np.float32)])


def _ir_version(opset: int) -> int:
    """The IR version of the first onnx release that had ``opset``, at most NEWEST_IR."""
    released = min((row[1] for row in helper.VERSION_TABLE if row[2] == opset), default=NEWEST_IR)
    return min(released, NEWEST_IR)
