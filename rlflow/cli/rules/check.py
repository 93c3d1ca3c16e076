"""``rlflow rules check``."""

from __future__ import annotations

import click

from rlflow.cli.common import plural
from rlflow.cli.rules.common import load_library
from rlflow.errors import ProofError, RlflowError


@click.command("check")
@click.argument("files", metavar="FILE...", nargs=-1)
@click.option("-q", "--quiet", is_flag=True, help="Print refused rules only.")
def check(files: tuple[str, ...], quiet: bool) -> None:
    """Prove the rules of FILEs, or of the package, again. Exits with 1 where one is refused."""
    from rlflow.rewrite import read_rules
    from rlflow.synthesis.prove import prove

    found = read_rules(files) if files else list(load_library(()).values())
    refused = 0
    for rule in found:
        try:
            verdict = prove(rule)
            reason = None if verdict.proved else verdict.reason
        except RlflowError as error:
            reason = str(error)
        refused += reason is not None
        if reason is not None or not quiet:
            click.echo(f"{rule.name}: " + ("proved" if reason is None else f"REFUSED, {reason}"))
    if refused:
        raise ProofError(f"{plural(refused, 'rule')} of {len(found)} could not be proved; see above.")
    if not quiet:
        click.echo(f"{plural(len(found), 'rule')} proved.")
