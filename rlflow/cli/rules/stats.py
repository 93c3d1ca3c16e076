"""``rlflow rules stats``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import console, plural
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.rules.shared import load_library, rule_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rlflow.rewrite import Rule


@click.command("stats")
@rule_files
@json_option()
def stats(files: tuple[str, ...], json_file: str | None) -> None:
    """Count the rules: by family, operator, roots, proof, class of rounding, redundancy."""
    library = load_library(files)
    counts = statistics(library.values())
    if in_json(json_file, lambda: counts):
        return
    from rich.table import Table

    click.echo(f"{plural(counts['rules'], 'rule')} in {plural(len(counts['families']), 'family', 'families')}")
    for title, key in (
        ("family", "families"),
        ("roots", "roots"),
        ("proof", "proofs"),
        ("rounding", "numerics"),
        ("basis", "redundancy"),
        ("operator (in sources)", "operators"),
    ):
        table = Table(title, "rules", box=None, pad_edge=False)
        for name, count in counts[key].items():
            table.add_row(name, str(count))
        console().print(table)
        click.echo()


def statistics(rules: Iterable[Rule]) -> dict[str, Any]:
    """Counts as plain data; every count is of rules, so that those of operators and proofs add up to more."""
    found = list(rules)
    proofs: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    for rule in found:
        proofs.update(_proofs(rule))
        operators.update(set(rule.core.operators()) or {"any (an operator variable)"})
    return {
        "rules": len(found),
        "families": dict(Counter(rule.family for rule in found)),
        "roots": _sorted(Counter("one root" if len(rule.source) == 1 else "several roots" for rule in found)),
        "proofs": _sorted(proofs),
        "numerics": _sorted(Counter(rule.numerics for rule in found)),
        "redundancy": _sorted(Counter("derived from others" if rule.derived else "basis" for rule in found)),
        "operators": _sorted(operators),
    }


def _proofs(rule: Rule) -> list[str]:
    record = rule.proof
    if record is None:
        return ["none"]
    methods = {"field": "over the field", "ordered": "over ordered rationals"}
    out = [methods.get(record.method, record.method)]
    out += ["small graphs counted through"] * bool(record.small)
    out += ["size argument"] * bool(record.size)
    out += ["derived from laws (z3)"] * bool(record.axioms)
    out += ["in floats"] * bool(record.float_samples)
    return out


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
