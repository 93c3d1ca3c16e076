"""``rlflow worker``."""

from __future__ import annotations

import contextlib

import click


@click.command()
@click.option("--device", metavar="NAME", help="Measure under this name; machines of one name have to be alike.")
@click.option("--join", metavar="HOST:PORT", help="The first machine of the cluster; without it, this is the first.")
@click.option(
    "--cores", type=click.IntRange(min=1),
    help="How many tasks that do not measure may run at a time. [default: one a core]",
)
@click.option(
    "--port", type=int, default=6379, show_default=True, help="Port where other machines join; of the first machine."
)
@click.option(
    "--client-port", type=int, default=10001, show_default=True,
    help="Port where tasks are sent; of the first machine.",
)
def worker(device: str | None, join: str | None, cores: int | None, port: int, client_port: int) -> None:
    """Work for others until Ctrl-C: join this machine to a Ray cluster, or begin one.

    Whoever reaches these ports can run programs here. Open them in a network of your own only.
    """
    from rlflow.crew.ray_node import RayNode

    node = RayNode(join, device, cores, port, client_port)
    if device is not None:
        click.echo(f"Measures as {device!r}: {_fingerprint()}.")

    def ready(address: str) -> None:
        if join is None:
            click.echo(f"Another machine joins with:  rlflow worker --join {address}:{port}")
            click.echo(f"Send tasks here with:        rlflow compare … --workers ray://{address}:{client_port}")
        click.echo("Working; Ctrl-C ends it.")

    with contextlib.suppress(KeyboardInterrupt):
        node.run(ready)


def _fingerprint() -> str:
    """What the prices that are measured here are kept under."""
    from rlflow.deployment import open_worker
    from rlflow.price.records import PriceContext

    with open_worker(1) as opened:
        found = PriceContext.of(opened.describe(), "all")
    return f"{found.device}, {found.runtime} {found.version}"
