"""What the verbs of ``rlflow rules`` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rlflow.errors import UsageError

if TYPE_CHECKING:
    from rlflow.rewrite import Rule, RuleLibrary

rule_files = click.option(
    "--rules", "files", multiple=True, metavar="FILE|FAMILY", help="Rules to use instead of all that ship."
)


def load_library(files: tuple[str, ...]) -> RuleLibrary:
    """The library that ``--rules`` names, or all that ships."""
    from rlflow import optimizer

    return optimizer.load_library(list(files) or None)


def named_rule(library: RuleLibrary, name: str) -> Rule:
    """One rule of a library. Raises UsageError with the nearest name."""
    from rlflow.search.registry import did_you_mean

    if name not in library:
        raise UsageError(f"There is no rule {name!r}. {did_you_mean(name, library)}")
    return library[name]


def proof_fields(rule: Rule) -> dict[str, Any]:
    """The proof record as plain data; empty without one."""
    return {} if rule.proof is None else rule.proof.to_json()
