"""Rule files written in their one layout, and the command that proves the package's rules again."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlflow.rewrite import Rule, read_rules
from rlflow.rewrite.paths import library_files
from rlflow.synthesis.examples import find_examples
from rlflow.synthesis.prove import SAMPLES, prove_all
from rlflow.synthesis.verdict import Verdict

_WIDTH = 150


def rule_file_text(data: dict[str, Any]) -> str:
    """A rule file in its layout: one field a line; a list that is too long for one, one element a line."""
    rules = ",\n".join(
        "  {\n" + ",\n".join(_field(key, value) for key, value in rule.items()) + "\n  }" for rule in data["rules"]
    )
    head = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in data.items() if key != "rules")
    return "{\n" + head + ' "rules": [\n' + rules + "\n ]\n}\n"


def _field(key: str, value: Any) -> str:
    flat = f"   {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
    if len(flat) <= _WIDTH or not isinstance(value, (list, dict)):
        return flat
    if isinstance(value, dict):
        items = [f"    {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()]
        return f"   {json.dumps(key)}: {{\n" + ",\n".join(items) + "\n   }"
    items = [f"    {json.dumps(v, ensure_ascii=False)}" for v in value]
    return f"   {json.dumps(key)}: [\n" + ",\n".join(items) + "\n   ]"


def write_records(path: Path, verdicts: dict[str, Verdict]) -> None:
    """Puts the records of the proved rules into a rule file; a rule that is not proved loses its record."""
    data = json.loads(path.read_text(encoding="utf-8"))
    for entry in data["rules"]:
        verdict = verdicts.get(entry["name"])
        if verdict is None:
            continue
        entry.pop("proof", None)
        if verdict.record is not None:
            entry["proof"] = verdict.record.to_json()
    _replace(path, rule_file_text(data))


def write_examples(path: Path, names: Sequence[str] = ()) -> None:
    """Finds examples for the rules of a file that lack them."""
    data = json.loads(path.read_text(encoding="utf-8"))
    by_name = {rule.name: rule for rule in read_rules([path])}
    for entry in data["rules"]:
        if (names and entry["name"] not in names) or (entry.get("fires") and entry.get("silent")):
            continue
        fires, silent = find_examples(by_name[entry["name"]])
        proof = entry.pop("proof", None)
        if fires and not entry.get("fires"):
            entry["fires"] = [fires]
        if silent and not entry.get("silent"):
            entry["silent"] = [silent]
        if proof:
            entry["proof"] = proof
    _replace(path, rule_file_text(data))


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m rlflow.synthesis.prove [--write | --examples] [--samples N] [--only NAME]... [FILE]...``; exit code
    0 if every rule was proved."""
    parser = argparse.ArgumentParser(
        prog="python -m rlflow.synthesis.prove", description="Prove rules, by default those of the package."
    )
    parser.add_argument("files", nargs="*", type=Path, help="rule files")
    parser.add_argument("--write", action="store_true", help="write the proof records into the files")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="evaluations in which each rule must fire")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this rule or family")
    parser.add_argument(
        "--examples", action="store_true", help="find examples for rules that have none, and write them; prove nothing"
    )
    options = parser.parse_args(arguments)
    files = options.files or library_files()
    if options.examples:
        for path in files:
            write_examples(path, options.only)
        return 0
    started, bad = time.perf_counter(), 0
    for path in files:
        rules = [
            r for r in read_rules([path]) if not options.only or r.name in options.only or r.family in options.only
        ]
        verdicts = prove_all(rules, _report, samples=options.samples)
        bad += sum(not v.proved for v in verdicts)
        if options.write and verdicts:
            write_records(path, {v.rule: v for v in verdicts})
    sys.stdout.write(f"{bad} not proved, {time.perf_counter() - started:.0f} s\n")
    return 1 if bad else 0


def _report(verdict: Verdict) -> None:
    counts = f"fired {verdict.fired} of {verdict.tries} draws, {verdict.wild_fired} without hints"
    text, record = f"{verdict.status:9} {verdict.rule}: {counts}", verdict.record
    if record is not None:
        text += f", {record.shapes} shapes, {record.method}"
        text += f", {record.float_samples} float runs, error {record.max_rel_err:.0e}"
    sys.stdout.write(text + "\n")
    if verdict.reason:
        sys.stdout.write(f"          {verdict.kind} {verdict.reason}\n")
    if verdict.counterexample:
        sys.stdout.write("".join(f"          | {line}\n" for line in verdict.counterexample.strip().splitlines()))
    sys.stdout.flush()


def format_file(path: Path) -> None:
    """Writes a rule file again in its layout."""
    _replace(path, rule_file_text(json.loads(path.read_text(encoding="utf-8"))))


def rules_of(path: Path) -> list[Rule]:
    """The rules of one file, as they are written."""
    return read_rules([path])
