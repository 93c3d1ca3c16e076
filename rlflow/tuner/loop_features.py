"""What a cost model sees of TVM's programs beside their parameters: how much of each tensor the loops inside of a place
touch, what that moves between the caches, and how the innermost loops fill vectors and registers.

The figures are those that Ansor's and MetaSchedule's models see (Zheng et al., OSDI 2020, appendix B), worked out of
the tiles alone: nothing is scheduled for them, so that ten thousand programs take a tenth of a second. A tiling
"SSRSRS" has the loops over outputs in four parts, S0 to S3, and those that sum in two, R0 and R1, in this order from
the outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from rlflow.frontends.generated_sites import CONVOLUTION, PRODUCT, Convolution
from rlflow.tuner.engines import TunedSubgraph
from rlflow.tuner.kernel_features import second_level_cache
from rlflow.tuner.spaces import Sketch, Space, TensorProgram

__all__ = ["features", "figures", "touched_by"]

#: Bytes of a number and of the first-level cache; numbers in the widest vector, and vectors in registers.
_BYTES, _FIRST_LEVEL, _VECTOR, _REGISTERS = 4, 32 << 10, 16, 32
#: Places in the loops, from the outside: how many parts of the loops over outputs, and of those that sum, are inside.
_PLACES = ((3, 2), (2, 2), (2, 1), (1, 1), (1, 0))
_OUTPUT_PARTS, _SUM_PARTS = 4, 2
#: The longest loop that becomes a vector; how many doublings beyond what is unrolled are told apart; and what is
#: unrolled where a sketch does not say.
_LONGEST, _MOST_BEYOND, _LEAST_UNROLLED = 64, 4, 0
#: What is computed at this depth is computed where it is read.
_INLINE = -2
#: Figures of a program: bytes of each tensor at each place, what overflows two caches, what is moved, those of the
#: innermost loops, and of what is computed on the way.
COUNT = 3 * len(_PLACES) + 2 * len(_PLACES) + 4 + 12 + 3

#: [n, loops] extents inside of a place, to numbers of each tensor that they touch [n]: the inputs, then the output.
Touched = Callable[[np.ndarray], list[np.ndarray]]


def features(subgraph: TunedSubgraph, programs: Sequence[TensorProgram]) -> np.ndarray:
    """[n, f] float64: which sketch, the positions of the ordered choices between 0 and 1, and the figures of the loops;
    those of the space where the family or the tiling of a sketch is not known.
    """
    space, touched = subgraph.space, touched_by(subgraph.family, subgraph.sizes)
    if touched is None or not all(_is_usual(sketch) for sketch in space.sketches):
        return space.features(programs)
    sketches, choices = len(space.sketches), max(len(sketch.steps) for sketch in space.sketches)
    out = np.zeros((len(programs), sketches + choices))
    for number, rows, values in _by_sketch(programs):
        steps = space.sketches[number].steps
        most = np.array([max(1, len(one.values) - 1) for one in steps], dtype=np.float64)
        out[rows, number] = 1.0
        out[rows, sketches : sketches + len(most)] = values[:, values.shape[1] - len(most) :] / most
    return np.concatenate([out, figures(space, programs, touched)], axis=1)


def figures(space: Space, programs: Sequence[TensorProgram], touched: Touched) -> np.ndarray:
    """[n, COUNT] Of the loops; 0 for programs of sketches with another tiling, or without one."""
    out = np.zeros((len(programs), COUNT))
    for number, rows, values in _by_sketch(programs):
        if _is_usual(space.sketches[number]):
            out[rows] = loop_figures(space.sketches[number], values, touched)
    return out


def _by_sketch(programs: Sequence[TensorProgram]) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """The number of each sketch, which programs are its, and their rows."""
    owner = np.array([one.sketch for one in programs], dtype=np.int64)
    for number in np.unique(owner).tolist():
        rows = np.flatnonzero(owner == number)
        yield number, rows, np.array([programs[row].values for row in rows.tolist()], dtype=np.int64)


def loop_figures(sketch: Sketch, values: np.ndarray, touched: Touched) -> np.ndarray:
    """[n, COUNT] Of rows [n, width] of one sketch."""
    whole = np.array([tile.extent for tile in sketch.tiles], dtype=np.float64)
    inside = [_inside(sketch, values, outputs, sums) for outputs, sums in _PLACES]
    parts = [[_BYTES * one for one in touched(extents)] for extents in inside]
    bytes_of = [np.sum(one, axis=0) for one in parts]
    times = [np.prod(whole / extents, axis=1) for extents in inside]
    caches = (_FIRST_LEVEL, second_level_cache())
    columns = [np.log2(one) for place in parts for one in place]
    columns += [np.maximum(np.log2(one / cache), 0.0) for cache in caches for one in bytes_of]
    for cache in caches:
        columns += _moved(parts, bytes_of, times, cache, float(whole.prod()))
    columns += _innermost(sketch, values, parts[-1]) + _computed_at(sketch, values, touched, float(whole.prod()))
    return np.stack(columns, axis=1)


def _moved(
    parts: Sequence[Sequence[np.ndarray]], bytes_of: Sequence[np.ndarray], times: Sequence[np.ndarray], cache: int,
    work: float,
) -> list[np.ndarray]:  # fmt: skip
    """Logarithms: of bytes an operation that come from behind a cache, where the outermost place that fits into it is
    what the cache holds; and of how often that place is entered.
    """
    moved, entered = bytes_of[-1] * times[-1], times[-1]
    for at in reversed(range(len(parts))):
        fits = bytes_of[at] <= cache
        moved = np.where(fits, bytes_of[at] * times[at], moved)
        entered = np.where(fits, times[at], entered)
    return [np.log2(moved / work), np.log2(entered)]


def _innermost(sketch: Sketch, values: np.ndarray, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Of the loops inside of all sums: how full vectors are, how many registers the sums take, what is read for each
    operation, how long the body is and how far beyond what may be unrolled, and what is made one vector.

    Where R1 is 1 for all loops, S2 and S3 are one nest: the innermost loop of more than one step may be of either.
    """
    outputs = [at for at, tile in enumerate(sketch.tiles) if not tile.reduction]
    last, both = _inside(sketch, values, 1, 0), _inside(sketch, values, 2, 0)
    one_nest = _inside(sketch, values, 1, 1).prod(axis=1) == last.prod(axis=1)
    nest = np.where(one_nest[:, None], both, last)
    inner, outer = last[:, outputs][:, ::-1], (nest / last)[:, outputs][:, ::-1]  # from the innermost loop on
    loops = np.concatenate([inner, outer], axis=1)
    first = np.argmax(loops > 1, axis=1)
    along = loops[np.arange(len(loops)), first]
    unrolled = [_LEAST_UNROLLED] * len(values)
    for column, one in enumerate(sketch.steps, sketch.split_columns):
        if one.group == "unroll":
            unrolled = [one.values[at] for at in values[:, column].tolist()]
    vectors = np.ceil(along / _VECTOR)
    full = along / (vectors * _VECTOR)
    work = nest.prod(axis=1)
    sums = work / along * vectors
    read = sum(parts[:-1]) / _BYTES / last.prod(axis=1)
    body = _inside(sketch, values, 1, 1).prod(axis=1) * np.where(one_nest, work / last.prod(axis=1), 1.0)
    beyond = np.clip(np.log2((body + 1) / (np.array(unrolled) + 1)), -_MOST_BEYOND, _MOST_BEYOND)
    neighbours = np.isin(first, (0, len(outputs)))  # the loop over the last axis, along which tensors lie
    return [
        full, np.log2(vectors), np.log2(sums), np.maximum(np.log2(sums / _REGISTERS), 0.0), np.log2(read),
        np.log2(body), beyond, np.log2(np.minimum(work, _LONGEST)), np.log2(work),
        (work % _VECTOR == 0).astype(np.float64), one_nest.astype(np.float64), neighbours.astype(np.float64),
    ]  # fmt: skip


