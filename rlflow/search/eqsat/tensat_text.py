"""Tensat's graphs and rules as text: S-expressions, ``.model`` files, rule files.

A graph is one expression over Tensat's operators; ``noop`` joins several outputs. A ``.model`` file has four lines an
operator, in topological order: an id, TASO's operator number, ``id:output`` of each input, and integer parameters.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rlflow._core import EGraph, EGraphRule
from rlflow.errors import ModelError, RuleError


class ENode(NamedTuple):
    """``head`` is an operator, or, without children, a number or a name; ``children`` are positions in the graph."""

    head: str
    children: tuple[int, ...] = ()


@dataclass(frozen=True)
class TermGraph:
    """A graph in Tensat's language: terms, each after its children, and which of them is the root.

    A file may hold terms that the root does not need; they are kept, because Tensat keeps them in its e-graphs.
    """

    terms: tuple[ENode, ...]
    root: int

    def add_to(self, egraph: EGraph) -> int:
        """The class of the root, after adding every term. Raises :class:`~rlflow.errors.GraphError` for wrong
        shapes.
        """
        classes: list[int] = []
        for head, children in self.terms:
            operands = [classes[child] for child in children]
            classes.append(egraph.add(head, operands) if children else egraph.parse(head))
        return classes[self.root]

    def trimmed(self) -> TermGraph:
        """Without the terms that the root does not need."""
        needed = {self.root}
        for index in range(self.root, -1, -1):
            if index in needed:
                needed.update(self.terms[index].children)
        number = {old: new for new, old in enumerate(sorted(needed))}
        kept = (ENode(self.terms[i].head, tuple(number[c] for c in self.terms[i].children)) for i in sorted(needed))
        return TermGraph(tuple(kept), number[self.root])

    def text(self) -> str:
        """One S-expression. What is shared is written at each use, as in Tensat: much sharing makes it long."""
        texts: list[str] = []
        for head, children in self.terms:
            texts.append(f"({head} {' '.join(texts[child] for child in children)})" if children else head)
        return texts[self.root]


class TermBuilder:
    """Builds a :class:`TermGraph`; equal terms are one. Operands are positions of terms."""

    def __init__(self) -> None:
        self._terms: dict[ENode, int] = {}
        self._weights = 0
        self._inputs = 0

    def leaf(self, value: int | str) -> int:
        return self._term(ENode(str(value)))

    def call(self, head: str, *children: int) -> int:
        return self._term(ENode(head, children))

    def _term(self, term: ENode) -> int:
        return self._terms.setdefault(term, len(self._terms))

    def input(self, *dims: int) -> int:
        self._inputs += 1
        return self.call("input", self.leaf(f"input_{self._inputs - 1}@{join_dims(dims)}"))

    def weight(self, *dims: int) -> int:
        self._weights += 1
        return self.call("weight", self.leaf(f"w_{self._weights - 1}@{join_dims(dims)}"))

    def with_numbers(self, head: str, *children: int | tuple[int]) -> int:
        """``call`` where a 1-tuple stands for a number."""
        return self.call(head, *(self.leaf(child[0]) if isinstance(child, tuple) else child for child in children))

    def finish(self, outputs: Sequence[int]) -> TermGraph:
        """Joins the outputs by ``noop``, left to right."""
        root = outputs[0]
        for output in outputs[1:]:
            root = self.call("noop", root, output)
        return TermGraph(tuple(self._terms), root)


def join_dims(dims: Iterable[int]) -> str:
    return "_".join(map(str, dims))


# --- .model files -----------------------------------------------------------------------------------------------------

#: TASO's operator numbers.
OPERATORS = {
    0: "input", 1: "weight", 3: "conv2d", 4: "dropout", 6: "poolmax", 7: "poolavg", 8: "relu", 9: "sigmoid", 10: "tanh",
    11: "batchnorm", 12: "concat", 13: "split", 14: "reshape", 15: "transpose", 16: "ewadd", 17: "ewmul", 18: "matmul",
    20: "enlarge", 21: "merge",
}  # fmt: skip
NUMBERS = {name: number for number, name in OPERATORS.items()}
_CONCATS = {2: "concat", 3: "concat3", 4: "concat4", 5: "concat5"}


class _Record(NamedTuple):
    guid: int
    operator: str
    inputs: tuple[tuple[int, int], ...]
    parameters: tuple[int, ...]


def read_model(path: str | os.PathLike[str]) -> TermGraph:
    """The graph of a ``.model`` file; what nothing reads is an output, except inputs and weights.

    Raises :class:`~rlflow.errors.ModelError` with the line for what cannot be read.
    """
    builder = TermBuilder()
    values: dict[int, tuple[str, int]] = {}
    used: set[int] = set()
    records = _records(Path(path))
    for record in records:
        operands = []
        if record.operator not in ("input", "weight"):
            for source in record.inputs:
                if source[0] not in values:
                    raise ModelError(f"{path}: operator {record.guid} reads {source[0]}, which no earlier one makes.")
                used.add(source[0])
                operands.append(_output(builder, values[source[0]], source[1]))
        values[record.guid] = (record.operator, _term_of(builder, record, operands, path))
    sinks = [
        term for guid, (operator, term) in values.items() if guid not in used and operator not in ("input", "weight")
    ]
    if not sinks:
        raise ModelError(f"{path}: the graph has no operator besides inputs and weights.")
    return builder.finish(sinks)


def _records(path: Path) -> list[_Record]:
    lines = path.read_text(encoding="utf-8").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines or len(lines) % 4:
        raise ModelError(f"{path}: a .model file has four lines an operator; this one has {len(lines)} lines.")
    return [_record(path, number, lines[number : number + 4]) for number in range(0, len(lines), 4)]


def _record(path: Path, number: int, lines: Sequence[str]) -> _Record:
    try:
        guid, operator = int(lines[0]), int(lines[1])
        pairs = [part.split(":") for part in lines[2].split(",") if part]
        inputs = tuple((int(source), int(output)) for source, output in pairs)
        parameters = tuple(int(part) for part in lines[3].split(",") if part.strip())
    except ValueError as error:
        raise ModelError(f"{path}:{number + 1}: the operator cannot be read: {error}.") from error
    if operator not in OPERATORS:
        raise ModelError(f"{path}:{number + 2}: operator number {operator} is not one of Tensat's language.")
    return _Record(guid, OPERATORS[operator], inputs, parameters)


def _output(builder: TermBuilder, value: tuple[str, int], index: int) -> int:
    operator, term = value
    return builder.call(f"split_{index}", term) if operator == "split" else term


def _term_of(builder: TermBuilder, record: _Record, operands: list[int], path: object) -> int:
    """The term of a record. Parameters by operator: facts of TASO's export_to_file, see docs/eqsat.md."""
    name, p = record.operator, record.parameters

    def leaves(values: Sequence[int]) -> list[int]:
        return [builder.leaf(value) for value in values]

    match name:
        case "input":
            return builder.input(*p)
        case "weight":
            return builder.weight(*p)
        case "conv2d":
            return builder.call(name, *leaves(p[8:12]), *operands)
        case "poolmax" | "poolavg":
            return builder.call(name, operands[0], *leaves(p[5:11]))
        case "concat":
            if len(operands) not in _CONCATS or len(p) != 1:
                raise ModelError(f"{path}: operator {record.guid} joins {len(operands)} tensors; Tensat has 2 to 5.")
            return builder.call(_CONCATS[len(operands)], *leaves((p[0], _rank(builder, operands[0]))), *operands)
        case "split":
            return builder.call(name, *leaves(p[:1]), *operands)
        case "matmul":
            return builder.call(name, *leaves(p[:1]), *operands)
        case "merge":
            return builder.call(name, *operands, *leaves(p[:1]))
        case "reshape":
            return builder.call(name, *operands, builder.leaf(join_dims(p)))
        case "transpose":
            perm = p[-1 - _rank(builder, operands[0]) : -1]  # some files put the rank before it
            if len(p) > len(perm) + 2 or sorted(perm) != list(range(_rank(builder, operands[0]))):
                raise ModelError(f"{path}: operator {record.guid} is a transpose without its permutation: {p}.")
            return builder.call(name, *operands, builder.leaf(join_dims(perm)), *leaves(p[-1:]))
        case _:
            return builder.call(name, *operands)


