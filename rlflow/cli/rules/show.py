"""``rlflow rules show``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from rlflow.cli.common import say, terminal_width
from rlflow.cli.outputs import check_outputs, check_page
from rlflow.cli.rules.shared import load_library, named_rule, proof_fields, rule_files

#: What everybody wants to know of a proof.
_PROOF = ("scope", "method", "size")


@click.command("show")
@click.argument("name")
@click.option("--html", "page_file", metavar="FILE", help="Draw both sides as graphs, in one HTML file.")
@click.option("-v", "--verbose", is_flag=True, help="Show all of the proof record.")
@rule_files
def show(name: str, page_file: str | None, verbose: bool, files: tuple[str, ...]) -> None:
    """Show the rule NAME: picture, statement, conditions, examples, proof. It may be one that is loaded by name only.

    In the picture an operator stands above its operands; the page draws what the rule removes and adds in colour.
    """
    check_outputs({"--html": page_file}, files)
    check_page("--html", page_file)
    from rlflow.report.rule_drawing import rule_page, rule_trees, side_by_side
    from rlflow.rewrite import all_shipped

    rule = named_rule(load_library(files) if files else all_shipped(), name)
    if page_file is not None:
        from rlflow.files import write_atomically

        write_atomically(page_file, rule_page(rule).encode())
    record = proof_fields(rule)
    say(f"{rule.name} ({rule.family})" + (f", {rule.file}:{rule.line}" if rule.file else ""))
    say(f"\n  {rule.doc}\n" if rule.doc else "")
    click.echo("picture:")  # never wrapped: its columns mean something
    for line in side_by_side(*rule_trees(rule), terminal_width() - 2):
        click.echo(f"  {line}")
    for title, lines in (
        ("source", rule.source),
        ("target", rule.target),
        ("where", _conditions(rule.where)),
        ("let", [f"{key} = {value}" for key, value in rule.let]),
        ("origin", [rule.origin] if rule.origin else []),
        ("numerics", [rule.numerics]),
        ("derived from", rule.derived),
        ("proof", [f"{key}: {value}" for key, value in record.items() if verbose or key in _PROOF] or ["none"]),
        ("fires on", rule.fires),
        ("silent on", rule.silent),
    ):
        if lines:
            say(f"{title}:")
            for line in lines:
                say("\n".join(f"  {part}" for part in line.strip().splitlines()))


def _conditions(where: Sequence[str]) -> list[str]:
    """Each condition, and what it says where that can be said in words."""
    from rlflow.report.rule_words import condition_in_words

    wide = max((len(one) for one in where if condition_in_words(one)), default=0)
    return [f"{one:<{wide}}   {words}" if (words := condition_in_words(one)) else one for one in where]
