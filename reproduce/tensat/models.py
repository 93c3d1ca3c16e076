"""Tensat's eight models with Tensat's shapes, built through ``import taso``: graphs that rlflow can search and run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import taso
from rlflow.search import eqsat

#: In the order of Tensat's table: four that its program builds, here in code too, then files of its repository.
MODELS = ("bert", "resnext50", "nasneta", "nasrnn", "inceptionv3", "squeezenet", "vgg", "mobilenetv2")
_PADDING = ("SAME", "VALID")
_ACTIVATION = ("NONE", "SIGMOID", "RELU", "TANH")
_UNARY = ("relu", "tanh", "sigmoid", "dropout")


def build(name: str, data: Path) -> taso.PyGraph:
    """A model by its name in :data:`MODELS`; ``data`` has Tensat's files, in ``tensat_models``."""
    built = name in eqsat.BENCHMARKS
    return converted(eqsat.BENCHMARKS[name]() if built else eqsat.read_model(data / "tensat_models" / f"{name}.model"))


def converted(terms: eqsat.TermGraph) -> taso.PyGraph:
    """The graph of a term graph: ``noop`` joins its outputs. Raises ``ValueError`` for an operator of rewrites only."""
    terms = terms.trimmed()
    graph = taso.new_graph()
    values: list[taso.PyTensor | None] = []
    for term in terms.terms:
        values.append(_value(graph, terms, term, values))
    for output in _outputs(terms):
        graph.mark_output(values[output])
    return graph


def _outputs(terms: eqsat.TermGraph) -> list[int]:
    found, waiting = [], [terms.root]
    while waiting:
        term = waiting.pop()
        if terms.terms[term].head == "noop":
            waiting.extend(reversed(terms.terms[term].children))
        elif term not in found:
            found.append(term)
    return found


def _value(
    graph: taso.PyGraph, terms: eqsat.TermGraph, term: eqsat.ENode, values: Sequence[taso.PyTensor | None]
) -> taso.PyTensor | None:
    """What a term stands for; None for numbers, names and ``noop``."""
    head, children = term
    if not children or head == "noop":
        return None
    tensors = [values[child] for child in children if values[child] is not None]
    leaves = [terms.terms[child].head for child in children if values[child] is None]
    match head:
        case "input" | "weight":
            name, _, dims = leaves[0].rpartition("@")
            return getattr(graph, f"new_{head}")(dims=_numbers(dims), name=name)
        case "conv2d":
            *strides, padding, activation = map(int, leaves)
            return graph.conv2d(
                *tensors, strides=strides, padding=_PADDING[padding], activation=_ACTIVATION[activation]
            )
        case "poolmax" | "poolavg":
            *sizes, padding, activation = map(int, leaves)
            pool = graph.maxpool2d if head == "poolmax" else graph.avgpool2d
            return pool(
                *tensors,
                kernels=sizes[:2],
                strides=sizes[2:],
                padding=_PADDING[padding],
                activation=_ACTIVATION[activation],
            )
        case "matmul":
            return graph.matmul(*tensors, activation=_ACTIVATION[int(leaves[0])])
        case "concat" | "concat3" | "concat4" | "concat5":
            return graph.concat(int(leaves[0]), tensors)
        case "reshape":
            return graph.reshape(*tensors, shape=_numbers(leaves[0]))
        case "transpose":
            return graph.transpose(*tensors, perm=_numbers(leaves[0]), shuffle=bool(int(leaves[1])))
        case "ewadd" | "ewmul":
            return (graph.add if head == "ewadd" else graph.mul)(*tensors)
        case "batchnorm":
            return graph.batchnorm(*tensors)
        case _ if head in _UNARY:
            return getattr(graph, head)(*tensors)
    raise ValueError(f"the operator {head} has no counterpart in a model")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("_")))