def _rank(builder: TermBuilder, term: int) -> int:
    """The rank of a tensor: it is in the text of the first input or weight below whose rank nothing changes."""
    terms = list(builder._terms)
    while True:
        head, children = terms[term]
        if head in ("input", "weight"):
            return len(terms[children[0]].head.rpartition("@")[2].split("_"))
        if head == "reshape":
            return len(terms[children[1]].head.split("_"))
        if head in ("conv2d", "poolmax", "poolavg"):
            return 4
        tensors = {"matmul": 1, "concat": 2, "concat3": 2, "concat4": 2, "concat5": 2, "split": 1}
        term = children[tensors.get(head, 0)]


# --- rules ------------------------------------------------------------------------------------------------------------

#: Tensat adds these to every run (its PRE_DEFINED_RULES and PRE_DEFINED_MULTI): grouped convolutions with half the
#: groups, and two convolutions of one input after enlarging the smaller kernel.
MERGE_GROUPS = tuple(
    f"(conv2d {s} {s} 0 {a} ?input_1 ?input_2)=>(conv2d {s} {s} 0 {a} ?input_1 (merge ?input_2 2))"
    for s in (1, 2)
    for a in (0, 2)
)
_ENLARGED = "(split 1 (conv2d 1 1 0 {a} ?input_1 (concat 0 4 (enlarge ?input_2 ?input_3) ?input_3)))"
ENLARGE = tuple(
    f"(conv2d 1 1 0 {a} ?input_1 ?input_{2 + half})=>(split_{half} {_ENLARGED.format(a=a)})"
    for a in (0, 2)
    for half in (0, 1)
)


