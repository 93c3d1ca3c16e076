"""TASO's ``graph_subst.pb``, read off its wire format (:mod:`rlflow.protobuf_wire`), which needs no library.

Schema (proto2, package GraphSubst; every scalar a required int32): Parameter{key=1, value=2}, Tensor{opId=1, tsId=2},
Operator{type=1, input=2*, para=3*}, MapOutput{srcOpId=1, dstOpId=2, srcTsId=3, dstTsId=4},
Rule{srcOp=1*, dstOp=2*, mappedOutput=3*}, RuleCollection{rule=1*}. A negative opId is a variable.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rlflow.errors import RuleError
from rlflow.protobuf_wire import NotProtobuf, fields
from rlflow.synthesis.importers.foreign import OPERATORS, OUTPUT, ForeignRule, ForeignTerm, variable

#: ``PMParameter`` of TASO's ops.h, 0 to 17.
PARAMETERS = (
    "op_type", "inputs", "outputs", "group", "kernel_h", "kernel_w", "stride_h", "stride_w", "pad", "acti", "rank",
    "axis", "perm", "shuffle", "count", "axes", "keepdims", "epsilon",
)  # fmt: skip


class _Message:
    """One message: field number -> its values, integers or bytes, in order."""

    def __init__(self, data: bytes, what: str, file: str) -> None:
        self.what, self.file = what, file
        self.fields: dict[int, list[int | bytes]] = {}
        try:
            for one in fields(data):
                value = data[one.begin : one.end] if one.integer is None else one.integer
                self.fields.setdefault(one.number, []).append(value)
        except NotProtobuf as reason:
            raise self.fail(str(reason)) from reason

    def fail(self, reason: str) -> RuleError:
        return RuleError(
            f"{self.what} cannot be read as a file of TASO's substitutions (graph_subst.pb): {reason}", self.file
        )

    def integer(self, number: int, name: str) -> int:
        values = self.fields.get(number, [])
        if not values or not isinstance(values[-1], int):
            raise self.fail(f"the number {name!r} is missing")
        return values[-1]

    def messages(self, number: int, what: str) -> list[_Message]:
        found = []
        for k, value in enumerate(self.fields.get(number, [])):
            if not isinstance(value, bytes):
                raise self.fail(f"field {number} is a number; expected a message")
            found.append(_Message(value, f"{self.what}, {what} {k}" if what else self.what, self.file))
        return found


def read_taso_pb(source: str | os.PathLike[str] | bytes, name: str = "<bytes>") -> list[ForeignRule]:
    """The rules of a ``graph_subst.pb``: a path, or its bytes. A rule with an operator that does not exist, or whose
    graph makes no sense, comes back with ``unreadable``. Raises RuleError where the file is cut or something else."""
    if isinstance(source, bytes):
        data = source
    else:
        name = os.fspath(source)
        try:
            data = Path(source).read_bytes()
        except OSError as error:
            raise RuleError(f"the rule file cannot be read: {error.strerror}", name) from error
    collection = _Message(data, "the file", name)
    stray = sorted(set(collection.fields) - {1})
    if not data or stray:
        found = f"it has a field {stray[0]}" if stray else "it is empty"
        raise collection.fail(f"{found}; expected rules (field 1) only")
    return [_rule(message, k) for k, message in enumerate(collection.messages(1, "rule"))]


def _rule(message: _Message, index: int) -> ForeignRule:
    origin = f"TASO #{index}"
    sides = [message.messages(1, "source operator"), message.messages(2, "target operator")]
    outputs = message.messages(3, "output")
    if not sides[0] or not sides[1] or not outputs:
        raise message.fail("a rule needs source operators, target operators and outputs")
    try:
        source, target = (_Side(operators) for operators in sides)
        pairs = [
            (
                source.value(m.integer(1, "srcOpId"), m.integer(3, "srcTsId")),
                target.value(m.integer(2, "dstOpId"), m.integer(4, "dstTsId")),
            )
            for m in outputs
        ]
    except _Unreadable as reason:
        return ForeignRule(index, origin, (), (), str(reason))
    return ForeignRule(index, origin, tuple(s for s, _ in pairs), tuple(t for _, t in pairs))


class _Unreadable(Exception):  # noqa: N818 - said of one rule, not of the file
    pass


class _Side:
    """One side of a rule: its operators in topological order."""

    def __init__(self, operators: Sequence[_Message]) -> None:
        self.terms: list[ForeignTerm] = []
        self.outputs: list[int] = []
        for message in operators:
            parameters = {m.integer(1, "key"): m.integer(2, "value") for m in message.messages(3, "parameter")}
            operands = tuple(
                self.value(m.integer(1, "opId"), m.integer(2, "tsId")) for m in message.messages(2, "operand")
            )
            self.terms.append(_term(message.integer(1, "type"), parameters, operands))
            self.outputs.append(parameters.get(2, 1))

    def value(self, op: int, tensor: int) -> ForeignTerm:
        if op < 0:
            return variable(f"input_{-op}")
        if op >= len(self.terms):
            raise _Unreadable(f"an operand is operator {op}, which comes later or does not exist")
        if self.terms[op].op != "split":
            if tensor:
                raise _Unreadable(f"output {tensor} of {self.terms[op].op} is used, which has one only")
            return self.terms[op]
        if not 0 <= tensor < max(self.outputs[op], 2):
            raise _Unreadable(f"output {tensor} of a split into {self.outputs[op]} is used")
        return ForeignTerm(OUTPUT, (("index", tensor),), (self.terms[op],))


def _term(number: int, parameters: dict[int, int], operands: tuple[ForeignTerm, ...]) -> ForeignTerm:
    if not 0 <= number < len(OPERATORS):
        raise _Unreadable(f"operator type {number} does not exist (TASO has 0 to {len(OPERATORS) - 1})")
    row = OPERATORS[number]
    if row.operands >= 0 and len(operands) < row.operands:
        raise _Unreadable(f"{row.name} has {len(operands)} operands; expected {row.operands}")
    named = {PARAMETERS[key]: value for key, value in parameters.items() if 0 <= key < len(PARAMETERS)}
    kept = tuple((name, named[name]) for name in row.parameters if name in named)
    if row.name in ("poolmax", "poolavg"):
        operands = operands[:1]  # the second is a weight that only carries the kernel's shape
    return ForeignTerm(row.name, kept, operands)