def _computed_at(sketch: Sketch, values: np.ndarray, touched: Touched, work: float) -> list[np.ndarray]:
    """Of the first tensor, where it is made on the way (a padded input): bytes that are made at a time, how often all
    of it is made, as logarithms, and what overflows the first-level cache. 0 where nothing is left open.
    """
    step = next((at for at, one in enumerate(sketch.steps) if one.group == "compute_at"), None)
    if step is None:
        return [np.zeros(len(values))] * 3
    depth = np.array(sketch.steps[step].values)[values[:, sketch.split_columns + step]]
    parts = values[:, : sketch.split_columns].astype(np.float64)
    for at, column in enumerate(_nest(sketch)):  # inside of a loop its counter stands still
        parts[:, column] = np.where(depth >= at, 1.0, parts[:, column])
    inside = [
        parts[:, begin : begin + tile.parts].prod(axis=1)
        for tile, begin in zip(sketch.tiles, sketch.begins, strict=True)
    ]
    extents = np.where((depth == _INLINE)[:, None], 1.0, np.stack(inside, axis=1))
    whole = touched(np.array([[tile.extent for tile in sketch.tiles]], dtype=np.float64))[0]
    made = touched(extents)[0]
    often = made * work / extents.prod(axis=1) / whole
    bytes_made = np.log2(_BYTES * made)
    return [bytes_made, np.log2(often), np.maximum(bytes_made - np.log2(_FIRST_LEVEL), 0.0)]


