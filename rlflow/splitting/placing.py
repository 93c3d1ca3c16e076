"""The nodes of a model on devices with limits and links, written into the model: ``rlflow place``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.deployment import Inputs, as_source, open_worker
from rlflow.equivalence.sizes import require_open
from rlflow.errors import UsageError
from rlflow.files import check_output
from rlflow.placement import PLACERS, Devices, Evaluation, PlacementTask, Work, lower_bound
from rlflow.placement.devices_file import read_devices
from rlflow.placement.rules_of_thumb import MOST_NODES
from rlflow.specs import bytes_text
from rlflow.splitting.node_costs import analytic_costs, learn_types, profiled_costs

if TYPE_CHECKING:
    from rlflow.frontends.dissection import Dissection

__all__ = ["PlaceResult", "place", "work_of"]

#: The configuration's name in the model.
NAME = "rlflow"
#: What is tried where no placer is named; the best valid placement is written.
USUAL = ("single", "contiguous", "critical-path", "etf", "heft", "annealing:evaluations=2000,back=300")
_PROFILE_RUNS = 5


@dataclass(frozen=True)
class PlaceResult:
    """``decisions`` int32 [n]: the device of each working node, whose names are ``nodes``; ``tried``: seconds by
    placer, ``None`` where a limit was broken; ``bound``: seconds that no placement is below.
    """

    devices: Devices
    nodes: tuple[str, ...]
    decisions: np.ndarray
    evaluation: Evaluation
    weight_bytes: tuple[float, ...]
    tried: dict[str, float | None]
    bound: float


def place(
    model: Any,
    devices: str | os.PathLike[str] | Devices,
    output: str | os.PathLike[str],
    *,
    placers: Sequence[str] = USUAL,
    cost: str = "measured",
    dims: Mapping[str, int] | None = None,
    input_data: Any = None,
    seed: int = 0,
) -> PlaceResult:
    """Place ``model`` (a path, bytes or a ModelProto) on ``devices`` and write it with its placement.

    Node times are of this machine by its profile (``cost="measured"``) or by operations and bytes (``"analytic"``),
    divided by a device's speed; the schedule is simulated, with transfers and memory. Raises :class:`UsageError` where
    no placer keeps the limits, or for a bad devices file; :class:`ModelError`; :class:`OutputError`.
    """
    from rlflow.frontends import device_configurations, load_model
    from rlflow.frontends.dissection import Dissection

    machine = devices if isinstance(devices, Devices) else read_devices(devices)
    target = check_output(output, model)
    makers = {spec: PLACERS.make(spec) for spec in placers}
    imported = load_model(model)
    require_open(dims or {}, [imported])
    taken = Dissection(model)
    seconds, sizes = _costs(model, imported, taken, cost, dict(dims or {}), input_data, seed)
    task = PlacementTask(work_of(taken, seconds, sizes), machine)
    tried: dict[str, float | None] = {}
    found: list[tuple[float, np.ndarray, Evaluation]] = []
    for spec, placer in makers.items():
        if spec == "contiguous" and task.nodes > MOST_NODES and len(makers) > 1:
            continue
        decisions = placer.decide(task, np.random.default_rng(seed))
        value = task.evaluate(decisions)
        tried[spec] = value.objective if value.valid else None
        if value.valid:
            found.append((value.objective, decisions, value))
    if not found:
        raise UsageError(_refusal(task))
    _, decisions, value = min(found, key=lambda one: one[0])
    stages = {taken.places[k]: int(device) for k, device in enumerate(decisions)}
    placed = device_configurations.placed_model(taken.model, NAME, machine.names, stages)
    device_configurations.write_placed(placed, target, taken.base_dir, taken.external)
    names = tuple(node.name or f"{node.op_type} {number}" for number, node in enumerate(taken.nodes))
    weights = _weights_on(task.work, decisions, len(machine))
    return PlaceResult(machine, names, decisions, value, weights, tried, lower_bound(task))


def work_of(taken: Dissection, seconds: np.ndarray, sizes: Mapping[str, int]) -> Work:
    """The working nodes of a model as tasks, ``seconds`` [n] each; ``sizes``: bytes of its values by name."""
    outputs = set(taken.outputs)
    values = [*taken.inputs, *(name for names in taken.makes for name in names)]
    readers: dict[str, list[int]] = {name: [] for name in values}
    for number, names in enumerate(taken.reads):
        for name in names:
            readers[name].append(number)
    makers = [taken.maker(name) for name in values]
    numbers = {name: number for number, name in enumerate(taken.weight_bytes)}
    return Work(
        np.asarray(seconds, np.float64),
        np.array([-1 if maker is None else maker for maker in makers], np.int32),
        np.array([sizes[name] for name in values], np.float64),
        [readers[name] for name in values],
        np.array([name in outputs for name in values], bool),
        [[numbers[name] for name in names] for names in taken.weights],
        np.array(list(taken.weight_bytes.values()), np.float64),
        tuple(node.name for node in taken.nodes),
    )


def _costs(
    model: Any, imported: Any, taken: Dissection, cost: str, dims: dict[str, int], data: Any, seed: int
) -> tuple[np.ndarray, dict[str, int]]:
    """(seconds of each node, bytes of each value)."""
    if cost == "analytic":
        sizes = taken.value_bytes(dims)
        return analytic_costs(taken, sizes, dims), sizes
    if cost != "measured":
        raise UsageError(f"The cost {cost!r} is unknown; choose measured or analytic.")
    source = as_source(model)
    with open_worker(1) as worker:
        learn_types(worker, source, taken)
        inputs = Inputs.of(worker, source, imported.graph, dims, data, seed, usual=0)
        chosen = dict(inputs.sizes.values)
        sizes = taken.value_bytes(chosen)
        found = profiled_costs(worker, source, taken, inputs.feeds[0], _PROFILE_RUNS)
    return (analytic_costs(taken, sizes, chosen) if found is None else found), sizes


def _weights_on(work: Work, decisions: np.ndarray, count: int) -> tuple[float, ...]:
    held: list[set[int]] = [set() for _ in range(count)]
    for device, weights in zip(decisions.tolist(), work.weights, strict=True):
        held[device].update(weights)
    return tuple(float(sum(work.weight_bytes[one] for one in ones)) for ones in held)


def _refusal(task: PlacementTask) -> str:
    limits = [bytes_text(one) for one in task.devices.memory if np.isfinite(one)]
    return (
        f"No placement that keeps every device within its memory was found: the model's weights take "
        f"{bytes_text(float(task.work.weight_bytes.sum()))} and its largest value "
        f"{bytes_text(float(task.work.bytes.max(initial=0.0)))}; the devices have {', '.join(limits)}. Give them more "
        "memory, or add one."
    )
