"""Rule files: reading, checking, and the library that a search uses."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlflow import _core
from rlflow.errors import RuleError, UsageError
from rlflow.files import mode_of, parse_json
from rlflow.rewrite import paths as _paths
from rlflow.rewrite.record import SHIPPED_SINCE, ProofRecord
from rlflow.rewrite.rule import NUMERICS, Rule

FORMAT = 1
_LISTS = ("source", "target", "where", "fires", "silent", "derived")
_TEXTS = ("name", "doc", "origin", "numerics")
_NAME = re.compile(r'"name"\s*:\s*("(?:[^"\\]|\\.)*")')
#: Characters of a rule's name, at most, and of what a sentence shows of other texts.
_LONGEST_NAME = 200
#: How a rule file begins, and how much of it is looked at for that.
_HEAD = re.compile(r'\s*\{\s*"format"\s*:\s*\d+\s*,\s*"family"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"rules"')
_HEAD_CHARACTERS = 400
_FIELDS = {*_LISTS, *_TEXTS, "let", "samples", "proof"}
#: Proves a rule that does not come with the package: returns its record, or raises RuleError with the reason.
Prover = Callable[[Rule], ProofRecord]


class RuleLibrary(Mapping[str, Rule]):
    """Rules by name, in a fixed order. Every one was checked when it was loaded."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules: dict[str, Rule] = {}
        for rule in rules:
            other = self._rules.setdefault(rule.name, rule)
            if other is not rule:
                raise rule.refuse(f"the name is taken (by the rule at {other.file}:{other.line})")

    def __getitem__(self, name: str) -> Rule:
        return self._rules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    @property
    def families(self) -> list[str]:
        """Family names, in order of first appearance."""
        return list(dict.fromkeys(rule.family for rule in self.values()))

    def select(self, names: Iterable[str]) -> RuleLibrary:
        """The rules with these names or of these families, in the library's order. Raises UsageError for a name that
        is neither."""
        wanted = list(names)
        families = set(self.families)
        for name in wanted:
            if name not in self._rules and name not in families:
                raise UsageError(
                    f"'{name}' is neither a rule nor a family of rules; the families are {', '.join(self.families)}"
                )
        return RuleLibrary(rule for rule in self.values() if rule.name in wanted or rule.family in wanted)

    def with_numerics(self, loosest: str) -> RuleLibrary:
        """The rules whose class of rounding is ``loosest`` or stricter. Raises UsageError for an unknown class."""
        if loosest not in NUMERICS:
            raise UsageError(f"'{loosest}' is no class of rounding; the classes are {', '.join(NUMERICS)}")
        allowed = NUMERICS[: NUMERICS.index(loosest) + 1]
        return RuleLibrary(rule for rule in self.values() if rule.numerics in allowed)

    def basis(self) -> RuleLibrary:
        """The rules that are not marked as derived from others."""
        return RuleLibrary(rule for rule in self.values() if not rule.derived)

    @functools.cached_property
    def _compiled(self) -> _core.RuleSet:
        return _core.RuleSet([rule.core for rule in self.values()])

    def compile(self) -> _core.RuleSet:
        """The rule set that the native matcher uses; made once."""
        return self._compiled

    @property
    def digest(self) -> str:
        """Of all names and statements, in order."""
        return str(self._compiled.digest)


def load_rules(
    paths: Sequence[str | os.PathLike[str]] | None = None,
    *,
    families: Sequence[str] | None = None,
    prove: Prover | None = None,
) -> RuleLibrary:
    """The rules of the package (``paths`` None), or of rule files and folders; with both ``paths`` and ``families``,
    the package's rules of
    these families and all of the files'.

    Rules of the package must carry a proof record that covers them as they are. Rules of other files are proved by
    ``prove`` when they are
    loaded, whatever their records say; without ``prove`` they are refused. Raises RuleError (file, line, reason) for
    the first rule that is
    refused, UsageError for an unknown family or a missing file.
    """
    rules: list[Rule] = []
    if paths is None or families:
        rules += (_of_families(families) if families else RuleLibrary(_read_shipped())).values()
    for path in rule_files_in(paths or ()):
        rules += (checked(rule, prove) for rule in read_rules([path]))
    return RuleLibrary(rules)


