"""Rules from outside the package: proved when they are loaded, and remembered by what was proved."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from rlflow.errors import OutputError, ProofError, RuleError
from rlflow.files import parse_json, write_atomically
from rlflow.rewrite import PROVER_VERSION, ProofRecord, Rule, RuleLibrary, semantics_digest
from rlflow.rewrite import load_rules as _load_rules
from rlflow.synthesis.prove import prove


def cache_folder() -> Path:
    """``proofs`` in ``$RLFLOW_CACHE``, else in the user's cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``)."""
    own = os.environ.get("RLFLOW_CACHE")
    if own:
        return Path(own).expanduser() / "proofs"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rlflow" / "proofs"


def _entry(rule: Rule) -> Path:
    return cache_folder() / f"{rule.digest}-{semantics_digest(rule.core)}-{PROVER_VERSION}-{rule.numerics}.json"


def trusted(folder: Path) -> bool:
    """Whether only this user can have written there: a proof that somebody else left would be believed."""
    if not hasattr(os, "getuid"):
        return True
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _make_trusted(folder: Path) -> bool:
    """Makes the folder, or takes it back where others could read or write it; whether that was possible."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not trusted(folder) and not folder.is_symlink() and os.lstat(folder).st_uid == os.getuid():
        folder.chmod(0o700)
        for entry in folder.glob("*.json"):
            entry.unlink()  # who knows whose
    return trusted(folder)


def _remembered(rule: Rule) -> ProofRecord | None:
    if not trusted(cache_folder()):
        return None
    try:
        record = ProofRecord.from_json(parse_json(_entry(rule).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, AttributeError):
        return None  # absent or damaged: prove again
    return None if record.stale(rule.core) else record


def _remember(rule: Rule, record: ProofRecord) -> None:
    path = _entry(rule)
    with contextlib.suppress(OSError, OutputError):  # a cache that cannot be written costs time only
        if _make_trusted(path.parent):
            write_atomically(path, json.dumps(record.to_json()))


def prove_cached(rule: Rule) -> ProofRecord:
    """The proof record of a rule, from the cache where it was proved before. Raises RuleError (file, line, reason)
    unless it is proved."""
    record = _remembered(rule)
    if record is not None:
        return record
    try:
        verdict = prove(rule)
    except ProofError as error:
        raise rule.refuse(f"the prover cannot judge it: {error}") from error
    if verdict.record is None:
        example = f"; the smallest graph found:\n{verdict.counterexample}" if verdict.counterexample else ""
        raise rule.refuse(f"it is {verdict.status} ({verdict.reason}){example}")
    _remember(rule, verdict.record)
    return verdict.record


def load_rules(
    paths: Sequence[str | os.PathLike[str]] | None = None, *, families: Sequence[str] | None = None
) -> RuleLibrary:
    """Like :func:`rlflow.rewrite.load_rules`, with this prover. Raises RuleError for the first rule that is refused."""
    return _load_rules(paths, families=families, prove=prove_cached)


__all__ = ["RuleError", "cache_folder", "load_rules", "prove_cached"]
