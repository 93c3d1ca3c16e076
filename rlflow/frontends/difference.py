"""What two models differ in, node by node.

Nodes are paired in three ways, one after the other: those that say the same of the same names; those that compute the
same (operator, attributes and, down to the inputs and the weights' contents, operands), whatever they are called; and
those that make a value of the same name, which are then *changed*. What is left is removed or added.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import onnx
from onnx import helper, numpy_helper

__all__ = ["ModelDifference", "NodeChange", "difference"]

_LONG = 120


@dataclass(frozen=True)
class NodeChange:
    """One node of A that is another one in B. ``what``: each thing that differs, as a sentence."""

    before: int
    after: int
    what: tuple[str, ...]


@dataclass(frozen=True)
class ModelDifference:
    """Positions are those in ``model.graph.node``; ``same`` pairs those of A and B. ``others``: what differs
    besides nodes (inputs, outputs, opsets, metadata, weights), as sentences.
    """

    same: tuple[tuple[int, int], ...]
    changed: tuple[NodeChange, ...]
    removed: tuple[int, ...]
    added: tuple[int, ...]
    others: tuple[str, ...] = ()
    operators_before: Mapping[str, int] = field(default_factory=dict)
    operators_after: Mapping[str, int] = field(default_factory=dict)

    @property
    def none(self) -> bool:
        """Whether nothing differs."""
        return not (self.changed or self.removed or self.added or self.others)

    def to_dict(self, before: onnx.ModelProto, after: onnx.ModelProto) -> dict[str, Any]:
        """Plain values for JSON, nodes by name."""
        a, b = before.graph.node, after.graph.node
        return {
            "same": len(self.same),
            "changed": [
                {**asdict(one), "before": label(a[one.before]), "after": label(b[one.after])} for one in self.changed
            ],
            "removed": [label(a[one]) for one in self.removed],
            "added": [label(b[one]) for one in self.added],
            "others": list(self.others),
            "operators_before": dict(self.operators_before),
            "operators_after": dict(self.operators_after),
        }


def label(node: onnx.NodeProto) -> str:
    """A node in a word or two: operator, and its name or the first value that it makes."""
    name = node.name or next((output for output in node.output if output), "")
    return f"{operator(node)} {name}".strip()


def operator(node: onnx.NodeProto) -> str:
    """The operator, with its domain where that is not ONNX's own."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def difference(before: onnx.ModelProto, after: onnx.ModelProto) -> ModelDifference:
    """What ``after`` differs in from ``before``; neither is changed."""
    a, b = _Read(before), _Read(after)
    pairs: list[tuple[int, int]] = []
    left, right = list(range(len(a.nodes))), list(range(len(b.nodes)))
    for key in (_Read.by_name, _Read.by_content):
        found = _paired(a, b, left, right, key)
        pairs += found
        left, right = _without(left, {one for one, _ in found}), _without(right, {one for _, one in found})
    made = {output: place for place in right for output in b.nodes[place].output if output}
    changed: list[NodeChange] = []
    for place in left:
        twin = next((made[output] for output in a.nodes[place].output if output in made), None)
        if twin is not None and twin not in {one.after for one in changed}:
            changed.append(NodeChange(place, twin, tuple(_what(a, b, place, twin))))
    return ModelDifference(
        tuple(sorted(pairs)),
        tuple(changed),
        tuple(_without(left, {one.before for one in changed})),
        tuple(_without(right, {one.after for one in changed})),
        tuple(_others(before, after, a, b)),
        a.operators,
        b.operators,
    )


def _without(places: Sequence[int], taken: set[int]) -> list[int]:
    return [place for place in places if place not in taken]


def _paired(
    a: _Read, b: _Read, left: Sequence[int], right: Sequence[int], key: Callable[[_Read, int], str]
) -> list[tuple[int, int]]:
    """Pairs of nodes with one key, in the order of the file."""
    waiting: dict[str, list[int]] = defaultdict(list)
    for place in reversed(right):
        waiting[key(b, place)].append(place)
    return [(place, waiting[mine].pop()) for place in left if waiting[mine := key(a, place)]]


