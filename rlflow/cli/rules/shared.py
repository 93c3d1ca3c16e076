"""What the verbs of ``rlflow rules`` share."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from rlflow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from rich.progress import Progress

    from rlflow.rewrite import Rule, RuleLibrary

rule_files = click.option(
    "--rules", "files", multiple=True, metavar="FILE|FAMILY", help="Use these rules instead of all that ship."
)


def load_library(files: tuple[str, ...]) -> RuleLibrary:
    """The library that ``--rules`` names, or all that ships."""
    from rlflow import optimizer

    return optimizer.load_library(list(files) or None)


def named_rule(library: RuleLibrary, name: str) -> Rule:
    """One rule of a library. Raises UsageError with the nearest name."""
    from rlflow.specs import did_you_mean

    if name not in library:
        raise UsageError(f"There is no rule {name!r}. {did_you_mean(name, library, 'rlflow rules list')}")
    return library[name]


def proof_fields(rule: Rule) -> dict[str, Any]:
    """The proof record as plain data; empty without one."""
    return {} if rule.proof is None else rule.proof.to_json()


def rules_named(items: Sequence[str], everything: bool) -> list[Rule]:
    """The rules of files and folders, and those of the package by name or family, as written: their records may be
    stale or missing. Raises UsageError for what is neither, and for nothing at all."""
    from rlflow.rewrite import read_rules
    from rlflow.rewrite.library import rule_files_in
    from rlflow.rewrite.paths import library_files, named_files
    from rlflow.specs import did_you_mean

    if not items and not everything:
        raise UsageError("Which rules? Name files, rules or families, or say --all.")
    shipped = read_rules([*library_files(), *named_files()])
    found = list(shipped) if everything else []
    for item in items:
        if os.sep in item or item.endswith(".json") or os.path.exists(item):
            found += read_rules(rule_files_in([item]))
            continue
        named = [rule for rule in shipped if item in (rule.name, rule.family)]
        if not named:
            names = {name for rule in shipped for name in (rule.name, rule.family)}
            raise UsageError(f"{item!r} is no file, rule or family. {did_you_mean(item, names, 'rlflow rules list')}")
        found += named
    return list({(rule.file, rule.name): rule for rule in found}.values())


class Bar:
    """A progress bar on stderr; nothing where that is no terminal."""

    def __init__(self, what: str, total: int) -> None:
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn(what),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[last]}"),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(what, total=total, last="")

    def __enter__(self) -> Bar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, last: str) -> None:
        """One more is done."""
        if self._bar is not None:
            self._bar.advance(self._task)
            self._bar.update(self._task, last=last)
