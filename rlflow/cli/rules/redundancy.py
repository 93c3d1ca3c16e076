"""``rlflow rules redundancy``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rlflow.cli.common import plural
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.rules.shared import load_library, rule_files
from rlflow.errors import UsageError


@click.command("redundancy")
@rule_files
@click.option("--steps", type=click.IntRange(1, 4), default=2, show_default=True, help="Longest derivation.")
@click.option("--samples", type=click.IntRange(1), default=24, show_default=True, help="Graphs for each rule.")
@click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes that work side by side."
)
@click.option("--write", is_flag=True, help="Write the tags into the package's rule files.")
@json_option()
def redundancy(files: tuple[str, ...], steps: int, samples: int, jobs: int, write: bool, json_file: str | None) -> None:
    """List the rules that follow from other rules of the library, and from which.

    The others are a basis: they derive every rule that is listed.
    """
    from rlflow.rewrite.paths import library_files
    from rlflow.synthesis.redundancy import redundant, write_tags

    if write and files:
        raise UsageError("Tags are about the whole library that ships: --write goes without --rules.")
    library = load_library(files)
    found = redundant(library, steps=steps, samples=samples, jobs=jobs, progress=_progress)
    if not in_json(json_file, lambda: {name: list(chain) for name, chain in found.items()}):
        for name, chain in found.items():
            click.echo(f"{name}: {', '.join(chain)}")
        click.echo(f"{plural(len(found), 'rule')} of {len(library)} follow from the other {len(library) - len(found)}.")
    if write:
        changed = write_tags((Path(path) for path in library_files()), found)
        click.echo(f"{plural(changed, 'file')} changed.", err=True)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {total} rules", err=True, nl=done == total)