class _Read:
    """A model's nodes, and what is asked of them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = list(model.graph.node)
        self.operators = dict(Counter(map(operator, self.nodes)).most_common())
        self.weights = {one.name: _digest_of(one) for one in model.graph.initializer}
        self.weights |= {
            node.output[0]: hashlib.blake2b(node.attribute[0].SerializeToString(), digest_size=16).hexdigest()
            for node in self.nodes
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and node.attribute
        }
        values = {one.name: f"input {one.name}" for one in model.graph.input} | self.weights
        self.content: list[str] = []
        for node in self.nodes:
            operands = [values.get(name, name) for name in node.input]
            mine = _hashed(operator(node), _attributes(node), operands)
            self.content.append(mine)
            values.update({name: f"{mine}:{number}" for number, name in enumerate(node.output) if name})

    def by_name(self, place: int) -> str:
        """What a node says, of the names that it says it of; weights by content."""
        node = self.nodes[place]
        operands = [self.weights.get(name, name) for name in node.input]
        return _hashed(operator(node), _attributes(node), operands, list(node.output))

    def by_content(self, place: int) -> str:
        """What a node computes."""
        return self.content[place]


def _hashed(*parts: Any) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _attributes(node: onnx.NodeProto) -> list[tuple[str, bytes]]:
    return sorted((one.name, one.SerializeToString(deterministic=True)) for one in node.attribute)


def _digest_of(tensor: onnx.TensorProto) -> str:
    """Of type, shape and contents; of a tensor in another file, of the place where it is."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        content = repr([(one.key, one.value) for one in tensor.external_data]).encode()
    else:
        content = tensor.raw_data or numpy_helper.to_array(tensor).tobytes()
    return _hashed(tensor.data_type, list(tensor.dims), hashlib.blake2b(content, digest_size=16).hexdigest())


def _what(a: _Read, b: _Read, before: int, after: int) -> Iterator[str]:
    """What differs in two nodes that make a value of the same name."""
    old, new = a.nodes[before], b.nodes[after]
    if operator(old) != operator(new):
        yield f"{operator(old)} -> {operator(new)}"
    was, now = ({one.name: _shown(one) for one in node.attribute} for node in (old, new))
    for name in sorted({*was, *now}):
        if was.get(name) != now.get(name):
            yield f"{name}: {was.get(name, 'not given')} -> {now.get(name, 'not given')}"
    if list(old.input) != list(new.input):
        yield f"inputs: {', '.join(old.input)} -> {', '.join(new.input)}"
    for name in old.input:
        if name in a.weights and name in b.weights and name in new.input and a.weights[name] != b.weights[name]:
            yield f"the weight {name} has other contents"
    if list(old.output) != list(new.output):
        yield f"outputs: {', '.join(old.output)} -> {', '.join(new.output)}"


def _shown(attribute: onnx.AttributeProto) -> str:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, (onnx.TensorProto, onnx.GraphProto)):
        return f"a {type(value).__name__.removesuffix('Proto').lower()} of {value.ByteSize()} bytes"
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"


def _others(before: onnx.ModelProto, after: onnx.ModelProto, a: _Read, b: _Read) -> Iterator[str]:
    for kind, old, new in (
        ("input", before.graph.input, after.graph.input),
        ("output", before.graph.output, after.graph.output),
    ):
        was, now = ({one.name: _type(one) for one in values} for values in (old, new))
        for name in [*was, *(name for name in now if name not in was)]:
            if was.get(name) != now.get(name):
                yield f"{kind} {name}: {was.get(name, 'none')} -> {now.get(name, 'none')}"
    opsets = [{one.domain or "ai.onnx": one.version for one in model.opset_import} for model in (before, after)]
    for domain in sorted({*opsets[0], *opsets[1]}):
        if opsets[0].get(domain) != opsets[1].get(domain):
            yield f"opset {domain}: {opsets[0].get(domain, 'none')} -> {opsets[1].get(domain, 'none')}"
    if before.ir_version != after.ir_version:
        yield f"IR version: {before.ir_version} -> {after.ir_version}"
    keys = [{one.key: one.value for one in model.metadata_props} for model in (before, after)]
    for key in sorted({*keys[0], *keys[1]}):
        if keys[0].get(key) != keys[1].get(key):
            state = "added" if key not in keys[0] else "removed" if key not in keys[1] else "changed"
            yield f"metadata {key}: {state}"
    old_weights, new_weights = Counter(a.weights.values()), Counter(b.weights.values())
    gone, fresh = sum((old_weights - new_weights).values()), sum((new_weights - old_weights).values())
    if gone or fresh:
        yield f"weights and constants: {gone} gone, {fresh} new"


def _type(value: onnx.ValueInfoProto) -> str:
    """A value's type and shape in a word."""
    if not value.type.HasField("tensor_type"):
        return str(value.type.WhichOneof("value") or "unknown")
    tensor = value.type.tensor_type
    dims = ",".join(
        one.dim_param or (str(one.dim_value) if one.HasField("dim_value") else "?") for one in tensor.shape.dim
    )
    return f"{onnx.TensorProto.DataType.Name(tensor.elem_type).lower()}[{dims}]"
