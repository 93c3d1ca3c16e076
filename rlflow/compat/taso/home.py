"""``$TASO_HOME/graph_subst.pb``: the rules that TASO read there, used beside ours once they are proved."""

from __future__ import annotations

import logging
import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from rlflow.errors import RlflowError

_log = logging.getLogger("taso")
FILE = "graph_subst.pb"
_MATCHES = 30  # a quick look; what is new is proved besides


def home_file() -> Path | None:
    """The rule file that TASO would read, if TASO_HOME is set and holds one."""
    home = os.environ.get("TASO_HOME")
    path = Path(home) / FILE if home else None
    return path if path is not None and path.is_file() else None


def home_rules(stacklevel: int = 4) -> Any:
    """Our rules, with those of the file in TASO_HOME that are true; ``None`` (ours alone) without such a file.

    Each rule of the file is judged once and remembered. False ones are left out, with a warning that names them; a
    file that cannot be read is a warning too, never an error: nothing here needs TASO_HOME.
    """
    path = home_file()
    if path is None:
        return None
    try:
        return _together(path, stacklevel)
    except RlflowError as error:
        warnings.warn(f"taso: the rules in {path} are not used: {error}", stacklevel=stacklevel)
        return None


def _together(path: Path, stacklevel: int) -> Any:
    from rlflow.rewrite import RuleLibrary, all_shipped
    from rlflow.synthesis import load_rules
    from rlflow.synthesis.importers import Options, Outcome, classify_all, read_foreign

    rules = read_foreign(path, "taso-pb")
    _log.info("judging the %d rules of %s (about half a second each, the first time)", len(rules), path)
    outcomes: list[Outcome] = classify_all(rules, options=Options(matches=_MATCHES), progress=_told)
    ours, named = load_rules(), all_shipped()
    used = {name for outcome in outcomes for name in outcome.chain}
    found = [rule for rule in named.values() if rule.name in used and rule.name not in ours]
    library = RuleLibrary([*ours.values(), *found, *_new_rules(outcomes)])
    _report(path, outcomes, len(library) - len(ours), stacklevel)
    return library


def _new_rules(outcomes: Any) -> list[Any]:
    from rlflow.rewrite import ProofRecord, Rule

    return [
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
    ]


def _told(done: int, total: int) -> None:
    if done % 20 == 0 or done == total:
        _log.info("%d of %d rules judged", done, total)


def _report(path: Path, outcomes: Any, added: int, stacklevel: int) -> None:
    counts = Counter(outcome.status for outcome in outcomes)
    _log.info("%s: %s; %d rules in addition to rlflow's own", path, dict(counts), added)
    refused = [o for o in outcomes if o.status in ("refuted", "inexpressible", "undecided")]
    guarded = [o for o in outcomes if o.conditions and o not in refused]
    if not refused and not guarded:
        return
    parts = []
    if refused:
        parts.append(f"{len(refused)} are not used ({'; '.join(str(o) for o in refused[:3])}{_more(refused)})")
    if guarded:
        parts.append(f"{len(guarded)} only under conditions that TASO does not check ({guarded[0]}{_more(guarded, 1)})")
    warnings.warn(
        f"taso: of the {len(outcomes)} rules in {path}, {', and '.join(parts)}. "
        "`rlflow rules import` lists them all; unset TASO_HOME to be rid of this notice.",
        stacklevel=stacklevel,
    )


def _more(items: list[Any], shown: int = 3) -> str:
    return f"; and {len(items) - shown} more" if len(items) > shown else ""
