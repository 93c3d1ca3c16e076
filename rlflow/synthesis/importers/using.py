"""A foreign rule file as a rule library: what is true in it, said in our terms, and a sentence about the rest."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlflow.errors import UsageError
from rlflow.rewrite import ProofRecord, Rule, all_shipped
from rlflow.synthesis.importers.classify import ImportOptions, ImportOutcome, classify_all
from rlflow.synthesis.importers.foreign import ForeignRule

_log = logging.getLogger("rlflow.rules")
_MATCHES = 30  # a quick look; what is new is proved besides


class ForeignRulesWarning(UserWarning):
    """Some rules of a foreign file are false, or true only under conditions that the file does not state."""


@dataclass(frozen=True)
class ForeignRules:
    """What a foreign rule file amounts to here.

    ``known``: the shipped rules that do what rules of the file do. ``new``: the rules that are true and that nothing
    shipped does, with their proofs. ``outcomes``: what became of each rule of the file.
    """

    path: Path
    known: tuple[Rule, ...]
    new: tuple[Rule, ...]
    outcomes: tuple[ImportOutcome, ...]

    @property
    def remark(self) -> str | None:
        """A sentence about the rules that are not used, or not as they stand; ``None`` where all are."""
        refused = [one for one in self.outcomes if one.status in ("refuted", "inexpressible", "undecided")]
        guarded = [one for one in self.outcomes if one.conditions and one not in refused]
        parts = []
        if refused:
            parts.append(f"{len(refused)} are not used ({'; '.join(map(str, refused[:3]))}{_more(refused, 3)})")
        if guarded:
            parts.append(
                f"{len(guarded)} only under conditions that the file does not state ({guarded[0]}{_more(guarded, 1)})"
            )
        if not parts:
            return None
        return f"of the {len(self.outcomes)} rules in {self.path}, {', and '.join(parts)}."


def use_foreign(rules: Sequence[ForeignRule], path: str | os.PathLike[str]) -> ForeignRules:
    """Judge the rules of a file and keep what is true. Each rule is judged once and remembered in the cache folder.

    Raises UsageError where the file has no rules.
    """
    if not rules:
        raise UsageError(f"The file {os.fspath(path)} has no rules.")
    _log.info("judging the %d rules of %s (about half a second each, the first time)", len(rules), path)
    outcomes = tuple(classify_all(rules, options=ImportOptions(matches=_MATCHES), progress=_told))
    used = {name for outcome in outcomes for name in outcome.chain}
    known = tuple(rule for name, rule in all_shipped().items() if name in used)
    found = ForeignRules(Path(path), known, _new_rules(outcomes), outcomes)
    counts = dict(Counter(outcome.status for outcome in outcomes))
    _log.info("%s: %s; %d rules known here, %d new", path, counts, len(found.known), len(found.new))
    return found


def _new_rules(outcomes: Sequence[ImportOutcome]) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            name=entry["name"],
            family="imported",
            source=tuple(entry["source"]),
            target=tuple(entry["target"]),
            where=tuple(entry.get("where", ())),
            doc=entry.get("doc", ""),
            origin=entry.get("origin", ""),
            proof=ProofRecord.from_json(entry["proof"]),
        )
        for entry in (outcome.rule for outcome in outcomes if outcome.rule is not None)
    )


def _told(done: int, total: int) -> None:
    if done % 20 == 0 or done == total:
        _log.info("%d of %d rules judged", done, total)


def _more(items: Sequence[object], shown: int) -> str:
    return f"; and {len(items) - shown} more" if len(items) > shown else ""
