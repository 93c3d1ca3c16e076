"""``rlflow optimize``."""

from __future__ import annotations

import click

from rlflow.cli.common import console, parse_dims
from rlflow.errors import UsageError


@click.command()
@click.argument("model", metavar="IN")
@click.argument("out", metavar="[OUT]", required=False)
@click.option("-o", "--output", metavar="OUT", help="File to write. Without it, only the report is made.")
@click.option(
    "--search",
    default="backtracking",
    show_default=True,
    help="Strategy, with options: backtracking:alpha=1.1,queue=500.",
)
@click.option(
    "--cost",
    default="onnxruntime",
    show_default=True,
    help="Cost model: onnxruntime, openvino or cudnn (measure regions), end-to-end (times whole graphs), analytic "
    "(no clock).",
)
@click.option(
    "--budget", default="60s", show_default=True, help="60s, 500c (candidates), 50x (expansions) or 20m (measurements)."
)
@click.option(
    "--patience",
    default="auto",
    show_default=True,
    metavar="N|off|auto",
    help="End the search after N expansions without a worthwhile gain; auto: the strategy's own, if seconds limit it.",
)
@click.option("--fresh", is_flag=True, help="Search again and compare in full, whatever earlier runs found and kept.")
@click.option("--alpha", type=float, help="How much dearer than the best a graph may be and still be followed.")
@click.option(
    "--train-budget",
    metavar="STEPS|60s",
    help="Train xrlflow's agent on the model first, for so many steps or seconds beside the budget.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything random.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of the runtime.")
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of a symbolic dimension, for measuring only.")
@click.option(
    "--freeze", multiple=True, metavar="N=1", help="Size of a symbolic dimension, for good: specialises the model."
)
@click.option(
    "--input-data",
    multiple=True,
    metavar="FILE",
    help="Inputs to verify on: a .npz file, or name=file.npy (several times).",
)
@click.option("--rules", multiple=True, metavar="FILE|FAMILY", help="Rules to use instead of all that ship.")
@click.option(
    "--runtime",
    type=click.Choice(["onnxruntime", "openvino", "gpu", "cudnn", "torch"]),
    default="onnxruntime",
    show_default=True,
    help="Runtime that times and runs the result; gpu: ONNX Runtime on CUDA, else torch, else cudnn.",
)
@click.option("--provider", metavar="NAME", help="Execution provider of ONNX Runtime: cuda, or any full name.")
@click.option(
    "--measure",
    type=click.Choice(["eager", "lazy"]),
    default="eager",
    show_default=True,
    help="lazy: regions like measured ones are priced by interpolation; the final comparison is timed all the same.",
)
@click.option(
    "--measure-cmd",
    metavar="COMMAND",
    help="Time on your own device: a command that prints milliseconds, 'ssh board run.sh {model}'.",
)
@click.option(
    "--measure-jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Such commands at a time ({slot})."
)
@click.option(
    "--measure-timeout", type=float, default=300.0, show_default=True, help="Seconds that one such command may take."
)
@click.option("--gate-seconds", type=float, help="Time of the final comparison. [default: a third of the budget]")
@click.option(
    "--numerics",
    type=click.Choice(("exact", "reassociates", "unstable")),
    help="Loosest rounding a rule may have; exact: every element the same bit for bit.",
)
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON.")
@click.option(
    "--egraph-out", metavar="FILE", help="Write the first e-graph of eqsat or tensat, as extraction-gym JSON."
)
@click.option("--profile-rules", is_flag=True, help="Show what each rule took: tried, matched, applied, time.")
@click.option("--no-verify", is_flag=True, help="Do not compare the outputs with the original's.")
@click.option(
    "--keep-initializer-inputs",
    is_flag=True,
    help="Keep weights that are also listed as inputs (a runtime cannot fold these).",
)
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Show everything; errors come with their traceback.")
def optimize(
    model: str,
    out: str | None,
    output: str | None,
    search: str,
    cost: str,
    budget: str,
    patience: str,
    fresh: bool,
    alpha: float | None,
    train_budget: str | None,
    seed: int,
    threads: int,
    dims: tuple[str, ...],
    freeze: tuple[str, ...],
    input_data: tuple[str, ...],
    rules: tuple[str, ...],
    runtime: str,
    provider: str | None,
    measure: str,
    measure_cmd: str | None,
    measure_jobs: int,
    measure_timeout: float,
    gate_seconds: float | None,
    numerics: str | None,
    json_file: str | None,
    egraph_out: str | None,
    profile_rules: bool,
    no_verify: bool,
    keep_initializer_inputs: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Search for a faster model that computes the same, and write it to OUT.

    The result is never slower (it is timed against the original) and never different (its outputs are compared). Where
    nothing is gained, OUT receives the model as it came. Ctrl-C ends the search with the best found so far.
    """
    if quiet and verbose:
        raise UsageError("--quiet and --verbose contradict each other; give one of them.")
    if out is not None and output is not None and out != output:
        raise UsageError(f"The output is given twice, {out} and {output}; give it once.")
    target = output or out

    from rlflow import optimizer
    from rlflow.cli.common import device_command, with_egraph_out
    from rlflow.cli.progress import reporter
    from rlflow.files import check_output, same_place
    from rlflow.report import render, write_json

    if json_file is not None:
        check_output(json_file, model)
        if target is not None and same_place(json_file, target):
            raise UsageError(f"The report and the model cannot both be written to {target}.")
    strategy = with_egraph_out(search, egraph_out, model)
    with reporter(quiet) as told:
        result = optimizer.optimize(
            model,
            output=target,
            search=strategy,
            cost=cost,
            budget=budget,
            patience=patience,
            fresh=fresh,
            alpha=alpha,
            train_budget=train_budget,
            seed=seed,
            threads=threads,
            dims=parse_dims("--dim", dims),
            freeze=parse_dims("--freeze", freeze),
            input_data=list(input_data) or None,
            rules=list(rules) or None,
            runtime=runtime,
            provider=provider,
            measure=measure,
            measure_cmd=device_command(measure_cmd, measure_jobs, measure_timeout),
            gate_seconds=gate_seconds,
            numerics=numerics,
            verify=not no_verify,
            profile_rules=profile_rules,
            keep_initializer_inputs=keep_initializer_inputs,
            on_progress=told.progress,
            on_stage=told.stage,
        )
    if json_file is not None:
        write_json(result.report, json_file)
    if not quiet:
        console().print(render(result.report, verbose=verbose))
