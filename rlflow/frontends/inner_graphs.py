"""The bodies of If, Loop and Scan as models of their own, and put back into their node.

What a body reads from around it is an input of that model. So nothing of the weights around is in it twice, and nothing
is folded that the body does not own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
from onnx import helper

from rlflow.frontends import dimensions, inference, scopes, symbolic
from rlflow.frontends.inference import ValueType

__all__ = ["rewritten_bodies"]

#: A model in, a model with the same inputs and outputs out; ``None`` where there is nothing to change.
Improve = Callable[[onnx.ModelProto], onnx.ModelProto | None]


def rewritten_bodies(model: onnx.ModelProto, improve: Improve) -> tuple[onnx.ModelProto | None, int]:
    """A copy of ``model`` whose bodies, inner ones first, are what ``improve`` made of them, and how many were changed;
    ``(None, 0)`` where none was. Bodies that read values of unknown type stay as they came.
    """
    if not _has_bodies(model.graph):
        return None, 0
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    types = _types(copy)
    taken, count = scopes.all_names(copy.graph), 0
    for node in copy.graph.node:
        for body in scopes.bodies(node):
            count += _rewrite(body, copy, types, improve, taken)
    return (copy, count) if count else (None, 0)


def _has_bodies(graph: onnx.GraphProto) -> bool:
    return any(True for node in graph.node for _ in scopes.bodies(node))


def _types(model: onnx.ModelProto) -> dict[str, ValueType]:
    """Of all values of the main graph, its weights too; open dimensions by the names that the model gives them."""
    bare = inference.bare_model(model)
    symbols = dimensions.name_dims(bare)
    inference.name_dimensions(bare, symbols)  # as where the model is read: the same question has the same answer
    found, _ = inference.infer(bare, frozenset(name for name, place in symbols.items() if place is None))
    return found | {one.name: (one.data_type, list(one.dims)) for one in model.graph.initializer}


def _rewrite(
    body: onnx.GraphProto, around: onnx.ModelProto, types: Mapping[str, ValueType], improve: Improve, taken: set[str]
) -> int:
    """Change ``body`` in place; how many bodies were changed, those inside it included."""
    operators = sum(node.op_type != "Constant" for node in body.node)
    if operators < 2 and not _has_bodies(body):
        return 0  # a single operator is left as it is, and to look at it would take as long as for a model
    alone = _alone(body, around, types)
    if alone is None:
        return 0
    inner, count = rewritten_bodies(alone, improve)
    better = improve(alone if inner is None else inner)
    if better is None and inner is None:
        return 0
    found = (better or inner or alone).graph
    own = scopes.all_names(body)
    names = {name: _fresh(name, taken) for name in sorted(scopes.all_names(found) - own) if name in taken}
    taken |= scopes.all_names(found)
    for node in found.node:
        _rename(node, names)
    for tensor in found.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for parts, others in ((body.node, found.node), (body.initializer, found.initializer)):
        del parts[:]
        parts.extend(others)
    made = {name for node in body.node for name in node.output}
    kept = [info for info in body.value_info if info.name in made]
    del body.value_info[:]
    body.value_info.extend(kept)
    return count + (better is not None)


def _alone(body: onnx.GraphProto, around: onnx.ModelProto, types: Mapping[str, ValueType]) -> onnx.ModelProto | None:
    """The body as a model; ``None`` where it cannot be one."""
    made = {name for node in body.node for name in node.output if name}
    free = list(dict.fromkeys(scopes.free_names(body)))
    if body.sparse_initializer or any(info.name not in made for info in body.output):
        return None  # an output that is an input, or comes from outside, has no node to be written by
    if any(not info.type.tensor_type.elem_type for info in body.input):
        return None
    if any(not types.get(name, inference.UNKNOWN)[0] for name in free):
        return None
    model = onnx.ModelProto(ir_version=around.ir_version)
    model.opset_import.extend(around.opset_import)
    model.functions.extend(around.functions)
    model.graph.CopyFrom(body)
    model.graph.name = body.name or "body"
    model.graph.input.extend(_info(name, types[name]) for name in free)
    return model


def _info(name: str, known: ValueType) -> onnx.ValueInfoProto:
    kind, dims = known
    shape = None if dims is None else [symbolic.unquote(one) if isinstance(one, str) else one for one in dims]
    return helper.make_tensor_value_info(name, kind, shape)


def _fresh(name: str, taken: set[str]) -> str:
    number = next(number for number in range(1, len(taken) + 2) if f"{name}_{number}" not in taken)
    taken.add(f"{name}_{number}")
    return f"{name}_{number}"


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    node.name = names.get(node.name, node.name)
    for values in (node.input, node.output):
        for slot, name in enumerate(values):
            if name in names:
                values[slot] = names[name]
    scopes.rename_captures(node, names)
