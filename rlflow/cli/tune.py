"""``rlflow tune``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from rlflow.cli.common import DEVICE, WORKERS, NameChoice, console, parse_dims
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.outputs import check_files
from rlflow.cli.sections import SectionedCommand

if TYPE_CHECKING:
    from rlflow.tuned import TunedModel
    from rlflow.tuner import TuningRound


def _methods() -> list[str]:
    from rlflow.tuner import METHODS

    return list(METHODS)


_SECTIONS = {
    "Search": ("budget", "method", "generate", "gate_seconds", "threads", "seed"),
    "Inputs": ("dims", "input_data"),
    "Who works": ("workers", "device"),
    "Result": ("output", "json_file", "quiet"),
}  # fmt: skip


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("model", metavar="MODEL", type=MODEL)
@click.option("-o", "--output", required=True, metavar="FOLDER", help="Where the model, the trials and a report go.")
@click.option("--budget", default="5m", show_default=True, help="A time (5m), or programs to measure (200meas).")
@click.option("--method", default="harl", show_default=True, type=NameChoice(_methods), help="How to search.")
@click.option("--generate", is_flag=True, help="Also try code that TVM generates; a session has to name its library.")
@click.option(
    "--gate-seconds", type=float, help="Seconds for the final comparison. [default: a fifth of the budget, at most 20]"
)
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of the runtime.")
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of an open dimension.")
@click.option("--input-data", multiple=True, metavar="FILE", help="An .npz by input names, or name=file.npy.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True,
    help="Seed of the search, and of random inputs.",
)
@WORKERS
@DEVICE
@json_option("the report as JSON")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
def tune(
    model: str,
    output: str,
    budget: str,
    method: str,
    generate: bool,
    gate_seconds: float | None,
    threads: int,
    dims: tuple[str, ...],
    input_data: tuple[str, ...],
    seed: int,
    workers: str,
    device: str | None,
    json_file: str | None,
    quiet: bool,
) -> None:
    """Choose the kernels of MODEL and their parameters by measuring, with HARL or another search.

    These are rlflow's own kernels (see `rlflow optimize --kernels`) and, with --generate, code of TVM for depthwise and
    grouped convolutions and for products of few rows; that needs a C compiler and pip install 'rlflow[tuner]'. Run it
    again with the same FOLDER, and it goes on where it was. Ctrl-C keeps the best so far. The method harl needs torch:
    pip install 'rlflow[rl]'.
    """
    from rlflow import tuned
    from rlflow.crew import Workers
    from rlflow.equivalence.sizes import require_open
    from rlflow.frontends import load_model
    from rlflow.search import InterruptGuard, StopToken

    check_files(output, tuned.NAMES, {"--json": json_file})
    out, stop, sizes = console(stderr=True), StopToken(), parse_dims("--dim", dims)
    if sizes:
        require_open(sizes, [load_model(model)])

    def report(done: TuningRound, name: str) -> None:
        if not quiet:
            out.print(f"{done.trials:>5} measured  {done.best * 1e6:>10.1f} us  {name}", highlight=False, markup=False)

    with InterruptGuard(stop):
        found = tuned.tune(
            model, output, budget=budget, by=method, seed=seed, threads=threads, dims=sizes,
            input_data=list(input_data) or None, gate_seconds=gate_seconds, on_round=report, stop=stop,
            workers=Workers.parse(workers, device), generate=generate,
        )  # fmt: skip
    if not in_json(json_file, lambda: dataclasses.asdict(found)):
        _show(found)


def _show(found: TunedModel) -> None:
    for one in found.nodes:
        options = " ".join(f"{name}={value}" for name, value in one.tuning.items())
        chosen = f"{one.algorithm} {options}".strip() or "ONNX Runtime's own"
        click.echo(f"{one.own_us:>10.1f} us -> {one.best_us:>10.1f} us  {len(one.nodes)} x {one.nodes[0]}: {chosen}")
    known = f", {found.remembered} of them known before" if found.remembered else ""
    click.echo(f"{found.trials} programs measured{known}; {found.stop}.")
    gain = "" if found.speedup is None else f"{found.speedup:.2f} times as fast. "
    click.echo(f"{gain}{found.note} Written to {found.model}.")
    if found.library is not None:
        click.echo(f"Its code: rlflow.kernels.session({found.model!r}, generated={found.library!r})")
