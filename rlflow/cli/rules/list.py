"""``rlflow rules list``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import plural
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.rules.shared import load_library, proof_fields, rule_files

if TYPE_CHECKING:
    from rlflow.rewrite import Rule


@click.command("list")
@rule_files
@json_option()
def list_rules(files: tuple[str, ...], json_file: str | None) -> None:
    """List the rules by family."""
    library = load_library(files)
    if in_json(json_file, lambda: [_plain(rule) for rule in library.values()]):
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
