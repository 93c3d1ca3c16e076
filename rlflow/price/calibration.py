"""What a runtime's machinery costs apart from its kernels: a dispatch, a renamed tensor, a change of layout.

All of it is measured with small graphs by the same clock as regions are, and kept in the price database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlflow.errors import CostError
from rlflow.graph import GraphBuilder
from rlflow.price.feed_specs import input_specs
from rlflow.runtime import Measurement

if TYPE_CHECKING:
    from rlflow.graph import Graph
    from rlflow.runtime import Worker

#: Name of the time that an empty run takes, beside those of the probes.
OVERHEAD = "overhead"
_TRIES = 4
_FLOAT = 1
_CHAIN = 32
#: Megabytes of weights for which the speed of reading them once per run is measured: in the second-level cache, beyond
#: it, around the size of a shared cache, and from memory.
_WORKING_SETS = (1, 4, 8, 16, 24, 48)
#: Those of them that are tried where time is short.
_BRIEF_SETS = (1, 8, 24)
#: Sessions that these are timed in. Where the pages of a model lie, and how much of a shared cache its neighbours leave
#: it, decides what fits: 16 MB were read in 0.35 ms by the luckiest of seven sessions, in 0.67 ms by the one in the
#: middle, in 0.78 ms by the last. So the median counts here, and not the fastest ones that agree, as elsewhere.
_WEIGHTS_SESSIONS = 7
_PROBE_DIGESTS = 0x9B0BE << 64  # of the probes' weights; a digest stands for one tensor in a process
_MATRIX = 512  # a 512 x 512 float matrix is 1 MB
#: Spatial extents of the 16-channel tensors that layout changes are measured on (4 KB, 64 KB, 512 KB and 4 MB).
_EXTENTS = (8, 32, 90, 256)


@dataclass(frozen=True)
class Calibration:
    """Milliseconds: ``overhead`` of an empty run, ``dispatch`` of one more kernel, ``view`` of a renamed tensor.

    Over ``sizes`` in bytes: half of a change to the blocked layout and back (``reorder``), and a 1x1 pooling in that
    layout (``pool``). ``bytes_per_ms``: the speeds of reading weights when a run reads ``working_sets`` bytes of them.
    """

    overhead: float
    dispatch: float
    view: float
    working_sets: tuple[float, ...]
    bytes_per_ms: tuple[float, ...]
    sizes: tuple[float, ...] = ()
    reorder: tuple[float, ...] = ()
    pool: tuple[float, ...] = ()

    def reorder_ms(self, size: float) -> float:
        """One change of layout of a tensor of ``size`` bytes."""
        return _interpolate(size, self.sizes, self.reorder)

    def pool_ms(self, size: float) -> float:
        """A 1x1 pooling in the blocked layout."""
        return _interpolate(size, self.sizes, self.pool)

    def weights_ms(self, size: float, working_set: float) -> float:
        """The least time to read ``size`` bytes of weights in a model with ``working_set`` bytes of them."""
        at = np.log(max(working_set, 1.0))
        return size / float(np.interp(at, np.log(self.working_sets), self.bytes_per_ms))


def _interpolate(size: float, sizes: Sequence[float], values: Sequence[float]) -> float:
    if not sizes:
        return 0.0
    if size > sizes[-1]:
        return values[-1] * size / sizes[-1]
    return float(np.interp(size, sizes, values))


def probes(block: int) -> dict[str, Graph]:
    """The graphs to measure, by name."""
    found = {
        "dispatch-1": _chain(1, views=False),
        "dispatch-n": _chain(_CHAIN, views=False),
        "view-n": _chain(_CHAIN, views=True),
    }
    for megabytes in _WORKING_SETS:
        found[f"weights-{megabytes}"] = _products(megabytes)
    if block:
        for extent in _EXTENTS:
            found[f"pool-1-{extent}"] = _pools(1, extent)
            found[f"pool-3-{extent}"] = _pools(3, extent)
    return found


def brief(graphs: Mapping[str, Graph]) -> dict[str, Graph]:
    """Fewer :func:`probes`, where time is short: making and loading much of weights takes most of it."""
    left_out = {f"weights-{megabytes}" for megabytes in _WORKING_SETS if megabytes not in _BRIEF_SETS}
    return {name: graph for name, graph in graphs.items() if name not in left_out}


def is_cold(name: str) -> bool:
    """Whether a probe is timed as regions are, with what was walked through before each sample. Changes of layout and
    an empty run are, because they are taken off regions; a dispatch and the reading of weights are told from chains.
    """
    return name == OVERHEAD or name.startswith("pool-")


def measured(
    graphs: Mapping[str, Graph], timed: Callable[..., Mapping[str, Measurement | str]]
) -> dict[str, Measurement]:
    """The times of these :func:`probes`.

    ``timed(items, cold=…)`` times items of a name, a serialized model and its input specifications;
    ``timed(items, cold=…, sessions=…)`` gives the median of so many sessions.
    Raises :class:`CostError` where the runtime refuses one.
    """
    from rlflow.frontends import graph_to_model

    items = [(name, graph_to_model(one).SerializeToString(), input_specs(one)) for name, one in graphs.items()]
    layout = [item for item in items if is_cold(item[0])]
    weights = [item for item in items if item[0].startswith("weights-")]
    chains = [item for item in items if item not in layout and item not in weights]
    results = {
        **timed(chains, cold=False),
        **timed(weights, cold=False, sessions=_WEIGHTS_SESSIONS),
        **timed(layout, cold=True),
    }
    found = {}
    for name, result in results.items():
        if isinstance(result, str):
            raise CostError(f"The runtime cannot be calibrated here: the probe {name} failed: {result}")
        found[name] = result
    return found


def overhead(worker: Worker, flush_bytes: int, level: str, once: bool = False) -> Measurement:
    """An empty run. It is taken off every price, so the least of a few tries counts (unless ``once`` is enough): more
    would leave nothing of small regions.
    """
    if once:
        return worker.overhead(level=level, flush_bytes=flush_bytes)
    tries = []
    for _ in range(_TRIES):
        worker.restart()
        tries.append(worker.overhead(level=level, flush_bytes=flush_bytes))
    return min(tries)


def view_ms(ms: Mapping[str, float]) -> float:
    """A renamed tensor, from the times of the probes."""
    return max(0.0, (ms["view-n"] - ms["dispatch-n"]) / _CHAIN)


def calibrate(ms: Mapping[str, float], block: int) -> Calibration:
    """From the times of :func:`probes` and of an empty run, in milliseconds."""
    dispatch = max(0.0, (ms["dispatch-n"] - ms["dispatch-1"]) / (_CHAIN - 1))
    one = _MATRIX * _MATRIX * 4.0
    speeds = []
    counts = [count for count in _WORKING_SETS if f"weights-{count}" in ms]
    for count in counts:
        speeds.append(one * count / max(ms[f"weights-{count}"] - ms["dispatch-1"] - dispatch * (count - 1), 1e-6))
    sets = tuple(one * count for count in counts)
    # More weights are never read faster than fewer; noise may say so.
    falling = tuple(float(speed) for speed in np.minimum.accumulate(speeds))
    if not block:
        return Calibration(ms[OVERHEAD], dispatch, view_ms(ms), sets, falling)
    pool = [max(0.0, (ms[f"pool-3-{e}"] - ms[f"pool-1-{e}"]) / 2) for e in _EXTENTS]
    pairs = [ms[f"pool-1-{e}"] - ms[OVERHEAD] + dispatch - p for e, p in zip(_EXTENTS, pool, strict=True)]
    reorder = [max(0.0, pair / 2) for pair in pairs]
    sizes = tuple(16.0 * e * e * 4 for e in _EXTENTS)
    return Calibration(ms[OVERHEAD], dispatch, view_ms(ms), sets, falling, sizes, tuple(reorder), tuple(pool))


def layout_probes() -> dict[int, Graph]:
    """Poolings that a runtime turns to its blocked layout only if its blocks have so many channels, or fewer."""
    return {channels: _pools(1, 8, channels) for channels in (8, 16)}


def channel_block(changes_layout: Callable[[Graph], bool]) -> int:
    """Channels per block of the runtime's layout, or 0; ``changes_layout`` says whether it turns a graph to it."""
    return next((channels for channels, graph in layout_probes().items() if changes_layout(graph)), 0)


def _chain(length: int, views: bool) -> Graph:
    builder = GraphBuilder()
    value = builder.input("x", _FLOAT, [4])
    for step in range(length):
        value = builder.add("Neg", {}, [value])
        if views:
            value = builder.add("Reshape", {"shape": [2, 2] if step % 2 == 0 else [4]}, [value])
    return builder.finish([value])


def _products(count: int) -> Graph:
    builder = GraphBuilder()
    value = builder.input("x", _FLOAT, [1, _MATRIX])
    for number in range(count):
        weight = builder.constant(_FLOAT, [_MATRIX, _MATRIX], f"{_PROBE_DIGESTS + number:032x}", None, None)
        value = builder.add("MatMul", {}, [value, weight])
    return builder.finish([value])


def _pools(length: int, extent: int, channels: int = 16) -> Graph:
    builder = GraphBuilder()
    value = builder.input("x", _FLOAT, [1, channels, extent, extent])
    for _ in range(length):
        value = builder.add("MaxPool", {"kernel_shape": [1, 1], "pads": [0, 0, 0, 0], "strides": [1, 1]}, [value], 1)
    return builder.finish([value])
