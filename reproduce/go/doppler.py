"""DOPPLER's four computation graphs (CC BY 4.0) in the rules of its simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rlflow.placement import Devices, Work

#: The published scores are the simulator's divided by this.
UNIT = 1e10


def read_graph(path: Path) -> Work:
    """The operations of a graph file as tasks; what they read from outside is there from the start, on every device.

    Line 1: the number of operations and inputs; 2: the operations that read an input; 3 and 4: sources and targets of
    the edges; then for each operation its compute and its communication cost.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    given, sources, targets = ([int(one) for one in line.split(",") if one.strip()] for line in lines[1:4])
    costs = [tuple(float(one) for one in line.split(",")[:2]) for line in lines[4:] if line.strip()]
    if len(costs) + len(given) != int(lines[0]) or len(sources) != len(targets):
        raise ValueError(f"{path.name}: {len(costs)} costs and {len(given)} inputs for {lines[0]} nodes")
    compute, sent = zip(*costs, strict=True)
    return Work.of_edges(
        np.array(compute) / UNIT,
        zip(sources, targets, strict=True),
        np.array(sent) / UNIT,
        list(map(str, range(len(costs)))),
    )


def machine(count: int = 4) -> Devices:
    """Equal devices; a value costs its producer's communication cost, and links do not contend."""
    return Devices.alike(count, bandwidth=1.0, latency=0.0, serial_links=False)
