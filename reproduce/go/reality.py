"""The simulator against reality: models cut in two at several places, served by two pinned processes.

What the simulator is told is what it would be told before anything is cut: a profile of the whole model, scaled to the
time that a session of it takes. It then says how long a request takes where many follow each other; the parts say so by
the clock.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlflow import zoo
from rlflow.deployment import Inputs, open_worker
from rlflow.frontends import load_model
from rlflow.frontends.dissection import Dissection
from rlflow.placement import Devices, PlacementTask, Work
from rlflow.price.agreement import spearman
from rlflow.splitting import serve_parts
from rlflow.splitting.cutting import BANDWIDTH, LATENCY, _Cutting
from rlflow.splitting.placing import work_of

Row = dict[str, Any]
#: Shares of the work that the first part has.
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Requests that are simulated: the time of one is that of the later ones, over their number.
FIRST, LATER = 4, 8
REQUESTS = 40


def repeated(work: Work, count: int) -> Work:
    """``count`` requests for one model: its tasks so many times over, which wait for nothing of each other."""
    tasks, values = work.tasks, len(work.maker)
    shift = np.repeat(np.arange(count) * tasks, values)
    maker = np.tile(work.maker, count)
    return Work(
        np.tile(work.seconds, count),
        np.where(maker >= 0, maker + shift, -1).astype(np.int32),
        np.tile(work.bytes, count),
        [[task + turn * tasks for task in ones] for turn in range(count) for ones in work.readers],
        np.tile(work.kept, count),
        list(work.weights) * count,
        work.weight_bytes,
    )


def simulated(work: Work, cut: int, devices: Devices) -> float:
    """Seconds between the ends of requests that follow each other; the first ``cut`` tasks are the first part."""
    ends = []
    for count in (FIRST, FIRST + LATER):
        task = PlacementTask(repeated(work, count), devices)
        decisions = np.tile((np.arange(work.tasks) >= cut).astype(np.int32), count)
        in_turn = np.repeat(-np.arange(count, dtype=np.float64), work.tasks)  # a worker ends a request before the next
        ends.append(task.evaluate(decisions, in_turn).objective)
    return (ends[1] - ends[0]) / LATER


def cuts_at(cost: np.ndarray, handed: np.ndarray, shares: Sequence[float]) -> list[int]:
    """The cuts that are nearest to shares of the cost, each once, where something can be handed over."""
    before = np.concatenate([[0.0], np.cumsum(cost)]) / cost.sum()
    possible = [cut for cut in range(1, len(cost)) if np.isfinite(handed[cut])]
    return list(dict.fromkeys(min(possible, key=lambda cut: abs(before[cut] - share)) for share in shares))


def compared(names: Sequence[str]) -> Iterator[Row]:
    """A row for each model: seconds of a request at each cut, simulated and by the clock."""
    devices = Devices.alike(2, bandwidth=BANDWIDTH, latency=LATENCY)
    for name in names:
        with tempfile.TemporaryDirectory() as folder, open_worker(1) as worker:
            source = os.fspath(Path(folder, "model.onnx"))
            Path(source).write_bytes(zoo.build(name).SerializeToString())
            imported, taken = load_model(source), Dissection(source)
            inputs = Inputs.of(worker, source, imported.graph, {}, None, 0)
            cutting = _Cutting(taken, worker, inputs, source, name, {}, {}, BANDWIDTH, True)
            chain = cutting.chain
            whole = serve_parts(_parts(cutting, Path(folder, "whole"), []), requests=REQUESTS, pin=True)[0]
            scaled = chain.cost * (whole.processor[0] / float(chain.cost.sum()))
            work = work_of(taken, scaled, cutting.bytes)
            cuts = cuts_at(chain.cost, chain.handed, SHARES)
            found = [serve_parts(_parts(cutting, Path(folder, str(cut)), [cut]), requests=REQUESTS, pin=True)[0]
                     for cut in cuts]  # fmt: skip
        said = [simulated(work, cut, devices) for cut in cuts]
        took = [1.0 / one.rate for one in found]
        ratios = np.array(took) / np.array(said)
        yield {
            "kind": "reality", "key": f"reality {name}", "model": name, "nodes": work.tasks, "cuts": cuts,
            "simulated_ms": [1e3 * one for one in said], "clock_ms": [1e3 * one for one in took],
            "rank_correlation": spearman(said, took), "ratio": float(np.median(ratios)),
            "lowest": float(ratios.min()), "highest": float(ratios.max()),
        }  # fmt: skip


def _parts(cutting: _Cutting, folder: Path, cuts: list[int]) -> Path:
    folder.mkdir()
    cutting._written(folder, cuts, [])
    return folder
