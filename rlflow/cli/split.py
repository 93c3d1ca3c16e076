"""``rlflow split``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import parse_dims, plural
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.outputs import check_folder, check_outputs, files_of
from rlflow.specs import byte_count, bytes_text

if TYPE_CHECKING:
    from rlflow.splitting import SplitResult


@click.command()
@click.argument("model", type=MODEL)
@click.option("-n", "--parts", type=click.IntRange(min=1), default=2, show_default=True, help="How many parts.")
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder to make.")
@click.option(
    "--cost",
    type=click.Choice(["measured", "analytic"]),
    default="measured",
    show_default=True,
    help="How the times of parts are found: runs on this machine, or operations and bytes.",
)
@click.option("--memory", metavar="200MB", help="Weights and values that a part may need at most.")
@click.option("--bandwidth", metavar="1GB", help="Bytes a second between the parts. [default: this machine's]")
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of an open dimension.")
@click.option("--input-data", multiple=True, metavar="FILE", help="An .npz by input names, or name=file.npy.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random inputs.")
@click.option("--no-verify", is_flag=True, help="Do not compare the chain of parts with the whole.")
@json_option()
def split(
    model: str,
    parts: int,
    output: str,
    cost: str,
    memory: str | None,
    bandwidth: str | None,
    dims: tuple[str, ...],
    input_data: tuple[str, ...],
    seed: int,
    no_verify: bool,
    json_file: str | None,
) -> None:
    """Cut MODEL into consecutive parts of equal time, each a model of its own, for `rlflow run`.

    Nothing is written where the chain of parts does not compute what the whole computes.
    """
    check_folder(output, {"--json": json_file})
    check_outputs({"--json": json_file}, [model, *files_of(input_data)])
    from rlflow.splitting.cutting import BANDWIDTH
    from rlflow.splitting.cutting import split as split_model

    found = split_model(
        model,
        output,
        parts,
        cost=cost,
        memory=None if memory is None else byte_count(memory, "the option --memory"),
        bandwidth=BANDWIDTH if bandwidth is None else float(byte_count(bandwidth, "the option --bandwidth")),
        dims=parse_dims("--dim", dims),
        input_data=list(input_data) or None,
        seed=seed,
        check=not no_verify,
    )
    if not in_json(json_file, lambda: as_plain(found)):
        click.echo("\n".join(sentences(output, found)))


def as_plain(found: SplitResult) -> dict[str, Any]:
    """The answer as plain values for JSON."""
    return {
        "folder": str(found.folder),
        "parts": [
            {
                "file": part.file,
                "nodes": nodes,
                "weight_bytes": part.weight_bytes,
                "handed_bytes": handed,
                "ms": 1e3 * time,
            }
            for part, nodes, handed, time in zip(
                found.manifest.parts, found.nodes, found.handed, found.times, strict=True
            )
        ],
        "verification": None if found.verification is None else found.verification.to_dict(),
        "notes": list(found.notes),
    }


def sentences(output: str, found: SplitResult) -> list[str]:
    """A line for each part, the outcome of the check, and the notes."""
    lines = []
    for part, nodes, handed, time in zip(found.manifest.parts, found.nodes, found.handed, found.times, strict=True):
        gives = f", hands over {bytes_text(handed)}" if handed else ""
        what = f"{plural(nodes, 'node')}, {bytes_text(part.weight_bytes)} of weights, {1e3 * time:.3g} ms{gives}"
        lines.append(f"{output}/{part.file}: {what}")
    ideal = sum(found.times) / max(found.times)
    lines.append(f"As a pipeline at most {ideal:.2f} times the requests a second of one worker.")
    if found.verification is None:
        lines.append("The outputs were not compared.")
    else:
        exact = all(check.run is None for check in found.verification.outputs)
        how = "to the last bit" if exact else "up to roundings that the model itself shows"
        lines.append(f"The chain of parts computes what the whole computes, {how}.")
    return [*lines, *(f"note: {note}" for note in found.notes)]
