"""Rules of TASO and Tensat: read, given our meaning, judged, and written as rule files of ours.

>>> rules = read_foreign("graph_subst.pb")                             # doctest: +SKIP
>>> outcomes = classify_all(rules, jobs=2)                             # doctest: +SKIP
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from rlflow.errors import RuleError, UsageError
from rlflow.files import mode_of, write_atomically
from rlflow.registry import Registry
from rlflow.synthesis.importers.classify import STATUSES, ImportOptions, ImportOutcome, classify, classify_all
from rlflow.synthesis.importers.foreign import ForeignRule
from rlflow.synthesis.importers.taso_pb import read_taso_pb
from rlflow.synthesis.importers.tensat import read_tensat, tensat_text
from rlflow.synthesis.importers.using import ForeignRules, ForeignRulesWarning, use_foreign
from rlflow.synthesis.rule_files import rule_file_text


class TasoPbFormat:
    """TASO's graph_subst.pb, a protobuf message."""

    suffix = ".pb"
    binary = True

    @staticmethod
    def read(file: Path) -> list[ForeignRule]:
        """The rules of a file. Raises RuleError where it does not parse."""
        return read_taso_pb(file)


class TensatFormat:
    """Tensat's rules, one a line."""

    suffix = ".txt"
    binary = False
    multi: ClassVar[bool] = False

    @classmethod
    def read(cls, file: Path) -> list[ForeignRule]:
        """The rules of a file. Raises RuleError where it is no text, or does not parse."""
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = "the rule file is no text; TASO's .pb files take the format taso-pb"
            raise RuleError(reason, os.fspath(file)) from error
        return read_tensat(text, multi=cls.multi, file=os.fspath(file))


class TensatMultiFormat(TensatFormat):
    """Tensat's rules with several roots, two lines a rule."""

    multi = True


#: Formats of foreign rule files, by the word that ``--format`` takes.
FORMATS: Registry[type[Any]] = Registry("rule format", capabilities={"suffix": "", "binary": False})
FORMATS.register("taso-pb", TasoPbFormat)
FORMATS.register("tensat", TensatFormat)
FORMATS.register("tensat-multi", TensatMultiFormat)

__all__ = [
    "FORMATS",
    "STATUSES",
    "ForeignRule",
    "ForeignRules",
    "ForeignRulesWarning",
    "ImportOptions",
    "ImportOutcome",
    "classify",
    "classify_all",
    "read_foreign",
    "read_taso_pb",
    "read_tensat",
    "tensat_text",
    "use_foreign",
    "write_imported",
]


def read_foreign(path: str | os.PathLike[str], format: str | None = None) -> list[ForeignRule]:
    """The rules of a file. Without ``format``, ``.pb`` is TASO's, and a text with "multi" in its name is of two-line
    rules. Raises UsageError for an unknown format or a missing file, RuleError where the file does not parse."""
    file = Path(path)
    if not stat.S_ISREG(mode_of(file, "The file of rules", UsageError)):
        raise UsageError(f"While importing rules: there is no file {os.fspath(path)}.")
    if format is None:
        text = "tensat-multi" if "multi" in file.stem else "tensat"
        format = "taso-pb" if file.suffix == TasoPbFormat.suffix else text
    rules: list[ForeignRule] = FORMATS.get(format).read(file)
    return rules


def write_imported(path: str | os.PathLike[str], outcomes: Iterable[ImportOutcome]) -> int:
    """Writes the outcomes' rules as a rule file, whole or not at all; how many. They are proved again (from the
    cache) when the file is loaded."""
    entries = [outcome.rule for outcome in outcomes if outcome.rule is not None]
    write_atomically(path, rule_file_text({"format": 1, "family": "imported", "rules": entries}))
    return len(entries)
