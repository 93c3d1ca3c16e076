"""``rlflow rules import``."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

import click

from rlflow.cli.common import console, plural
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.outputs import check_outputs
from rlflow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rlflow.synthesis.importers import ImportOutcome

_MEANINGS = {
    "as is": "true as it is, and new",
    "conditions": "true with added conditions, and new",
    "identity": "both sides are one graph here",
    "ours": "one rule of the library does it",
    "derived": "several rules of the library do it",
    "refuted": "false",
    "inexpressible": "cannot be said here",
    "undecided": "neither proved nor refuted",
}


@click.command("import")
@click.argument("file", type=click.Path())
@click.option("-o", "--out", metavar="OUT.json", help="Write the rules that are true and new to this rule file.")
@click.option(
    "--format", "kind", metavar="FORMAT", help="taso-pb, tensat or tensat-multi; by default from the file's name."
)
@click.option("--all", "everything", is_flag=True, help="Also write rules that the library has or implies.")
@click.option("-q", "--quiet", is_flag=True, help="Print the summary only.")
@json_option()
@click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes that work side by side."
)
@click.option(
    "--matches", type=click.IntRange(1), default=60, show_default=True, help="Exact comparisons for each reading."
)
@click.option("--readings", is_flag=True, help="Also judge true rules under stronger assumptions, for tables.")
def import_rules(
    file: str,
    out: str | None,
    kind: str | None,
    everything: bool,
    quiet: bool,
    json_file: str | None,
    jobs: int,
    matches: int,
    readings: bool,
) -> None:
    """Judge the rules of FILE (TASO's graph_subst.pb, Tensat's text files), and import those that are true and new.

    Interrupted, it goes on where it stopped: what was found is kept in the cache folder.
    """
    from rlflow.synthesis.importers import ImportOptions, classify_all, read_foreign, write_imported

    check_outputs({"-o": out, "--json": json_file}, [file])
    rules = read_foreign(file, kind)
    if not rules:
        raise UsageError(f"The file {file} has no rules.")
    outcomes = classify_all(
        rules,
        options=ImportOptions(matches=matches, everything=everything, all_readings=readings),
        jobs=jobs,
        progress=_progress(quiet),
    )
    printed = in_json(json_file, lambda: [dataclasses.asdict(one) for one in outcomes])
    if not printed:
        _print(outcomes, quiet)
    if out is not None:
        count = write_imported(out, outcomes)
        click.echo(f"{plural(count, 'rule')} written to {out}.", err=printed)


def _progress(quiet: bool) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{done} of {total} rules judged", err=True, nl=done == total)
        elif not quiet and (done == total or done % 50 == 0):
            click.echo(f"rlflow: {done} of {total} rules judged", err=True)

    return tell


def _print(outcomes: Sequence[ImportOutcome], quiet: bool) -> None:
    from rich.table import Table

    if not quiet:
        for outcome in outcomes:
            click.echo(str(outcome))
    table = Table("", "rules", "")
    for status, meaning in _MEANINGS.items():
        count = sum(o.status == status for o in outcomes)
        if count:
            table.add_row(status, str(count), meaning)
    table.add_row("in all", str(len(outcomes)), "")
    console().print(table)
