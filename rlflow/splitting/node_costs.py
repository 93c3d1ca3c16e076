"""What the nodes of a model take, in seconds: by a profile in the runtime, or by operations and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.errors import RuntimeCrashed, RuntimeRefused
from rlflow.price import analytic

if TYPE_CHECKING:
    from rlflow.frontends.dissection import Dissection
    from rlflow.runtime import Worker


def analytic_costs(taken: Dissection, value_bytes: Mapping[str, int], sizes: Mapping[str, int]) -> np.ndarray:
    """Seconds of each working node, float64 [n]: the larger of its products and its bytes on the machine of
    :mod:`rlflow.price.analytic`, and its overhead.
    """
    products = np.asarray(taken.operations(sizes), np.float64) * 2.0
    moved = np.array([
        sum(value_bytes[name] for name in (*taken.reads[k], *taken.makes[k]))
        + sum(taken.weight_bytes[name] for name in taken.weights[k])
        for k in range(len(taken.nodes))
    ], np.float64)  # fmt: skip
    return np.maximum(products / (1e9 * analytic.GFLOPS), moved / (1e9 * analytic.GBPS)) + 1e-6 * analytic.OVERHEAD_US


def learn_types(worker: Worker, source: bytes | str, taken: Dissection) -> None:
    """Lets the runtime say the types that ONNX's own inference does not know; where it cannot, nothing is learnt."""
    from rlflow.frontends import instrument
    from rlflow.frontends.dissection import Tensor, showing

    unknown = taken.untyped()
    model = instrument.opened(source) if unknown else None
    if model is None:
        return
    try:
        found = worker.interface(showing(model, unknown).SerializeToString()).outputs
    except (RuntimeRefused, RuntimeCrashed):
        return
    # An unknown rank is told as no dimensions: only what has some is known.
    known = [one for one in found if one.is_tensor and one.shape and one.name in set(unknown)]
    taken.learn(Tensor(one.name, one.dtype, one.shape) for one in known)


def profiled_costs(
    worker: Worker, source: bytes | str, taken: Dissection, feeds: Mapping[str, Any], runs: int
) -> np.ndarray | None:
    """Seconds of each working node, float64 [n], of the model as it is written, without the runtime's optimisations;
    ``None`` where the runtime has no profile, or the model is too large to be copied for one.
    """
    from rlflow.frontends import instrument
    from rlflow.frontends.dissection import named_apart

    model = instrument.opened(source)
    if model is None:
        return None
    names = named_apart(model)
    try:
        found = worker.profile(model.SerializeToString(), feeds, runs=runs, level="disable")
    except (RuntimeRefused, RuntimeCrashed):
        return None
    times = {one.name: one.us * 1e-6 for one in found}
    cost = np.array([times.get(names[place], 0.0) for place in taken.places])
    return cost if float(cost.sum()) > 0.0 else None