def _nest(sketch: Sketch) -> list[int]:
    """The columns of the loops from the outside: S0, S1, R0, S2, R1, S3."""
    order = []
    for reduction, part in ((False, 0), (False, 1), (True, 0), (False, 2), (True, 1), (False, 3)):
        for tile, begin in zip(sketch.tiles, sketch.begins, strict=True):
            if tile.reduction == reduction:
                order.append(begin + part)
    return order


def _inside(sketch: Sketch, values: np.ndarray, outputs: int, sums: int) -> np.ndarray:
    """[n, loops] Extents inside of a place, by how many parts of each kind of loop are inside."""
    columns = []
    for tile, begin in zip(sketch.tiles, sketch.begins, strict=True):
        count = sums if tile.reduction else outputs
        columns.append(values[:, begin + tile.parts - count : begin + tile.parts].prod(axis=1))
    return np.stack(columns, axis=1).astype(np.float64)


def _is_usual(sketch: Sketch) -> bool:
    parts = {(tile.reduction, tile.parts) for tile in sketch.tiles}
    return bool(sketch.tiles) and parts <= {(False, _OUTPUT_PARTS), (True, _SUM_PARTS)}


# --- what loops touch -------------------------------------------------------------------------------------------------


def touched_by(family: str, sizes: Sequence[int]) -> Touched | None:
    """What loops touch of the tensors of an operator of :class:`rlflow.tuner.tvm_engine.TvmOperator`; ``None`` for
    families that are not known.
    """
    make = _FAMILIES.get(family)
    return None if make is None or not sizes else make(sizes)


def _product(_: Sequence[int]) -> Touched:
    def touched(inside: np.ndarray) -> list[np.ndarray]:
        rows, columns, depth = inside.T
        return [rows * depth, depth * columns, rows * columns]

    return touched


def _convolution(sizes: Sequence[int]) -> Touched:
    """Batch, height, width, channels in and out, window, stride, padding; then dilation and groups, or nothing."""
    stride, groups = sizes[6], sizes[9] if len(sizes) > 9 else 1
    members = max(1, sizes[4] // groups)

    def touched(inside: np.ndarray) -> list[np.ndarray]:
        batch, height, width, out, down, right, into = inside.T
        window = batch * ((height - 1) * stride + down) * ((width - 1) * stride + right)
        return [window * into * np.ceil(out / members), down * right * into * out, batch * height * width * out]

    return touched


def _depthwise(sizes: Sequence[int]) -> Touched:
    """Batch, height, width, channels, window, stride, padding."""
    stride = sizes[5]

    def touched(inside: np.ndarray) -> list[np.ndarray]:
        batch, height, width, channels, down, right = inside.T
        window = batch * ((height - 1) * stride + down) * ((width - 1) * stride + right)
        return [window * channels, down * right * channels, batch * height * width * channels]

    return touched


def _site_convolution(sizes: Sequence[int]) -> Touched:
    """The rank and the shape of the first input, then :class:`Convolution`."""
    s = Convolution(*sizes[1 + sizes[0] :])
    share = max(1, s.channels // s.groups)

    def touched(inside: np.ndarray) -> list[np.ndarray]:
        batch, out, height, width, *rest = inside.T
        block = rest.pop(0) if s.block else 1.0
        into = rest.pop(0) if not s.block and s.members > 1 else 1.0
        down, right = rest
        window = batch * ((height - 1) * s.down + (down - 1) * s.dilation_down + 1)
        window = window * ((width - 1) * s.right + (right - 1) * s.dilation_right + 1)
        groups = out if s.block else np.ceil(out / share)
        return [window * groups * block * into, out * block * into * down * right, batch * out * block * height * width]

    return touched


_FAMILIES: Mapping[str, Callable[[Sequence[int]], Touched]] = {
    "gemm": _product, "conv2d": _convolution, "grouped": _convolution, "depthwise": _depthwise,
    CONVOLUTION: _site_convolution, PRODUCT: _product,
}  # fmt: skip