def _of_families(names: Sequence[str]) -> RuleLibrary:
    """The shipped rules of these families, or with these names. Files of other families are not read where all names
    are families."""
    families = {path: _family_of(path) for path in (*_paths.library_files(), *_paths.named_files())}
    if set(names) <= set(families.values()):
        return RuleLibrary(rule for path, family in families.items() if family in names for rule in _shipped_in(path))
    return RuleLibrary(_read_all()).select(names)


def _family_of(path: Path) -> str:
    """The family that a rule file names; its rules are not read where it names that first, as those that ship do."""
    with contextlib.suppress(OSError, ValueError), path.open(encoding="utf-8") as file:
        found = _HEAD.match(file.read(_HEAD_CHARACTERS))
        if found is not None:
            return str(json.loads(found[1]))
    return str(_read_data(path)[0]["family"])


@functools.cache
def _shipped_in(path: Path) -> tuple[Rule, ...]:
    """The rules of one of the package's own files."""
    return tuple(_covered(rule) for rule in read_rules([path]))


@functools.cache
def _read_shipped() -> tuple[Rule, ...]:
    return tuple(rule for path in _paths.library_files() for rule in _shipped_in(path))


@functools.cache
def _read_all() -> tuple[Rule, ...]:
    """With those that are loaded by name only."""
    return (*_read_shipped(), *(rule for path in _paths.named_files() for rule in _shipped_in(path)))


def all_shipped() -> RuleLibrary:
    """Every rule that comes with the package, those included that are loaded by name only."""
    return RuleLibrary(_read_all())


