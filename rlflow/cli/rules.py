"""``rlflow rules``: what may be rewritten, and why it may."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import parse_dims, plural
from rlflow.errors import ProofError, RlflowError, UsageError

if TYPE_CHECKING:
    from rlflow.rewrite import Rule, RuleLibrary

_FILES = click.option(
    "--rules", "files", multiple=True, metavar="FILE|FAMILY", help="Rules to use instead of all that ship."
)


@click.group()
def rules() -> None:
    """The substitutions: list them, show one, prove them, ask why one does not fire."""


@rules.command("list")
@_FILES
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_rules(files: tuple[str, ...], as_json: bool) -> None:
    """List the rules by family."""
    library = _library(files)
    if as_json:
        click.echo(json.dumps([_plain(rule) for rule in library.values()], indent=2, ensure_ascii=False))
        return
    for family in library.families:
        members = [rule for rule in library.values() if rule.family == family]
        click.echo(f"{family} ({plural(len(members), 'rule')})")
        for rule in members:
            click.echo(f"  {rule.name}" + (f": {rule.doc}" if rule.doc else ""))


@rules.command("show")
@click.argument("name")
@_FILES
def show(name: str, files: tuple[str, ...]) -> None:
    """Show the rule NAME: statement, conditions, examples, proof."""
    rule = _rule(_library(files), name)
    click.echo(f"{rule.name} ({rule.family})" + (f", {rule.file}:{rule.line}" if rule.file else ""))
    for title, lines in (
        ("", [rule.doc] if rule.doc else []),
        ("source", rule.source),
        ("target", rule.target),
        ("where", rule.where),
        ("let", [f"{key} = {value}" for key, value in rule.let]),
        ("origin", [rule.origin] if rule.origin else []),
        ("numerics", [rule.numerics]),
        ("proof", [f"{key}: {value}" for key, value in _proof(rule).items()] or ["none"]),
        ("fires on", rule.fires),
        ("silent on", rule.silent),
    ):
        if lines:
            click.echo(f"{title}:" if title else "")
            for line in lines:
                click.echo("\n".join(f"  {part}" for part in line.strip().splitlines()))


@rules.command("check")
@click.argument("files", metavar="FILE...", nargs=-1)
@click.option("-q", "--quiet", is_flag=True, help="Print refused rules only.")
def check(files: tuple[str, ...], quiet: bool) -> None:
    """Prove the rules of FILEs, or of the package, again. Exits with 1 where one is refused."""
    from rlflow.rewrite import read_rules
    from rlflow.synthesis.prove import prove

    found = read_rules(files) if files else list(_library(()).values())
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


@rules.command("explain")
@click.argument("name")
@click.argument("model")
@click.option("--node", type=int, help="Position of one node in the graph's canonical order.")
@click.option("--freeze", multiple=True, metavar="N=1", help="Size of a symbolic dimension.")
@_FILES
def explain(name: str, model: str, node: int | None, freeze: tuple[str, ...], files: tuple[str, ...]) -> None:
    """Say where the rule NAME fires in MODEL, and why it does not elsewhere."""
    from rlflow.frontends import load_model
    from rlflow.rewrite import explain as explain_rule

    rule = _rule(_library(files), name)
    graph = load_model(model, freeze=parse_dims("--freeze", freeze) or None).graph
    order = graph.order()
    if node is not None and not 0 <= node < len(order):
        raise UsageError(f"The model has {len(order)} nodes; there is none at position {node}.")
    sentences = explain_rule(graph, rule, None if node is None else order[node])
    for sentence in sentences or [f"No node of the model could be the root of {name}."]:
        click.echo(sentence)


def _library(files: tuple[str, ...]) -> RuleLibrary:
    from rlflow.optimizer import load_library

    return load_library(list(files) or None)


def _rule(library: RuleLibrary, name: str) -> Rule:
    from rlflow.search.registry import did_you_mean

    if name not in library:
        raise UsageError(f"There is no rule {name!r}. {did_you_mean(name, library)}")
    return library[name]


def _proof(rule: Rule) -> dict[str, Any]:
    return {} if rule.proof is None else rule.proof.to_json()


def _plain(rule: Rule) -> dict[str, Any]:
    names = ("name", "family", "doc", "source", "target", "where", "origin", "numerics", "file", "line")
    return {**{name: getattr(rule, name) for name in names}, "let": dict(rule.let), "proof": _proof(rule) or None}
