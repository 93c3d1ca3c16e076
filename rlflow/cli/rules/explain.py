"""``rlflow rules explain``."""

from __future__ import annotations

import click

from rlflow.cli.common import parse_dims
from rlflow.cli.rules.common import load_library, named_rule, rule_files
from rlflow.errors import UsageError


@click.command("explain")
@click.argument("name")
@click.argument("model")
@click.option("--node", type=int, help="Position of one node in the graph's canonical order.")
@click.option("--freeze", multiple=True, metavar="N=1", help="Size of a symbolic dimension.")
@rule_files
def explain(name: str, model: str, node: int | None, freeze: tuple[str, ...], files: tuple[str, ...]) -> None:
    """Say where the rule NAME fires in MODEL, and why it does not elsewhere."""
    from rlflow.frontends import load_model
    from rlflow.rewrite import explain as explain_rule

    rule = named_rule(load_library(files), name)
    graph = load_model(model, freeze=parse_dims("--freeze", freeze) or None).graph
    order = graph.order()
    if node is not None and not 0 <= node < len(order):
        raise UsageError(f"The model has {len(order)} nodes; there is none at position {node}.")
    sentences = explain_rule(graph, rule, None if node is None else order[node])
    for sentence in sentences or [f"No node of the model could be the root of {name}."]:
        click.echo(sentence)
