"""``rlflow rules show``."""

from __future__ import annotations

import click

from rlflow.cli.rules.shared import load_library, named_rule, proof_fields, rule_files


@click.command("show")
@click.argument("name")
@rule_files
def show(name: str, files: tuple[str, ...]) -> None:
    """Show the rule NAME: statement, conditions, examples, proof. It may be one that is loaded by name only."""
    from rlflow.rewrite import all_shipped

    rule = named_rule(load_library(files) if files else all_shipped(), name)
    click.echo(f"{rule.name} ({rule.family})" + (f", {rule.file}:{rule.line}" if rule.file else ""))
    for title, lines in (
        ("", [rule.doc] if rule.doc else []),
        ("source", rule.source),
        ("target", rule.target),
        ("where", rule.where),
        ("let", [f"{key} = {value}" for key, value in rule.let]),
        ("origin", [rule.origin] if rule.origin else []),
        ("numerics", [rule.numerics]),
        ("derived from", rule.derived),
        ("proof", [f"{key}: {value}" for key, value in proof_fields(rule).items()] or ["none"]),
        ("fires on", rule.fires),
        ("silent on", rule.silent),
    ):
        if lines:
            click.echo(f"{title}:" if title else "")
            for line in lines:
                click.echo("\n".join(f"  {part}" for part in line.strip().splitlines()))
