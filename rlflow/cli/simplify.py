"""``rlflow simplify``."""

from __future__ import annotations

import click

from rlflow.cli.common import one_output, parse_dims
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.outputs import check_outputs, files_of
from rlflow.errors import UsageError


@click.command()
@click.argument("model", metavar="IN", type=MODEL)
@click.argument("out", metavar="[OUT]", required=False)
@click.option("-o", "--output", metavar="OUT", help="File to write; or give it as the second argument.")
@click.option("--freeze", multiple=True, metavar="N=1", help="Size of an open dimension, for good.")
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of an open dimension, to compare outputs at.")
@click.option("--input-data", multiple=True, metavar="FILE", help="An .npz by input names, or name=file.npy.")
@click.option("--no-verify", is_flag=True, help="Do not compare the outputs with the original's.")
@click.option(
    "--keep-initializer-inputs", is_flag=True, help="Keep weights that are also listed as inputs (none can be folded)."
)
@json_option("the report as JSON")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
def simplify(
    model: str,
    out: str | None,
    output: str | None,
    freeze: tuple[str, ...],
    dims: tuple[str, ...],
    input_data: tuple[str, ...],
    no_verify: bool,
    keep_initializer_inputs: bool,
    json_file: str | None,
    quiet: bool,
) -> None:
    """Clean IN up and write it to OUT: folded constants and normalisations, no idle nodes, the same outputs.

    Bodies of If, Loop and Scan are cleaned up, too. Names of inputs and outputs stay. Nothing is timed; rlflow optimize
    looks for what is faster.
    """
    target = one_output(out, output)
    if target is None:
        raise UsageError("Say where the result goes: rlflow simplify IN OUT, or -o OUT.")
    check_outputs({"OUT": target, "--json": json_file}, [model, *files_of(input_data)])
    from rlflow.runtime import Worker

    with Worker() as worker:
        if not no_verify:
            worker.begin_copied()  # it starts while the rest is imported and the model is read
        from rlflow import optimizer

        found = optimizer.simplified(
            model,
            output=target,
            worker=worker,
            freeze=parse_dims("--freeze", freeze),
            dims=parse_dims("--dim", dims),
            input_data=list(input_data) or None,
            verify=not no_verify,
            keep_initializer_inputs=keep_initializer_inputs,
        ).report
    if not in_json(json_file, found.to_dict) and not quiet:
        before, after = (sum(counts.values()) for counts in (found.operators_before, found.operators_after))
        checked = "outputs equal" if found.verified is not None else "outputs not compared"
        if not found.improved:
            checked = found.reason.partition("; --")[0]  # what follows is advice for rlflow optimize
        click.echo(f"{target}: {before} -> {after} nodes, {checked}, {found.seconds_total:.2f} s")
        for note in found.notes:
            click.echo(f"note: {note}")
