"""Conditions of an If that shape arithmetic found constant, computed as the file computed them.

A runtime inlines an If whose condition is constant, and then checks shapes that the file's author never saw checked.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from rlflow.frontends import scopes
from rlflow.frontends.emitter import Emitter
from rlflow.frontends.imported import Origin

_LONGEST = 64


def emit(chain: list[onnx.NodeProto], origin: Origin, emitter: Emitter, constant: Callable[[str], str]) -> str:
    """Appends copies of a chain's nodes, and returns the name of its value. ``constant`` writes a constant of the file
    and names it.
    """
    renamed: dict[str, str] = {}
    for original in chain:
        copy = onnx.NodeProto()
        copy.CopyFrom(original)
        copy.name = copy.output[0] = emitter.names.fresh("condition")
        for slot, operand in enumerate(copy.input):
            known = constant(operand) if operand in origin.constants else operand
            copy.input[slot] = renamed.get(operand, known)
        renamed[original.output[0]] = copy.output[0]
        emitter.nodes.append(copy)
    return renamed[chain[-1].output[0]]


def chain_of(origin: Origin, name: str) -> list[onnx.NodeProto] | None:
    """The file's nodes that compute a value from graph inputs and constants only, in order; None where it takes more
    than that.
    """
    graph = origin.model.graph
    producers = {output: node for node in graph.node for output in node.output}
    leaves = {info.name for info in graph.input} | set(origin.constants) | {""}
    chain: list[onnx.NodeProto] = []
    done: set[str] = set()
    pending = [name]
    while pending:
        current = pending[-1]
        maker = producers.get(current)
        if current in leaves or current in done:
            pending.pop()
            continue
        if maker is None or not _is_plain(maker):
            return None
        missing = [operand for operand in maker.input if operand not in leaves and operand not in done]
        if missing:
            pending.extend(missing)
        else:
            chain.append(maker)
            done.add(current)
        if len(pending) + len(chain) > _LONGEST:
            return None
    return chain


def _is_plain(node: onnx.NodeProto) -> bool:
    """Whether it is an operator of ONNX's own with one output and no body."""
    return not scopes.domain_of(node) and len(node.output) == 1 and not any(True for _ in scopes.bodies(node))