def rule_files_in(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files, and the ``.json`` files of the folders. Raises UsageError for what is neither."""
    files: list[Path] = []
    for item in paths:
        path = Path(item)
        mode = mode_of(path, "The rule file", UsageError)
        if stat.S_ISDIR(mode):
            files += sorted(path.rglob("*.json"))
        elif stat.S_ISREG(mode):
            files.append(path)
        else:
            raise UsageError(f"While loading rules: there is no file or folder {os.fspath(item)}.")
    return files


def checked(rule: Rule, prove: Prover | None) -> Rule:
    """The rule, if it may be used: compiled, and with a proof that covers it. Raises RuleError else."""
    rule.core  # noqa: B018 - whether it makes sense
    if rule.file is not None and _paths.is_shipped(Path(rule.file)):
        return _covered(rule)
    if prove is None:
        raise rule.refuse(
            "it does not come with the package and was not proved here; "
            "load it with a prover (rlflow.synthesis.load_rules)"
        )
    record = prove(rule)
    return _with_proof(rule, record)


def _covered(rule: Rule) -> Rule:
    """A rule of the package, if its record covers it as it is. Raises RuleError else."""
    if rule.proof is None:
        raise rule.refuse("it has no proof record; run `rlflow rules prove --all --write`")
    stale = rule.proof.stale(rule.core, SHIPPED_SINCE)
    if stale:
        raise rule.refuse(f"its proof record is stale: {stale}; run `rlflow rules prove --all --write`")
    return rule


def _with_proof(rule: Rule, record: ProofRecord) -> Rule:
    fields = {name: getattr(rule, name) for name in Rule.__dataclass_fields__}
    return Rule(**{**fields, "proof": record})


def read_rules(files: Iterable[str | os.PathLike[str]]) -> list[Rule]:
    """The rules of files as they are written, not proved and not compiled. Raises RuleError where a file is
    malformed."""
    return [rule for file in files for rule in _read_file(Path(file))]


def _read_data(path: Path) -> tuple[dict[str, Any], str]:
    """What a rule file holds, and its text."""
    name = os.fspath(path)
    try:
        text = path.read_text(encoding="utf-8")
        data = parse_json(text)
    except OSError as error:
        raise RuleError(f"the rule file cannot be read: {error.strerror}", name) from error
    except UnicodeDecodeError as error:
        raise RuleError("the rule file is not UTF-8 text", name) from error
    except json.JSONDecodeError as error:
        raise RuleError(f"the rule file is not JSON: {error.msg}", name, error.lineno) from error
    except ValueError as error:
        raise RuleError(f"the rule file cannot be read: {error}", name) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("rules"), list):
        raise RuleError(f'expected an object with "format": {FORMAT}, "family" and "rules" (a list)', name, 1)
    family = data.get("family")
    if not isinstance(family, str) or not family:
        raise RuleError('"family" is missing or no text', name, 1)
    return data, text


def _read_file(path: Path) -> list[Rule]:
    data, text = _read_data(path)
    lines = _lines_of_names(text)
    return [_read_rule(entry, data["family"], os.fspath(path), lines) for entry in data["rules"]]


def _lines_of_names(text: str) -> dict[str, int]:
    """The line that each ``"name"`` of a file first stands on, by the name as it is written there, with its quotes."""
    lines: dict[str, int] = {}
    line, last = 1, 0
    for found in _NAME.finditer(text):
        line, last = line + text.count("\n", last, found.start()), found.start()
        lines.setdefault(found[1], line)
    return lines


def _read_rule(entry: Any, family: str, file: str, lines: Mapping[str, int]) -> Rule:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise RuleError('an entry of "rules" is not an object with a "name"', file)
    name = entry["name"]
    line = lines.get(json.dumps(name, ensure_ascii=False))

    def refuse(reason: str) -> RuleError:
        return RuleError(f"the rule '{_shown(name)}' is refused: {reason}", file, line)

    if len(name) > _LONGEST_NAME:
        raise refuse(f"its name has {len(name)} characters; expected at most {_LONGEST_NAME}")
    unknown = sorted(set(entry) - _FIELDS)
    if unknown:
        raise refuse(f'unknown field "{_shown(unknown[0])}" (the fields are {", ".join(sorted(_FIELDS))})')
    for key in _LISTS:
        value = entry.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise refuse(f'"{key}" is not a list of texts')
    for key in _TEXTS:
        if not isinstance(entry.get(key, ""), str):
            raise refuse(f'"{key}" is not a text')
    let = entry.get("let", {})
    if not isinstance(let, dict) or not all(isinstance(value, str) for value in let.values()):
        raise refuse('"let" is not an object of texts')
    if not entry.get("source") or not entry.get("target"):
        raise refuse('"source" or "target" is missing')
    if entry.get("numerics", "reassociates") not in NUMERICS:
        raise refuse(f'"numerics" is {_shown(repr(entry["numerics"]))}, expected one of {", ".join(NUMERICS)}')
    samples = entry.get("samples", [])
    if not isinstance(samples, list) or not all(isinstance(item, dict) for item in samples):
        raise refuse('"samples" is not a list of objects')
    return Rule(
        name=name,
        family=family,
        source=tuple(entry["source"]),
        target=tuple(entry["target"]),
        where=tuple(entry.get("where", ())),
        let=tuple(let.items()),
        doc=entry.get("doc", ""),
        origin=entry.get("origin", ""),
        numerics=entry.get("numerics", "reassociates"),
        samples=tuple(samples),
        fires=tuple(entry.get("fires", ())),
        silent=tuple(entry.get("silent", ())),
        proof=_read_proof(entry.get("proof"), refuse),
        derived=tuple(entry.get("derived", ())),
        file=file,
        line=line,
    )


def _shown(text: str) -> str:
    """A text of a file as a sentence has it."""
    return text if len(text) <= _LONGEST_NAME else f"{text[:40]}…"


def _read_proof(data: Any, refuse: Callable[[str], RuleError]) -> ProofRecord | None:
    if data is None:
        return None
    try:
        return ProofRecord.from_json(data)
    except (TypeError, AttributeError) as error:
        raise refuse(f'"proof" is malformed: {error}') from error
