"""Proof records: what a rule's proof covered, and when it has become stale."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from rlflow import _core

#: Raised when the prover's meaning of an operator, its sampling or its verdicts change: older records are then stale.
PROVER_VERSION = 1

_CLASS_FLAGS = {
    "unary": ("unary",),
    "unary0": ("unary", "zero_preserving"),
    "monotone": ("unary", "monotone"),
    "binary": ("binary",),
    "reduce": ("reduce",),
}
_CLASS = re.compile(r"\?\w+:(unary0|unary|monotone|binary|reduce)\b")


@dataclass(frozen=True)
class ProofRecord:
    """How a rule was proved. No date and no machine: the same proof writes the same bytes.

    ``method``: "field" (GF(2^61-1), pointwise functions arbitrary) or "ordered" (exact rationals). ``fired``:
    evaluations in which the rule
    fired and both sides agreed; ``shapes``: distinct configurations of shapes and attributes among them; ``dims``:
    extents from, to.
    ``float_samples``: runs of both sides through ONNX's reference evaluator in double precision; ``max_rel_err``: the
    largest difference
    there, relative to the largest magnitude, as the next power of ten (0: bit for bit). ``statement`` and
    ``semantics`` are digests of what
    was proved and of the operator table's rows that it is about.
    """

    method: str
    fired: int
    shapes: int
    dims: tuple[int, int]
    prime: str
    float_samples: int
    max_rel_err: float
    prover: int
    semantics: str
    statement: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object, fields in order."""
        out = dataclasses.asdict(self)
        out["dims"] = list(self.dims)
        return out

    @staticmethod
    def from_json(data: dict[str, Any]) -> ProofRecord:
        """The reverse of :meth:`to_json`. Raises TypeError for missing or unknown fields."""
        return ProofRecord(**{**data, "dims": tuple(data.get("dims", (0, 0)))})

    def stale(self, core_rule: _core.Rule) -> str | None:
        """Why the record does not cover this rule as it is now, or ``None``."""
        if self.statement != core_rule.digest:
            return "the statement was changed after it was proved"
        if self.prover != PROVER_VERSION:
            return f"it was proved by version {self.prover} of the prover, this is version {PROVER_VERSION}"
        if self.semantics != semantics_digest(core_rule):
            return "an operator of the rule means something else than when it was proved"
        return None


def statement_digest(core_rule: _core.Rule) -> str:
    """Digest of source, target, conditions and definitions; the name does not count."""
    return str(core_rule.digest)


@functools.cache
def _class_members(name: str) -> tuple[str, ...]:
    wanted = set(_CLASS_FLAGS[name])
    return tuple(op for op in _core.op_names() if wanted <= set(_core.op_row(op)["flags"]))


@functools.cache
def _row_text(op: str) -> str:
    return json.dumps(_core.op_row(op), sort_keys=True, default=str)


def semantics_digest(core_rule: _core.Rule) -> str:
    """Digest of the operator table's rows of every operator that the rule names or that a class of it covers."""
    names = set(core_rule.operators())
    for match in _CLASS.finditer(core_rule.text()):
        names.update(_class_members(match.group(1)))
    text = "\n".join(_row_text(op) for op in sorted(names))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
