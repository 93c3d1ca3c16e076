"""``rlflow rules show``."""

from __future__ import annotations

import click

from rlflow.cli.common import say
from rlflow.cli.rules.shared import load_library, named_rule, proof_fields, rule_files

#: What everybody wants to know of a proof.
_PROOF = ("scope", "method", "size")


@click.command("show")
@click.argument("name")
@click.option("-v", "--verbose", is_flag=True, help="Show all of the proof record.")
@rule_files
def show(name: str, verbose: bool, files: tuple[str, ...]) -> None:
    """Show the rule NAME: statement, conditions, examples, proof. It may be one that is loaded by name only."""
    from rlflow.rewrite import all_shipped

    rule = named_rule(load_library(files) if files else all_shipped(), name)
    record = proof_fields(rule)
    say(f"{rule.name} ({rule.family})" + (f", {rule.file}:{rule.line}" if rule.file else ""))
    for title, lines in (
        ("", [rule.doc] if rule.doc else []),
        ("source", rule.source),
        ("target", rule.target),
        ("where", rule.where),
        ("let", [f"{key} = {value}" for key, value in rule.let]),
        ("origin", [rule.origin] if rule.origin else []),
        ("numerics", [rule.numerics]),
        ("derived from", rule.derived),
        ("proof", [f"{key}: {value}" for key, value in record.items() if verbose or key in _PROOF] or ["none"]),
        ("fires on", rule.fires),
        ("silent on", rule.silent),
    ):
        if lines:
            say(f"{title}:" if title else "")
            for line in lines:
                say("\n".join(f"  {part}" for part in line.strip().splitlines()))
