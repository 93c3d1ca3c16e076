"""E-graphs in the JSON of extraction-gym: ``{"nodes": {id: {op, cost, eclass, children}}, "root_eclasses": [...]}``.

A child is named by any node of its class.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlflow._core import Extraction
from rlflow.errors import UsageError, brief
from rlflow.files import parse_json


@dataclass(frozen=True)
class GymGraph:
    """An extraction problem with the names that its file gives: ``ops`` and ``names`` by node, ``classes`` by class."""

    problem: Extraction
    ops: tuple[str, ...]
    names: tuple[str, ...]
    classes: tuple[str, ...]


def read_gym(path: str | os.PathLike[str]) -> GymGraph:
    """An e-graph from a ``.json`` or ``.json.gz`` file. Raises :class:`~rlflow.errors.UsageError` for anything else."""
    try:
        raw = Path(path).read_bytes()
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        said = (getattr(error, "strerror", None) or brief(error)).rstrip(".")
        raise UsageError(f"The e-graph {path} cannot be read: {said}.") from error
    try:
        return _from_document(parse_json(text))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"{type(error).__name__}: {brief(error).rstrip('.')}"
        raise UsageError(f"{path} is not an e-graph in the JSON of extraction-gym: {said}.") from error


def _from_document(document: dict[str, Any]) -> GymGraph:
    nodes = document["nodes"]
    number: dict[str, int] = {}
    for node in nodes.values():
        number.setdefault(str(node["eclass"]), len(number))
    begin, child = [0], []
    for node in nodes.values():
        child += [number[str(nodes[other]["eclass"])] for other in node["children"]]
        begin.append(len(child))
    problem = Extraction(
        len(number),
        [number[str(node["eclass"])] for node in nodes.values()],
        [float(node["cost"]) for node in nodes.values()],
        begin,
        child,
        [number[str(root)] for root in document["root_eclasses"]],
    )
    return GymGraph(problem, tuple(str(node["op"]) for node in nodes.values()), tuple(nodes), tuple(number))


def write_gym(path: str | os.PathLike[str], graph: GymGraph) -> None:
    """Write an e-graph; gzip where the name ends in ``.gz``. A class without a node cannot be written."""
    problem = graph.problem
    cost, node_class = problem.cost.tolist(), problem.node_class.tolist()
    begin, child = problem.child_begin.tolist(), problem.child.tolist()
    first: dict[int, str] = {}
    for name, cls in zip(graph.names, node_class, strict=True):
        first.setdefault(cls, name)
    nodes = {
        name: {
            "op": graph.ops[i],
            "cost": cost[i],
            "eclass": graph.classes[node_class[i]],
            "children": [first[c] for c in child[begin[i] : begin[i + 1]]],
        }
        for i, name in enumerate(graph.names)
    }
    document = {"nodes": nodes, "root_eclasses": [graph.classes[root] for root in problem.roots.tolist()]}
    raw = json.dumps(document).encode()
    target = Path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    partial.write_bytes(gzip.compress(raw, mtime=0) if target.suffix == ".gz" else raw)
    partial.replace(target)


def gym_graph(egraph: Any, problem: Extraction) -> GymGraph:
    """An e-graph's snapshot (``EGraph.snapshot``) with the names of its operators."""
    arrays = egraph.nodes()
    at = {int(node): i for i, node in enumerate(arrays["id"])}
    places = [at[int(node)] for node in problem.node_ids]
    ops = []
    for place in places:
        op, attr = int(arrays["op"][place]), int(arrays["attr"][place])
        text = egraph.attr_text(op, attr)
        ops.append(egraph.op_name(op) + (f"({text})" if text else ""))
    classes = np.asarray(problem.class_ids).tolist()
    counter: dict[int, int] = {}
    names = []
    for cls in problem.node_class.tolist():
        names.append(f"{classes[cls]}__{counter.setdefault(cls, 0)}")
        counter[cls] += 1
    return GymGraph(problem, tuple(ops), tuple(names), tuple(map(str, classes)))
