"""What a cost model sees of our own kernels' programs beside their parameters: how a program cuts the work, and what
that takes of the second-level cache. Such features mean the same at every size, so that one layer's times say something
about another layer's.

The sizes of a :class:`rlflow.tuner.TunedSubgraph` of the engine are those of the site (see
:class:`rlflow.frontends.kernel_sites.Site`), then the shape of the first input, channels in a block, and bytes of the
second-level cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlflow.kernels.algorithms import ALGORITHMS
from rlflow.tuner.engines import TunedSubgraph
from rlflow.tuner.spaces import TensorProgram

#: Kinds of sites that Winograd's algorithm does, and how many of their sizes say the kernel: channels out and in come
#: before these, and the first input's shape, a block and the cache after them.
_CONVOLUTIONS = {"convolution": 0, "convolution-5x5": 2, "convolution-7": 2, "convolution-3": 2}
_BEFORE, _AFTER = 2, 6
_USUAL_TAPS = (3, 3)
#: Figures of a cut that a model sees.
_CUT_FEATURES = 11
#: As in the C++ kernel: input channels in a part, and the fewest tiles, where nothing is chosen.
_PART, _LEAST_TILES = 128, 24
#: Blocks of outputs in a panel, bytes of a number.
_GROUP, _BYTES = 2, 4
#: Where Linux tells the size of the second-level cache; its bounds, and what is taken where nobody tells it.
_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
_LEAST_CACHE, _MOST_CACHE, _ANY_CACHE = 256 << 10, 2 << 20, 512 << 10


class WinogradSizes(NamedTuple):
    """``tiles`` in all, each of ``points`` products; channels ``out`` and ``into``; channels in a ``block``, bytes of
    the ``cache``.
    """

    tiles: int
    points: int
    out: int
    into: int
    block: int
    cache: int


class WinogradCut(NamedTuple):
    """What the kernel does at a time: ``step`` tiles of ``chunks`` chunks, ``part`` input channels of ``parts`` parts;
    ``kept``: whether all transformed weights stay in the cache. It follows ``Winograd::cut`` of the C++ kernel.
    """

    step: int
    chunks: int
    part: int
    parts: int
    kept: bool


def winograd_cut(sizes: WinogradSizes, chunk: int, part: int) -> WinogradCut:
    """What ``chunk`` and ``part`` (0: by the caches) come to."""
    blocks, floats = _ceiling(sizes.into, sizes.block), sizes.cache // _BYTES
    parts = _ceiling(blocks * sizes.block, part or _PART)
    part_blocks = _ceiling(blocks, parts)
    weights = part_blocks * sizes.block * _GROUP * sizes.block
    room = floats * 2 // 3 - sizes.points * weights
    fitting = room // (sizes.points * (blocks + _GROUP) * sizes.block)
    chunks = _ceiling(sizes.tiles, chunk or max(_LEAST_TILES, fitting))
    panels = _ceiling(_ceiling(sizes.out, sizes.block), _GROUP)
    whole = panels * sizes.points * blocks * sizes.block * _GROUP * sizes.block
    kept = chunks > 1 and whole <= floats // 2
    return WinogradCut(_ceiling(sizes.tiles, chunks), chunks, part_blocks * sizes.block, parts, kept)


def features(subgraph: TunedSubgraph, programs: Sequence[TensorProgram]) -> np.ndarray:
    """[n, f] float64: those of the space; the base-2 logarithms of the sizes; and of the cut, where there is one."""
    sizes = np.log2(1.0 + np.array(subgraph.sizes, dtype=np.float64))
    columns = [subgraph.space.features(programs), np.tile(sizes, (len(programs), 1))]
    window = _CONVOLUTIONS.get(subgraph.family)
    if window is not None and len(subgraph.sizes) == _BEFORE + window + _AFTER:
        cuts = [_cut_features(subgraph, one) for one in programs]
        columns.append(np.array(cuts).reshape(len(programs), _CUT_FEATURES))
    return np.concatenate(columns, axis=1)


def sizes_of(site_sizes: Sequence[int], shape: Sequence[int] | None, block: int) -> tuple[int, ...]:
    """What a subgraph says of itself; of an unknown shape nothing."""
    if shape is None or any(extent < 0 for extent in shape):
        return ()
    return (*site_sizes, *shape, block, second_level_cache())


def second_level_cache() -> int:
    """Bytes, within the bounds of the C++ kernels; a usual size where the system does not say."""
    try:
        text = _CACHE.read_text(encoding="ascii").strip()
        found = int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1:], 0)
    except (OSError, ValueError):
        return _ANY_CACHE
    return min(max(found, _LEAST_CACHE), _MOST_CACHE)


def _cut_features(subgraph: TunedSubgraph, program: TensorProgram) -> list[float]:
    """What the caches hold, how often something is read again, and how full the last chunk is. All 0 for the runtime's
    own kernel.
    """
    sketch = subgraph.space.sketches[program.sketch]
    tile = ALGORITHMS[sketch.name].fixed.get("tile", 0) if sketch.name in ALGORITHMS else 0
    if not tile:
        return [0.0] * _CUT_FEATURES
    chosen = {one.name: one.values[at] for one, at in zip(sketch.steps, program.values, strict=True)}
    sizes = _sizes(subgraph, tile)
    cut = winograd_cut(sizes, chosen.get("chunk", 0), chosen.get("part", 0))
    inputs = sizes.points * sizes.into * cut.step
    weights = sizes.points * cut.part * _GROUP * sizes.block
    outputs = sizes.points * _GROUP * sizes.block * cut.step
    all_weights = sizes.points * sizes.into * sizes.out
    floats = sizes.cache / _BYTES
    counts = (cut.step, cut.chunks, cut.part, cut.parts, sizes.tiles)
    bytes_of = (inputs, weights, outputs, inputs + weights + outputs, all_weights)
    return [
        *(math.log2(one) for one in counts),
        *(math.log2(one / floats) for one in bytes_of),
        float(cut.kept),
    ]


def _sizes(subgraph: TunedSubgraph, tile: int) -> WinogradSizes:
    out, into, *given, batch, _, height, width, block, cache = (max(1, one) for one in subgraph.sizes)
    tiles, points = batch, 1
    for extent, taps in zip((height, width), given or _USUAL_TAPS, strict=True):
        along = tile if taps > 1 else 1
        tiles, points = tiles * _ceiling(extent, along), points * (along + taps - 1)
    return WinogradSizes(tiles, points, out, into, block, cache)


def _ceiling(value: int, divisor: int) -> int:
    return -(-value // divisor)
