"""``rlflow inspect``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import console, parse_dims
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.model_files import MODEL

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=MODEL)
@click.option("--rules", multiple=True, metavar="FILE|FAMILY", help="Rules to try instead of all that ship.")
@click.option("--freeze", multiple=True, metavar="N=1", help="Size of an open dimension.")
@json_option()
def inspect(models: tuple[str, ...], rules: tuple[str, ...], freeze: tuple[str, ...], json_file: str | None) -> None:
    """Show what a model is made of, and which rules could fire on it."""
    from rlflow.rulesets import load_library

    library = load_library(list(rules) or None)
    found = [describe(path, library, parse_dims("--freeze", freeze)) for path in models]
    if in_json(json_file, lambda: found):
        return
    out = console()
    for one in found:
        for part in _tables(one):
            out.print(part)


def describe(path: str, library: Any, freeze: dict[str, int]) -> dict[str, Any]:
    """What ``inspect`` shows, as plain values."""
    from rlflow.frontends import load_model
    from rlflow.ops import has_op
    from rlflow.rewrite import State, compiled

    imported = load_model(path, freeze=freeze or None)
    model = imported.origin.model
    graph = imported.graph
    operators = Counter(
        node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}" for node in model.graph.node
    )
    state = State(graph, compiled(library))
    moves = state.moves()
    names = compiled(library).names
    fires = Counter(names[rule] for rule in moves.rule)
    return {
        "model": str(path),
        "ir_version": model.ir_version,
        "opsets": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "bytes": len(imported.source_bytes()),
        "passthrough": imported.passthrough,
        "inputs": [_value(graph, graph.node_outputs(node)[0], graph.input_name(node)) for node in graph.inputs()],
        "outputs": [
            _value(graph, value, info.name) for value, info in zip(graph.outputs(), model.graph.output, strict=False)
        ],
        "open_dimensions": sorted(imported.origin.symbols | imported.origin.unnamed),
        "nodes": sum(operators.values()),
        "operators": dict(operators.most_common()),
        "outside_table": sorted(name for name in operators if "." in name or not has_op(name)),
        "parameters_bytes": _weights(graph),
        "graph_nodes": graph.num_nodes,
        "rules": dict(fires.most_common()),
        "notes": list(imported.notes),
    }


def _value(graph: Any, value: int, name: str) -> dict[str, Any]:
    return {"name": name, "type": graph.type_text(value)}


def _weights(graph: Any) -> int:
    """Bytes of the constants that work reads; fusion has no say in it, so any pricer will do."""
    from rlflow.price import make

    return int(make("analytic").pricer.summary(graph)["weight_bytes"])


def _tables(found: dict[str, Any]) -> list[RenderableType]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    opsets = ", ".join(f"{domain} {version}" for domain, version in found["opsets"].items())
    lines = [
        (
            f"{found['model']}: {found['nodes']} nodes, {found['bytes'] / 1e6:.2f} MB, "
            f"weights {found['parameters_bytes'] / 1e6:.2f} MB, IR {found['ir_version']}, opset {opsets}"
        )
    ]
    if found["passthrough"] is not None:
        lines.append(f"carried through as it comes: {found['passthrough']}")
    if found["open_dimensions"]:
        lines.append(f"open dimensions (--freeze sets one): {', '.join(found['open_dimensions'])}")
    parts: list[RenderableType] = [Text("\n".join(lines), style="bold")]
    for title, key in (("Inputs", "inputs"), ("Outputs", "outputs")):
        table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, show_header=False)
        for value in found[key]:
            table.add_row(value["name"], value["type"])
        parts.append(table)
    for title, key, empty in (("Operators", "operators", "none"), ("Rules that could fire", "rules", "none")):
        table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, show_header=False)
        table.add_column(overflow="ellipsis", no_wrap=True, max_width=60)
        table.add_column(justify="right")
        for name, count in found[key].items():
            table.add_row(name, str(count))
        if not found[key]:
            table.add_row(empty, "")
        parts.append(table)
    outside = ", ".join(found["outside_table"]) or "none"
    parts.append(Text(f"Operators outside the table (carried through as they are): {outside}"))
    parts.extend(Text(f"note: {note}", style="dim") for note in found["notes"])
    return parts