def read_rule_lines(path: str | os.PathLike[str]) -> list[str]:
    """The ``left=>right`` lines of a rule file; blank lines and # comments are left out."""
    lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    kept = [line for line in lines if line and not line.startswith("#")]
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#") and "=>" not in line:
            raise RuleError("a rule is written left=>right", path, number)
    return kept


def tensat_rules(egraph: EGraph, single: Iterable[str], multi: Sequence[str]) -> list[EGraphRule]:
    """Tensat's rules for an e-graph of its language: a line is a rule, two of ``multi`` are one. Its own are added.

    The rules apply wherever the shapes allow, as in Tensat; about a quarter of them is not true everywhere.
    """
    if len(multi) % 2:
        raise RuleError(f"two-root rules have two lines each; there are {len(multi)} lines.")
    rules = [egraph.rule(f"rule{i}", [line]) for i, line in enumerate([*single, *MERGE_GROUPS])]
    pairs = list(pairwise(multi))[::2]
    rules += [egraph.rule(f"multi{i}", lines, unordered=True) for i, lines in enumerate(pairs)]
    own = list(pairwise(ENLARGE))[::2]
    return rules + [egraph.rule(f"enlarge{i}", lines) for i, lines in enumerate(own)]


# --- writing .model files ---------------------------------------------------------------------------------------------

_PROJECTIONS = {"split_0": 0, "split_1": 1}


def write_model(path: str | os.PathLike[str], graph: TermGraph) -> None:
    """Write a graph as a ``.model`` file. Names of inputs and weights are not part of the format.

    Raises :class:`~rlflow.errors.ModelError` for what the format cannot say: an output that an operator reads too, or
    an operator without a number.
    """
    target = Path(path)
    text = "".join(_Writer(graph.trimmed(), target).records())
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(target)


