"""``rlflow place``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import parse_dims, plural, show
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.outputs import check_outputs, files_of
from rlflow.specs import bytes_text

if TYPE_CHECKING:
    from rich.table import Table

    from rlflow.splitting.placing import PlaceResult


@click.command()
@click.argument("model", type=MODEL)
@click.option("--devices", required=True, metavar="FILE", help="The devices and their links, as JSON (docs/split.md).")
@click.option("-o", "--output", required=True, metavar="OUT", help="File to write.")
@click.option(
    "--placer", "placers", multiple=True, metavar="NAME", help="Use this placer; repeatable. [default: several]"
)
@click.option(
    "--cost",
    type=click.Choice(["measured", "analytic"]),
    default="measured",
    show_default=True,
    help="How node times are found: a profile on this machine, or operations and bytes.",
)
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of an open dimension.")
@click.option("--input-data", multiple=True, metavar="FILE", help="An .npz by input names, or name=file.npy.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True,
    help="Seed of random inputs, and of placers that draw.",
)
@json_option("JSON, with the device of each node")
def place(
    model: str,
    devices: str,
    output: str,
    placers: tuple[str, ...],
    cost: str,
    dims: tuple[str, ...],
    input_data: tuple[str, ...],
    seed: int,
    json_file: str | None,
) -> None:
    """Place the nodes of MODEL on devices with memory limits and links, and write it with its placement.

    The placement is a device configuration of ONNX IR version 11; its time is simulated.
    """
    check_outputs({"-o": output, "--json": json_file}, [model, devices, *files_of(input_data)])
    from rlflow.splitting import placing

    found = placing.place(
        model,
        devices,
        output,
        placers=placers or placing.USUAL,
        cost=cost,
        dims=parse_dims("--dim", dims),
        input_data=list(input_data) or None,
        seed=seed,
    )
    if in_json(json_file, lambda: as_plain(found)):
        return
    show(_table(found))
    click.echo("\n".join(_sentences(output, found)))


def as_plain(found: PlaceResult) -> dict[str, Any]:
    """The answer as plain values for JSON."""
    value = found.evaluation
    return {
        "objective_ms": 1e3 * value.objective,
        "evidence": value.evidence,
        "bound_ms": 1e3 * found.bound,
        "placers_ms": {name: None if one is None else 1e3 * one for name, one in found.tried.items()},
        "devices": [
            {"name": name, "nodes": int((found.decisions == k).sum()), "weight_bytes": found.weight_bytes[k],
             "peak_bytes": float(value.peak[k]), "busy_ms": 1e3 * float(value.busy[k])}
            for k, name in enumerate(found.devices.names)
        ],
        "nodes": dict(zip(found.nodes, (found.devices.names[k] for k in found.decisions), strict=True)),
    }  # fmt: skip


def _table(found: PlaceResult) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("device")
    for column in ("nodes", "weights", "peak", "of", "busy"):
        table.add_column(column, justify="right")
    value = found.evaluation
    for k, name in enumerate(found.devices.names):
        limit = float(found.devices.memory[k])
        table.add_row(
            name,
            str(int((found.decisions == k).sum())),
            bytes_text(found.weight_bytes[k]),
            bytes_text(float(value.peak[k])),
            bytes_text(limit) if math.isfinite(limit) else "no limit",
            f"{float(value.busy[k]) / max(value.objective, 1e-30):.0%}",
        )
    return table


def _sentences(output: str, found: PlaceResult) -> list[str]:
    value = found.evaluation
    best = min(found.tried, key=lambda name: math.inf if (one := found.tried[name]) is None else one)
    gap = value.objective / found.bound if found.bound > 0 else 1.0
    what = f"{plural(len(found.nodes), 'node')} on {plural(len(found.devices), 'device')}"
    how = f"{1e3 * value.objective:.4g} ms {value.evidence}, by {best}"
    lines = [f"{output}: {what}, {how}; {gap:.3f} times what no placement is below."]
    for name, one in found.tried.items():
        lines.append(f"{name}: " + (f"{1e3 * one:.4g} ms" if one is not None else "breaks a memory limit"))
    return lines
