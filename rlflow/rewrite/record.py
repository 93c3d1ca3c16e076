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
from rlflow.ops import members

#: Raised when the prover's meaning of an operator, its sampling or its verdicts change: older records are then stale.
PROVER_VERSION = 7
#: The oldest version whose records still cover rules that come with the package; rules of others are proved here.
SHIPPED_SINCE = 7

_CLASS = re.compile(r"\?\w+:(unary0|unary|monotone|binary|reduce)\b")


@dataclass(frozen=True)
class ProofRecord:
    """How a rule was proved. No date and no machine: the same proof writes the same bytes.

    ``method``: "field" (GF(2^61-1), pointwise functions arbitrary) or "ordered" (exact rationals). ``fired``: random
    evaluations in which the rule fired and both sides agreed; ``shapes``: distinct configurations of shapes and
    attributes among them; ``dims``, ``ranks``: extents and ranks of inputs, from and to. ``degree``: a bound on that
    of both sides, so that a false configuration passes one sample with probability at most ``degree`` / p (field
    only, else 0). ``small``: graphs with extents 1 and 2 that were counted through; ``small_rank``: all ranks up to it
    (-1: none completely).

    ``float_samples``: runs of both sides through ONNX's reference evaluator; ``max_rel_err``: their largest difference
    in double precision, relative to the largest magnitude, as the next power of ten (0: bit for bit); ``growth``: the
    float32 error of the target over the source's, as the next power of two; ``overflow``: at magnitudes of 2^50 the
    target was not finite in float32 where the source was. ``axioms``: the laws from which z3 derives it (a second
    argument); ``size``: why the shapes that were seen stand for all; ``cases``: configurations that were decided
    for all values, by cases (ordered rationals only). All may be empty. ``statement`` and ``semantics`` are digests of
    what was proved and of the operator table's rows that it is about.
    """

    method: str
    fired: int
    shapes: int
    dims: tuple[int, int]
    ranks: tuple[int, int]
    degree: int
    prime: str
    small: int
    small_rank: int
    float_samples: int
    max_rel_err: float
    growth: float
    overflow: bool
    prover: int
    semantics: str
    statement: str
    axioms: tuple[str, ...] = ()
    size: str = ""
    cases: int = 0

    @property
    def scope(self) -> str:
        """What was seen, in one sentence."""
        where = f"{self.fired} samples over {self.shapes} configurations, "
        where += f"ranks {_span(self.ranks)}, extents {_span(self.dims)}"
        if self.method == "field":
            text = f"field: p = 2^61-1, degree <= {self.degree}, {where}"
        else:
            text = f"exact rationals: {where}"
        if self.small:
            to = f" of all ranks <= {self.small_rank}" if self.small_rank >= 0 else ""
            text += f"; {self.small} small graphs{to} (extents 1-2) counted through"
        if self.cases:
            text += f"; {self.cases} configurations decided by cases, for all values"
        if self.size:
            text += f"; {self.size}"
        if self.axioms:
            text += f"; derived from {len(self.axioms)} laws"
        return text + "."

    def to_json(self) -> dict[str, Any]:
        """A JSON object, fields in order, the ``scope`` sentence first; empty second arguments are left out."""
        out: dict[str, Any] = {"scope": self.scope, **dataclasses.asdict(self)}
        for name in ("dims", "ranks", "axioms"):
            out[name] = list(out[name])
        return {name: value for name, value in out.items() if name not in ("axioms", "size", "cases") or value}

    @staticmethod
    def from_json(data: dict[str, Any]) -> ProofRecord:
        """The reverse of :meth:`to_json`. Raises TypeError for missing or unknown fields; a record of another version
        of the prover may lack fields, and is read with zeros: it is stale anyway."""
        plain = {name: value for name, value in data.items() if name != "scope"}
        if plain.get("prover", PROVER_VERSION) != PROVER_VERSION:
            plain = {**_ZEROS, **{name: value for name, value in plain.items() if name in _FIELDS}}
        for name in ("dims", "ranks", "axioms"):
            if name in plain:
                plain[name] = tuple(plain[name])
        return ProofRecord(**plain)

    def stale(self, core_rule: _core.Rule, oldest: int = PROVER_VERSION) -> str | None:
        """Why the record does not cover this rule as it is now, or ``None``. ``oldest``: the first version of the
        prover that is good enough."""
        if self.statement != core_rule.digest:
            return "the statement was changed after it was proved"
        if not oldest <= self.prover <= PROVER_VERSION:
            return f"it was proved by version {self.prover} of the prover, this is version {PROVER_VERSION}"
        if self.semantics != semantics_digest(core_rule):
            return "an operator of the rule means something else than when it was proved"
        return None


def _span(ends: tuple[int, int]) -> str:
    return f"{ends[0]}-{ends[1]}" if ends[0] != ends[1] else str(ends[0])


_FIELDS = frozenset(f.name for f in dataclasses.fields(ProofRecord))
_ZEROS: dict[str, Any] = {
    f.name: {"int": 0, "float": 0.0, "str": "", "bool": False}.get(str(f.type), (0, 0))
    for f in dataclasses.fields(ProofRecord)
    if f.default is dataclasses.MISSING
}


@functools.cache
def _row_text(op: str) -> str:
    return json.dumps(_core.op_row(op), sort_keys=True, default=str)


def semantics_digest(core_rule: _core.Rule) -> str:
    """Digest of the operator table's rows of every operator that the rule names or that a class of it covers."""
    names = set(core_rule.operators())
    for match in _CLASS.finditer(core_rule.text()):
        names.update(members(match.group(1)))
    text = "\n".join(_row_text(op) for op in sorted(names))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
