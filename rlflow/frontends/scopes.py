"""What has to be known about protobuf nodes and scopes: who reads which name, in which order, and whether a node is a
pure function.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx
from onnx import defs

from rlflow.errors import ModelError, brief

_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
_KNOWN_DOMAINS = frozenset({"", "ai.onnx.ml"})
FunctionKey = tuple[str, str, str]


def domain_of(node: onnx.NodeProto) -> str:
    """The operator's domain; "ai.onnx" is another name of the default one."""
    return "" if node.domain == "ai.onnx" else node.domain


def opset_versions(model: onnx.ModelProto) -> dict[str, int]:
    """Domain -> version of a model's opset imports, with the default domain as ""."""
    return {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of all bodies below them, outer ones first."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from all_nodes(body.node)


def key_of(node: onnx.NodeProto) -> FunctionKey:
    """What names the function that a node calls, if it calls one."""
    return node.domain, node.op_type, node.overload


def captures(node: onnx.NodeProto) -> list[str]:
    """Names that a node's bodies read from the scopes around it, in order of first use."""
    found: dict[str, None] = {}
    for body in bodies(node):
        found.update(dict.fromkeys(free_names(body)))
    return list(found)


def free_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Names that a body reads from the scopes around it, as often as it reads them."""
    own = _own_names(graph)
    for node in graph.node:
        for name in (*node.input, *captures(node)):
            if name and name not in own:
                yield name
    yield from (info.name for info in graph.output if info.name and info.name not in own)


def own_names(node: onnx.NodeProto) -> set[str]:
    """Names that belong to a node's bodies, at every depth: their inputs, initialisers and what their nodes make. An
    outer value of such a name cannot be read everywhere in there.
    """
    found: set[str] = set()
    for body in bodies(node):
        found.update(_own_names(body))
        for inner in body.node:
            found |= own_names(inner)
    return found


def _own_names(graph: onnx.GraphProto) -> set[str]:
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {tensor.values.name for tensor in graph.sparse_initializer}
    return own | {name for node in graph.node for name in node.output}


def rename_captures(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Changes, in place, the outer names that a node's bodies read. A body's own names win over the outer ones, so the
    new names must not be among :func:`own_names`.
    """
    for body in bodies(node):
        own = _own_names(body)
        visible = {old: new for old, new in names.items() if old not in own}
        for inner in body.node:
            for slot, name in enumerate(inner.input):
                if name in visible:
                    inner.input[slot] = visible[name]
            rename_captures(inner, visible)
        for info in body.output:
            info.name = visible.get(info.name, info.name)


def all_names(graph: onnx.GraphProto) -> set[str]:
    """Every name of a value or node in a graph and in all bodies below it."""
    found = {info.name for infos in (graph.input, graph.output, graph.value_info) for info in infos}
    found |= {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        found |= {node.name, *node.input, *node.output}
        for body in bodies(node):
            found |= all_names(body)
    found.discard("")
    return found


def sort_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The graph's nodes in topological order, as near to the file's order as possible.

    Raises ModelError for a value made twice, a name that nothing makes, or a cycle.
    """
    producer = _producers(graph)
    given = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    waiting: list[int] = []
    users: dict[int, list[int]] = {}
    for index, node in enumerate(graph.node):
        needed: set[int] = set()
        for name in (*node.input, *captures(node)):
            if name in producer:
                needed.add(producer[name])
            elif name and name not in given:
                raise ModelError(
                    f"While reading graph '{brief(graph.name)}': {describe(node)} reads '{brief(name)}', which is "
                    "neither an input, an initialiser nor the output of a node."
                )
        waiting.append(len(needed))
        for other in needed:
            users.setdefault(other, []).append(index)
    order = _release(waiting, users)
    if len(order) < len(graph.node):
        stuck = sorted(set(range(len(graph.node))) - set(order))
        names = ", ".join(describe(graph.node[index]) for index in stuck[:4])
        raise ModelError(
            f"While reading graph '{brief(graph.name)}': {len(stuck)} nodes wait for each other in a cycle, "
            f"among them {names}."
        )
    return [graph.node[index] for index in order]


def _producers(graph: onnx.GraphProto) -> dict[str, int]:
    producer: dict[str, int] = {}
    given = {info.name: "a graph input" for info in graph.input}
    given.update({tensor.name: "an initialiser" for tensor in graph.initializer})
    for index, node in enumerate(graph.node):
        for name in node.output:
            if not name:
                continue
            first = describe(graph.node[producer[name]]) if name in producer else given.get(name)
            if first is not None:
                raise ModelError(
                    f"While reading graph '{brief(graph.name)}': the name '{brief(name)}' belongs to two values, "
                    f"made by {first} and by {describe(node)}."
                )
            producer[name] = index
    return producer


def _release(waiting: list[int], users: Mapping[int, list[int]]) -> list[int]:
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users.get(index, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    return order


def describe(node: onnx.NodeProto) -> str:
    """A node for a sentence: its name and operator."""
    operator = f"{node.domain}.{node.op_type}" if domain_of(node) else node.op_type
    if node.name:
        return f"node '{brief(node.name)}' ({brief(operator)})"
    return f"the {brief(operator)} node that makes '{brief(', '.join(node.output))}'"


@dataclass
class Purity:
    """Whether nodes are pure functions of their operands: the same inputs always give the same outputs.

    Random operators, operators of unknown domains and whatever contains one are not; a function of the model is what
    its body is.
    """

    functions: Mapping[FunctionKey, onnx.FunctionProto]
    _known: dict[FunctionKey, bool] = field(default_factory=dict)

    def __call__(self, node: onnx.NodeProto) -> bool:
        """True for a deterministic operator of a standard domain whose bodies are pure too."""
        key = key_of(node)
        if key in self.functions:
            return self._function(key)
        if domain_of(node) not in _KNOWN_DOMAINS or node.op_type in _RANDOM:
            return False
        if node.op_type == "Dropout":  # a training run draws a mask; inference is told apart before anyone asks
            return False
        if not defs.has(node.op_type, domain_of(node)):
            return False
        return all(self(inner) for body in bodies(node) for inner in body.node)

    def _function(self, key: FunctionKey) -> bool:
        if key not in self._known:
            self._known[key] = (
                False  # a function that calls itself is refused by ONNX; should it come here, it is not pure
            )
            self._known[key] = all(self(inner) for inner in self.functions[key].node)
        return self._known[key]


def function_table(model: onnx.ModelProto) -> dict[FunctionKey, onnx.FunctionProto]:
    """(domain, name, overload) -> function of a model."""
    return {(function.domain, function.name, function.overload): function for function in model.functions}


def payload(node: onnx.NodeProto, opsets: Iterable[tuple[str, int]], functions: Iterable[onnx.FunctionProto]) -> str:
    """A digest of all that an opaque node computes: operator, attributes, bodies, which operands are present, opset
    versions.

    The names of its own operands and outputs, its name and its texts are left out. Where the node or one of its bodies
    may call a function of the model, the model's functions are part of it.
    """
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    for text in ("name", "doc_string", "metadata_props", "input", "output"):
        bare.ClearField(text)
    pattern = ["x" if name else "" for name in node.input] + ["|"] + ["y" if name else "" for name in node.output]
    state = hashlib.blake2b(digest_size=16)
    state.update(repr((tuple(opsets), pattern)).encode())
    state.update(bare.SerializeToString(deterministic=True))
    if domain_of(node) or any(True for _ in bodies(node)):
        for function in functions:
            state.update(function.SerializeToString(deterministic=True))
    return state.hexdigest()


def walk(graph: onnx.GraphProto, visit: Callable[[onnx.NodeProto], None]) -> None:
    """Calls ``visit`` for each node of a graph and of all bodies below it, outer ones first."""
    for node in graph.node:
        visit(node)
        for body in bodies(node):
            walk(body, visit)
