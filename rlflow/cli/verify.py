"""``rlflow verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import parse_extents, parse_shapes, say
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.errors import RlflowError, VerificationFailed

if TYPE_CHECKING:
    from rlflow.equivalence import OutputCheck, Verification

_TRY = "Give inputs on which it can with --input-data."


@click.command()
@click.argument("original", metavar="A", type=MODEL)
@click.argument("other", metavar="B", type=MODEL)
@click.option("--input-data", multiple=True, metavar="FILE", help="An .npz by input names, or name=file.npy.")
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of an open dimension; or three: N=1..8..64.")
@click.option(
    "--shape", "shapes", multiple=True, metavar="X:4x128", help="Shape of an input; or three: x:1x16,4x128,8x512."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random inputs.")
@json_option()
@click.pass_context
def verify(
    context: click.Context,
    original: str,
    other: str,
    input_data: tuple[str, ...],
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    seed: int,
    json_file: str | None,
) -> None:
    """Check that B computes what A computes: run both on the same inputs, and compare their outputs.

    Differences as small as A's own rounding are allowed. Where three sizes are given (the least, the usual and the
    most), the outputs are compared at all three. Exit code 0: equal; 3: different; 1: no output can show a mistake, one
    of the two is no model, or A does not run.
    """
    from rlflow import optimizer

    found = optimizer.verify(
        original, other, seed=seed, dims=parse_extents(dims), shapes=parse_shapes(shapes),
        input_data=list(input_data) or None,
    )  # fmt: skip
    if not in_json(json_file, lambda: as_plain(original, other, seed, found)):
        say("\n".join(sentences(original, other, found)))
    if not found.passed:
        context.exit(RlflowError.exit_code if found.undecided else VerificationFailed.exit_code)


def as_plain(original: str, other: str, seed: int, found: Verification) -> dict[str, Any]:
    """The answer as plain values for JSON."""
    return {"original": str(original), "other": str(other), "seed": seed, "failure": found.failure(), **found.to_dict()}


def sentences(original: str, other: str, found: Verification) -> list[str]:
    """The answer, what each output differs by at most and on which input, and the notes."""
    if found.passed:
        lines = [f"{other} computes what {original} computes, on {', '.join(found.inputs)} inputs."]
    elif found.undecided:
        lines = [f"Whether {other} computes what {original} computes cannot be told. {found.failure()} {_TRY}"]
    else:
        lines = [f"{other} does not compute what {original} computes. {found.failure()}"]
    notes = [note for note in found.notes if found.passed or note not in (found.failure() or "")]
    return [*lines, *map(_difference, found.outputs), *(f"note: {note}" for note in notes)]


def _difference(check: OutputCheck) -> str:
    if check.run is None:
        return f"The output {check.name!r} is the same to the last bit."
    by = f"{check.max_abs:.3g}, {check.max_rel:.3g} of its largest magnitude ({check.tolerance:.3g} allowed)"
    return f"The output {check.name!r} differs most on {check.kind} input {check.run + 1}: by {by}."