class _Writer:
    def __init__(self, graph: TermGraph, path: Path) -> None:
        self.terms, self.path = graph.terms, path
        egraph = EGraph("tensat")
        classes: list[int] = []
        for head, children in self.terms:
            operands = [classes[child] for child in children]
            classes.append(egraph.add(head, operands) if children else egraph.parse(head))
        self.shapes = [_shapes(egraph.data_text(cls)) for cls in classes]
        self.guid: dict[int, tuple[int, int]] = {}
        self._check_outputs(graph.root)

    def _check_outputs(self, root: int) -> None:
        outputs: set[int] = set()
        waiting = [root]
        while waiting:
            term = waiting.pop()
            joins = self.terms[term].head == "noop"
            waiting.extend(self.terms[term].children if joins else ())
            outputs.update(() if joins else (term,))
        for head, children in self.terms:
            if head != "noop" and outputs & set(children):
                raise ModelError(
                    f"{self.path}: an output of the graph is read by {head}; a .model file cannot say that."
                )

    def records(self) -> Iterable[str]:
        following = 100
        for term, (head, children) in enumerate(self.terms):
            if not children or head == "noop":
                continue
            if head in _PROJECTIONS:
                self.guid[term] = (self.guid[children[0]][0], _PROJECTIONS[head])
                continue
            self.guid[term] = (following, 0)
            yield self._record(following, term)
            following += 1

    def _record(self, guid: int, term: int) -> str:
        head, children = self.terms[term]
        operator = "concat" if head.startswith("concat") else head
        if operator not in NUMBERS:
            raise ModelError(f"{self.path}: the operator {head} has no number in the .model format.")
        tensors = [child for child in children if child in self.guid]
        inputs = ",".join("{}:{}".format(*self.guid[child]) for child in tensors)
        if operator in ("input", "weight"):
            inputs = "10:0" if operator == "input" else "11:0"
        numbers = [int(self.terms[c].head) for c in children if c not in self.guid and self.terms[c].head.isdigit()]
        parameters = ",".join(map(str, self._parameters(operator, term, tensors, numbers)))
        return f"{guid}\n{NUMBERS[operator]}\n{inputs}\n{parameters}\n"

    def _parameters(self, operator: str, term: int, tensors: list[int], numbers: list[int]) -> Sequence[int]:
        dims = [self.shapes[tensor][0] for tensor in tensors]
        children = self.terms[term].children
        match operator:
            case "input" | "weight" | "reshape":
                return self.shapes[term][0]
            case "conv2d":
                return [*dims[0], *dims[1], *numbers, *_padding(dims[0], dims[1][2:], numbers[:2], numbers[2])]
            case "poolmax" | "poolavg":
                padding = _padding(dims[0], numbers[:2], numbers[2:4], numbers[4])
                return [*dims[0], NUMBERS[operator], *numbers, *padding]
            case "concat" | "merge":
                return numbers[:1]
            case "split":
                return [numbers[0], *(shape[numbers[0]] for shape in self.shapes[term])]
            case "matmul":
                return [numbers[0], len(dims[0])]
            case "transpose":
                perm = [int(part) for part in self.terms[children[1]].head.split("_")]
                return [len(perm), *perm, int(self.terms[children[2]].head)]
            case _:
                return dims[0]


def _shapes(text: str) -> list[list[int]]:
    """The shapes in what the language says about a class: "[1,2]", or "([1,2], [1,3])" for a split."""
    return [[int(d) for d in part.partition("]")[0].split(",")] for part in text.split("[")[1:] if part[0] != "]"]


def _padding(dims: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: int) -> list[int]:
    """Zeros on one side, as TASO computes them: of a total of max(k - s, 0), or max(k - in % s, 0), the larger half."""
    totals = [
        max(k - s if extent % s == 0 else k - extent % s, 0)
        for extent, k, s in zip(dims[2:], kernel, stride, strict=True)
    ]
    return [(total + 1) // 2 if padding == 0 else 0 for total in totals]
