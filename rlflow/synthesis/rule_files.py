"""Rule files in their one layout: records and examples written into them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlflow.files import write_atomically
from rlflow.rewrite import ProofRecord, read_rules
from rlflow.synthesis.examples import find_examples
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


def write_records(path: Path, verdicts: Mapping[str, Verdict]) -> None:
    """Puts the records of the proved rules into a rule file; a rule that is not proved loses its record. What z3 found
    before is kept as long as the statement is the same."""
    data = json.loads(path.read_text(encoding="utf-8"))
    for entry in data["rules"]:
        verdict = verdicts.get(entry["name"])
        if verdict is None:
            continue
        before = entry.pop("proof", None)
        if verdict.record is not None:
            entry["proof"] = _with_axioms(verdict.record, before).to_json()
    write_atomically(path, rule_file_text(data))


def _with_axioms(record: ProofRecord, before: dict[str, Any] | None) -> ProofRecord:
    same = before is not None and all(before.get(k) == getattr(record, k) for k in ("statement", "semantics", "prover"))
    if not same or record.axioms or before is None:
        return record
    return replace(record, axioms=tuple(before.get("axioms", ())))


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
    write_atomically(path, rule_file_text(data))
