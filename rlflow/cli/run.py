"""``rlflow run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import parse_dims, plural
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.outputs import check_outputs, files_of
from rlflow.cli.sections import SectionedCommand
from rlflow.errors import UsageError, VerificationFailed
from rlflow.specs import check_seconds

if TYPE_CHECKING:
    from rlflow.splitting.coordinator import Served
    from rlflow.splitting.serving import Against

#: Relative differences from the whole model that may come of fused kernels on either side of a cut.
_ROUNDINGS = 1e-3


_SECTIONS = {
    "Requests": ("requests", "input_data", "dims", "seed"),
    "Workers": ("threads", "pin", "timeout", "connect", "worker", "listen", "token_file"),
    "Result": ("output", "against", "json_file"),
}  # fmt: skip


@click.command(cls=SectionedCommand, sections=_SECTIONS)
@click.argument("parts", metavar="DIR")
@click.option("--requests", type=click.IntRange(min=1), default=1, show_default=True, help="How many requests to send.")
@click.option("--input-data", multiple=True, metavar="FILE", help="An .npz by input names, or name=file.npy.")
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of an open dimension.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random inputs.")
@click.option("-o", "--output", metavar="FILE", help="Write the outputs of the first request to an .npz.")
@click.option(
    "--against", metavar="MODEL", type=MODEL, help="Run the whole model, too; compare its outputs and its throughput."
)
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of each worker.")
@click.option("--pin", is_flag=True, help="Keep each worker on a processor of its own.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds that a worker may be silent.")
@click.option("--connect", metavar="HOST:PORT,…", help="Workers that wait on hosts, in the order of the parts.")
@click.option("--worker", type=int, metavar="K", help="Be the worker of part K, and wait for a coordinator.")
@click.option("--listen", metavar="HOST:PORT", help="Where the worker waits.")
@click.option("--token-file", metavar="FILE", help="A secret that both ends must have, at least 16 characters.")
@json_option()
@click.pass_context
def run(
    context: click.Context,
    parts: str,
    requests: int,
    input_data: tuple[str, ...],
    dims: tuple[str, ...],
    seed: int,
    output: str | None,
    against: str | None,
    threads: int,
    pin: bool,
    timeout: float,
    connect: str | None,
    worker: int | None,
    listen: str | None,
    token_file: str | None,
    json_file: str | None,
) -> None:
    """Run the parts in DIR, which `rlflow split` made, as a pipeline of worker processes.

    The workers are processes of this machine, or wait on hosts: there, start `rlflow run DIR --worker K --listen
    HOST:PORT --token-file F`, and here name them with --connect.
    """
    from rlflow.splitting import serving

    check_seconds(timeout, "The time that a worker may be silent")
    if worker is not None:
        if listen is None or token_file is None:
            raise UsageError("A worker needs --listen HOST:PORT and --token-file FILE.")
        host, port = _place("--listen", listen)
        serving.hold(parts, worker, host, port, token_file, threads=threads, say=click.echo)
        return
    others = [against, token_file, *files_of(input_data)]
    check_outputs({"-o": output, "--json": json_file}, [*others, *serving.files_of_split(parts)])
    places = [_place("--connect", one) for one in connect.split(",")] if connect else []
    served, beside = serving.serve_parts(
        parts,
        requests=requests,
        data=list(input_data) or None,
        dims=parse_dims("--dim", dims),
        seed=seed,
        places=places,
        token_file=token_file,
        threads=threads,
        pin=pin,
        seconds=timeout,
        against=against,
    )
    if output is not None:
        serving.write_outputs(output, served.outputs[0])
    if not in_json(json_file, lambda: _plain(served, beside)):
        click.echo("\n".join(_sentences(served, beside)))
    if beside is not None and beside.worst > _ROUNDINGS:
        context.exit(VerificationFailed.exit_code)


def _place(option: str, text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"The option {option} {text} cannot be read; expected HOST:PORT, as in 10.0.0.2:7001.")
    return host.strip("[]"), int(port)


def _plain(served: Served, beside: Against | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "requests": len(served.outputs),
        "seconds": served.seconds,
        "per_second": served.rate,
        "first_ms": 1e3 * served.first,
        "processor_ms": [1e3 * one for one in served.processor],
    }
    if beside is not None:
        found["whole_per_second"] = beside.whole.rate
        found |= {"ratio": beside.ratio, "processor_ratio": beside.processor_ratio, "identical": beside.identical}
        found["worst"] = beside.worst if beside.worst < float("inf") else None
    return found


def _sentences(served: Served, beside: Against | None) -> list[str]:
    count = plural(len(served.outputs), "request")
    took = f"{count} in {served.seconds:.4g} s, {served.rate:.4g} a second"
    lines = [f"{took}; the first after {1e3 * served.first:.4g} ms."]
    if beside is None:
        return lines
    whole = f"The whole model in one process: {beside.whole.rate:.4g} a second"
    free = f"{beside.processor_ratio:.2f} times by processor time"
    lines.append(f"{whole}; its parts serve {beside.ratio:.2f} times as many ({free}).")
    if beside.identical:
        lines.append("All outputs are those of the whole model, to the last bit.")
    else:
        how = f"by {beside.worst:.3g} of its largest magnitude" if beside.worst < float("inf") else "in kind"
        lines.append(f"The output {beside.output!r} differs from the whole model's {how}.")
    return lines
