"""``rlflow rules list``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import plural
from rlflow.cli.rules.shared import load_library, proof_fields, rule_files

if TYPE_CHECKING:
    from rlflow.rewrite import Rule


@click.command("list")
@rule_files
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_rules(files: tuple[str, ...], as_json: bool) -> None:
    """List the rules by family."""
    library = load_library(files)
    if as_json:
        click.echo(json.dumps([_plain(rule) for rule in library.values()], indent=2, ensure_ascii=False))
        return
    for family in library.families:
        members = [rule for rule in library.values() if rule.family == family]
        click.echo(f"{family} ({plural(len(members), 'rule')})")
        for rule in members:
            click.echo(f"  {rule.name}" + (f": {rule.doc}" if rule.doc else ""))


def _plain(rule: Rule) -> dict[str, Any]:
    names = ("name", "family", "doc", "source", "target", "where", "origin", "numerics", "file", "line")
    return {
        **{name: getattr(rule, name) for name in names},
        "let": dict(rule.let),
        "derived": list(rule.derived),
        "proof": proof_fields(rule) or None,
    }
