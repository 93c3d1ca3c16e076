"""Rules from outside the package: proved when they are loaded, and remembered by what was proved."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rlflow.errors import ProofError, RuleError
from rlflow.ledger import Kind, Ledger, key
from rlflow.rewrite import PROVER_VERSION, ProofRecord, Rule, RuleLibrary, semantics_digest
from rlflow.rewrite import load_rules as _load_rules
from rlflow.synthesis.prove import prove

#: Proof records of rules, by what was proved and by which prover.
PROOFS = Kind("proofs", 1, ProofRecord.to_json, ProofRecord.from_json)


def _key(rule: Rule) -> str:
    return key(rule.digest, semantics_digest(rule.core), PROVER_VERSION, rule.numerics)


def prove_cached(rule: Rule) -> ProofRecord:
    """The proof record of a rule, from the cache where it was proved before. Raises RuleError (file, line, reason)
    unless it is proved."""
    proofs = Ledger(PROOFS)
    record = proofs.recall(_key(rule))
    if record is not None and not record.stale(rule.core):
        return record
    try:
        verdict = prove(rule)
    except ProofError as error:
        raise rule.refuse(f"the prover cannot judge it: {error}") from error
    if verdict.record is None:
        example = f"; the smallest graph found:\n{verdict.counterexample}" if verdict.counterexample else ""
        raise rule.refuse(f"it is {verdict.status} ({verdict.reason}){example}")
    proofs.keep(_key(rule), verdict.record)
    return verdict.record


def load_rules(
    paths: Sequence[str | os.PathLike[str]] | None = None, *, families: Sequence[str] | None = None
) -> RuleLibrary:
    """Like :func:`rlflow.rewrite.load_rules`, with this prover. Raises RuleError for the first rule that is refused."""
    return _load_rules(paths, families=families, prove=prove_cached)


__all__ = ["RuleError", "load_rules", "prove_cached"]
