"""``rlflow diff``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import plural, say
from rlflow.cli.json_option import in_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.outputs import check_outputs, check_page

if TYPE_CHECKING:
    from rlflow.frontends.difference import ModelDifference

_MOST = 40


@click.command()
@click.argument("before", metavar="A", type=MODEL)
@click.argument("after", metavar="B", type=MODEL)
@click.option("--html", "page_file", metavar="FILE", help="Draw both graphs, what differs in colour, as one HTML file.")
@json_option()
@click.option("-v", "--verbose", is_flag=True, help="Show every node.")
def diff(before: str, after: str, page_file: str | None, json_file: str | None, verbose: bool) -> None:
    """Show how B differs from A, node by node.

    Nodes that compute the same are the same, whatever they are called. Exit code 0, whether or not something differs;
    rlflow verify says whether the outputs agree.
    """
    check_outputs({"--html": page_file, "--json": json_file}, [before, after])
    check_page("--html", page_file)
    from rlflow.files import write_atomically
    from rlflow.frontends.difference import difference
    from rlflow.frontends.opening import open_source

    models = [open_source(one)[0] for one in (before, after)]
    found = difference(*models)
    lines = list(_lines(found, models, None if verbose else _MOST))
    if page_file is not None:
        from rlflow.report.page import difference_page

        write_atomically(page_file, difference_page(models[0], models[1], f"{before} and {after}", lines[0]).encode())
    if in_json(json_file, lambda: {"before": str(before), "after": str(after), **found.to_dict(*models)}):
        return
    say("\n".join(lines))


def _lines(found: ModelDifference, models: list[Any], most: int | None) -> Iterator[str]:
    from rlflow.frontends.difference import label

    a, b = (model.graph.node for model in models)
    if found.none:
        yield f"No difference: all of {plural(len(found.same), 'node')} compute the same."
        return
    counts = (f"{len(found.same)} the same", f"{len(found.changed)} changed", f"{len(found.removed)} removed")
    yield f"{len(a)} -> {len(b)} nodes: {', '.join(counts)}, {len(found.added)} added."
    moved = {*found.operators_before, *found.operators_after}
    steps = {name: found.operators_after.get(name, 0) - found.operators_before.get(name, 0) for name in sorted(moved)}
    if any(steps.values()):
        yield "operators: " + ", ".join(f"{name} {step:+d}" for name, step in steps.items() if step)
    lines = [
        *(f"- {label(a[one])}" for one in found.removed),
        *(f"+ {label(b[one])}" for one in found.added),
        *(f"~ {label(b[one.after])}: {'; '.join(one.what) or 'its operands differ'}" for one in found.changed),
    ]
    yield from lines[:most]
    if most is not None and len(lines) > most:
        yield f"… and {len(lines) - most} more (--verbose)"
    yield from found.others
