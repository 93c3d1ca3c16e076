"""``rlflow zoo``: the papers' benchmark models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rlflow.cli.common import VerbGroup
from rlflow.cli.json_option import in_json, json_option
from rlflow.errors import UsageError
from rlflow.specs import whole_number


@click.group(cls=VerbGroup)
def zoo() -> None:
    """Benchmark models with seeded weights: list them, write them."""


@zoo.command("list")
@json_option()
def list_models(json_file: str | None) -> None:
    """List the models: source, shapes, operators, parameters, multiply-accumulates."""
    from rlflow import zoo as models

    rows = [(models.entry(name), models.describe(name)) for name in models.names()]
    if in_json(json_file, lambda: [_plain(entry, row) for entry, row in rows]):
        return
    for entry, row in rows:
        most = ", ".join(f"{operator} {count}" for operator, count in list(row.operators.items())[:6])
        options = " ".join(f"{key}={value}" for key, value in _options(entry).items())
        click.echo(f"{entry.name}: {entry.title}")
        for label, text in (
            ("source", entry.source),
            ("shapes", entry.shapes),
            ("size", f"{row.parameters / 1e6:.2f} M parameters, {row.macs / 1e9:.3f} G multiply-accumulates"),
            ("operators", f"{row.nodes}: {most}" + (", ..." if len(row.operators) > 6 else "")),
            ("options", options),
        ):
            click.echo(f"    {label:<10}{text}")


@zoo.command("export")
@click.argument("name")
@click.option("-o", "--output", required=True, metavar="FILE", help="File to write.")
@click.option("--batch", type=click.IntRange(min=1), help="Batch size.")
@click.option(
    "--seq", type=click.IntRange(min=1), help="Sequence length, cached tokens or time steps, where the model has them."
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the weights. [default: 0]")
@click.option("--opset", type=click.IntRange(min=7), help="ONNX opset.")
@click.option("--set", "sizes", multiple=True, metavar="OPTION=VALUE", help="Any other option that `zoo list` shows.")
def export(
    name: str,
    output: str,
    batch: int | None,
    seq: int | None,
    seed: int | None,
    opset: int | None,
    sizes: tuple[str, ...],
) -> None:
    """Write the model NAME as ONNX."""
    from rlflow import zoo as models
    from rlflow.files import check_output, write_atomically

    target = check_output(output, None)
    entry = models.entry(name)
    own: dict[str, Any] = {"batch": batch, "seq": seq, "seed": seed, "opset": opset}
    model = models.build(name, **_together(entry, own, sizes))
    write_atomically(target, model.SerializeToString(deterministic=True))
    click.echo(f"{target}: {entry.title}, {len(model.graph.node)} nodes, {model.ByteSize() / 1e6:.1f} MB")


def _options(entry: object) -> dict[str, object]:
    own = {"batch": entry.batch, **entry.options}  # type: ignore[attr-defined]
    return own if entry.seq is None else {**own, "seq": entry.seq}  # type: ignore[attr-defined]


def _plain(entry: object, row: object) -> dict[str, object]:
    fields = {name: getattr(entry, name) for name in ("name", "title", "source", "shapes", "opset")}
    counted = {name: getattr(row, name) for name in ("parameters", "macs", "nodes", "operators", "inputs", "outputs")}
    return {**fields, **counted, "options": _options(entry)}


def _together(entry: object, own: dict[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    """The options that have one of their own, where given, and those of ``--set``."""
    found = {key: value for key, value in own.items() if value is not None}
    for text in texts:
        key, value = _size(entry, text)
        if key in found:
            raise UsageError(f"The option {key!r} of the model is given twice; give it once.")
        found[key] = value
    return found


def _size(entry: object, text: str) -> tuple[str, int | bool | str]:
    key, equals, value = text.partition("=")
    if not equals or not value:
        raise UsageError(f"The option --set {text} has no value; write --set {key}=VALUE.")
    default = entry.options.get(key)  # type: ignore[attr-defined]
    if isinstance(default, bool) and value.lower() in ("true", "false"):
        return key, value.lower() == "true"
    number = None if isinstance(default, str) else whole_number(value)
    return key, value if number is None else number
