"""``rlflow rules explain``, and ``rlflow explain``, which asks the same with the model first."""

from __future__ import annotations

import re
from typing import Any

import click

from rlflow.cli.common import parse_dims, say
from rlflow.cli.model_files import MODEL
from rlflow.cli.rules.shared import load_library, named_rule, rule_files
from rlflow.errors import UsageError

_NODE = click.option("--node", metavar="NAME", help="Look only at this node: its name, or its canonical position.")
_AT = re.compile(r"\bat position (\d+)\b")
_FREEZE = click.option("--freeze", multiple=True, metavar="N=1", help="Size of an open dimension.")


@click.command("explain")
@click.argument("name")
@click.argument("model", type=MODEL)
@_NODE
@_FREEZE
@rule_files
def explain(name: str, model: str, node: str | None, freeze: tuple[str, ...], files: tuple[str, ...]) -> None:
    """Say where the rule NAME fires in MODEL, and why it does not elsewhere."""
    _explain(name, model, node, freeze, files)


@click.command("explain")
@click.argument("places", metavar="[RULE] MODEL", nargs=-1, shell_complete=MODEL.shell_complete)
@click.option("--rule", "name", metavar="NAME", help="The rule, if it does not come first; see rlflow rules list.")
@_NODE
@_FREEZE
@rule_files
@click.pass_context
def explain_model(
    context: click.Context,
    places: tuple[str, ...],
    name: str | None,
    node: str | None,
    freeze: tuple[str, ...],
    files: tuple[str, ...],
) -> None:
    """Say where a rule fires in MODEL, and why it does not elsewhere (as rlflow rules explain does)."""
    given = places if name is None else (name, *places)
    if len(given) != 2:
        raise UsageError("Name one rule and one model: rlflow explain RULE MODEL, or rlflow explain MODEL --rule RULE.")
    _explain(given[0], MODEL.convert(given[1], None, context), node, freeze, files)


def _explain(name: str, model: str, node: str | None, freeze: tuple[str, ...], files: tuple[str, ...]) -> None:
    from rlflow.frontends import load_model
    from rlflow.rewrite import explain as explain_rule

    rule = named_rule(load_library(files), name)
    imported = load_model(model, freeze=parse_dims("--freeze", freeze) or None)
    sentences = explain_rule(imported.graph, rule, None if node is None else _identifier(imported, node))
    for sentence in sentences or [f"No node of the model could be the root of {name}."]:
        say(_AT.sub(lambda found: _place(imported, found), sentence))


def _place(imported: Any, found: re.Match[str]) -> str:
    """A node by its name, where the import left it one; the position is what --node takes, too."""
    at = int(found[1])
    origin = imported.origin.nodes.get(imported.graph.order()[at])
    return f"{origin.node.name} (position {at})" if origin is not None and origin.node.name else found[0]


def _identifier(imported: Any, node: str) -> int:
    """The core's number of a node given by name, by the name of a value that it makes, or by position."""
    from rlflow.specs import did_you_mean, whole_number

    graph = imported.graph
    order, named = graph.order(), imported.origin.nodes
    names = {named[n].node.name: n for n in order if n in named and named[n].node.name}
    made = {output: n for n in order if n in named for output in named[n].node.output}
    if node in names or node in made:
        return int(names.get(node, made.get(node, -1)))
    position = whole_number(node.removeprefix("-"))
    if position is None:
        raise UsageError(f"The model has no node {node!r}, or the import made it part of another. "
                         f"{did_you_mean(node, {*names, *made})}")  # fmt: skip
    if node.startswith("-") or position >= len(order):
        raise UsageError(f"The model has {len(order)} nodes; there is none at position {node}.")
    return int(order[position])
