"""Joining, cutting, padding and indexing; shapes, and tensors made of nothing."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.errors import UsageError
from rlflow.synthesis.domains import Array, Unsupported
from rlflow.synthesis.operators.drawing import fixed_attr
from rlflow.synthesis.operators.exact import no_tensor_operands
from rlflow.synthesis.operators.facets import BOOL, FLOATS, Call, Drawn, register
from rlflow.synthesis.operators.native import Attributes, NativeKind
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import GiveUp, Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw


def _concat(c: Call) -> Array:
    return np.concatenate([c.arg(k) for k in range(len(c.inputs))], axis=c.attrs["axis"])


def _split(c: Call) -> list[Array]:
    no_tensor_operands(c)
    if "split" not in c.attrs:
        raise Unsupported("Split without explicit sizes")
    return list(np.split(c.arg(0), np.cumsum(c.attrs["split"])[:-1], axis=c.attrs["axis"]))


def _slice(c: Call) -> Array:
    no_tensor_operands(c)
    x = c.arg(0)
    index: list[slice] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(
        c.attrs["axes"], c.attrs["starts"], c.attrs["ends"], c.attrs["steps"], strict=True
    ):
        d = x.shape[axis]
        stop: int | None = end
        if step < 0:
            stop = None if end < -d else end
            start = min(start, d - 1)
        index[axis] = slice(start, stop, step)
    return x[tuple(index)]


def _pad(c: Call) -> Array:
    no_tensor_operands(c)
    x, pads, mode = c.arg(0), c.attrs["pads"], c.attrs["mode"]
    width = [(pads[k], pads[x.ndim + k]) for k in range(x.ndim)]
    if any(e < 0 for pair in width for e in pair):
        if mode != "constant" or any(-min(pair) > d for pair, d in zip(width, x.shape, strict=True)):
            raise Unsupported("negative pads of what is repeated, or of more than there is")
        kept = [slice(max(-b, 0), d - max(-e, 0)) for (b, e), d in zip(width, x.shape, strict=True)]
        x, width = x[tuple(kept)], [(max(b, 0), max(e, 0)) for b, e in width]
    if mode == "constant":
        fill = (
            c.domain.constant(c.attrs.get("value", 0.0)) if c.is_float() else np.asarray(int(c.attrs.get("value", 0)))
        )
        out = np.empty([b + d + e for (b, e), d in zip(width, x.shape, strict=True)], dtype=x.dtype)
        out[...] = fill
        out[tuple(slice(b, b + d) for (b, _), d in zip(width, x.shape, strict=True))] = x
        return out
    if mode == "reflect" and any(max(pair) >= d for pair, d in zip(width, x.shape, strict=True)):
        raise Unsupported("reflecting more than there is")
    if not x.ndim:
        return x
    return np.pad(x, width, mode={"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode])  # type: ignore[call-overload]


def _indices(c: Call, k: int, extent: int) -> Array:
    index = c.arg(k)
    if np.any(index < -extent) or np.any(index >= extent):
        raise Unsupported("an index that is out of range")
    return index


def _gather(c: Call) -> Array:
    x, axis = c.arg(0), c.attrs["axis"]
    taken: Any = np.take(x, _indices(c, 1, x.shape[axis]), axis=axis)
    return np.asarray(taken, dtype=x.dtype)  # of objects, numpy takes the only one out of its array


def _gather_elements(c: Call) -> Array:
    x, axis = c.arg(0), c.attrs["axis"]
    index = _indices(c, 1, x.shape[axis])
    at = list(np.indices(index.shape))
    at[axis] = index
    return x[tuple(at)]


def _trilu(c: Call) -> Array:
    x = c.arg(0)
    k = int(np.asarray(c.arg(1)).reshape(())) if c.present(1) else 0
    row, col = np.indices(x.shape[-2:])
    keep = col - row >= k if c.attrs["upper"] else col - row <= k
    zero = c.domain.zeros(()) if c.is_float() else np.asarray(0, dtype=x.dtype)
    return np.where(keep, x, zero)


def _shape(c: Call) -> Array:
    dims = c.arg(0).shape
    start, end = c.attrs.get("start", 0), c.attrs.get("end", len(dims))
    return np.array(dims[slice(start, end)], np.int64)


def _size(c: Call) -> Array:
    return np.asarray(c.arg(0).size, np.int64)


def _eye_like(c: Call) -> Array:
    rows, cols = c.arg(0).shape
    eye = np.eye(rows, cols, k=c.attrs.get("k", 0), dtype=np.int64)
    dtype = c.out_dtypes[0]
    return c.domain.from_integers(eye) if dtype in FLOATS else eye.astype(bool) if dtype == BOOL else eye


def _draw_concat(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    kids = term.children
    fixed = fixed_attr(d, term, "axis")
    base: tuple[int, ...] | None = None
    out: dict[int, list[int]] = {}
    order = sorted(range(len(kids)), key=lambda k: not d.is_known(kids[k]))
    axis: int | None = None
    pieces = _pieces(d, term, op, want)
    for k in order:
        if pieces:
            shape = pieces[k]
        elif base is None:
            shape = want.shape or d.dims(
                max((fixed or 0) + 1, d.rank(max(1, want.least_rank)) if want.rank is None else want.rank)
            )
        else:
            shape = base
        if axis is not None and kids[k].kind != "seq" and not pieces:
            shape = (*shape[:axis], d.extent(), *shape[axis + 1 :])
        values = (
            [d.child(kids[k], Want(shape=shape, least_rank=1))]
            if kids[k].kind != "seq" or d.local is not None
            else _parts(d, kids[k], shape, fixed)
        )
        out[k] = values
        if base is None and values:
            base = d.shape(values[0])
            if not base:
                raise GiveUp
            axis = int(d.attr(term, op, "axis", lambda v=values[0]: d.rng.randrange(len(d.shape(v)))))
            if axis >= len(base):
                raise GiveUp
    if base is None:
        raise GiveUp
    return [v for k in range(len(kids)) for v in out[k]], {"axis": axis}


def _pieces(d: Draw, term: Term, op: str, want: Want) -> list[tuple[int, ...]]:
    """Shapes of the operands that make up the wanted one; empty where that is not asked for, or not possible."""
    kids, shape = term.children, want.shape
    if not shape or any(kid.kind == "seq" for kid in kids) or d.rng.random() < 0.2:
        return []
    axis = int(d.attr(term, op, "axis", lambda: d.rng.randrange(len(shape))))
    if axis >= len(shape) or shape[axis] < len(kids):
        return []
    cuts = [0, *sorted(d.rng.sample(range(1, shape[axis]), len(kids) - 1)), shape[axis]]
    return [(*shape[:axis], b - a, *shape[axis + 1 :]) for a, b in itertools.pairwise(cuts)]


def _parts(d: Draw, kid: Term, shape: tuple[int, ...], axis: int | None) -> list[int]:
    """Operands of a sequence variable: like the base but for one axis (any axis, where it is not known yet: equal
    shapes then)."""
    if kid.name in d.members:
        return d.members[kid.name]
    values = []
    for _ in range(d.count((0, 1, 1, 2, 2, 3))):
        one = shape if axis is None or axis >= len(shape) else (*shape[:axis], d.extent(), *shape[axis + 1 :])
        values.append(d.fresh(kid.name, Want(shape=one)))
    d.members[kid.name] = values
    return values


def _draw_split(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(least_rank=1, rank=want.rank))
    rank = len(d.shape(x))
    if not rank:
        raise GiveUp
    axis = d.attr(term, op, "axis", lambda: d.rng.choice([k for k in range(rank) if d.shape(x)[k] > 1] or [rank - 1]))
    if axis >= rank:
        raise GiveUp
    least = int(term.output) + 1 if isinstance(term.output, int) else 1
    name = term.attrs.get("split", "")
    lengths = d.hints.lengths.get(name) if d.obey else None

    def sizes() -> list[int]:
        extent = d.shape(x)[axis]
        n = d.rng.choice(lengths) if lengths else max(least, d.count((1, 2, 2, 3)))
        if n > extent:
            raise GiveUp
        cuts = sorted(d.rng.sample(range(1, extent), n - 1))
        return [b - a for a, b in zip([0, *cuts], [*cuts, extent], strict=True)]

    return [x], {"axis": axis, "split": d.attr(term, op, "split", sizes)}


def _draw_slice(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(least_rank=1, rank=want.rank))
    rank = len(d.shape(x))
    if not rank:
        raise GiveUp

    def axes() -> list[int]:
        wide = [k for k in range(rank) if d.shape(x)[k] > 1]
        pool = wide if wide and d.rng.random() < 0.8 else list(range(rank))
        return sorted(d.rng.sample(pool, 1 if d.rng.random() < 0.75 or len(pool) == 1 else 2))

    at = d.attr(term, op, "axes", axes)
    if any(a >= rank for a in at):
        raise GiveUp
    spans = [_span(d, d.shape(x)[a]) for a in at]
    names = ("starts", "ends", "steps")
    return [x], {"axes": at, **{n: d.attr(term, op, n, lambda k=k: [s[k] for s in spans]) for k, n in enumerate(names)}}


def _span(d: Draw, extent: int) -> tuple[int, int, int]:
    way = d.rng.random()
    if way < 0.1:
        return extent - 1, -extent - 1, -1
    if way < 0.2:
        return d.rng.randint(0, extent), extent, 2
    start = d.rng.randint(0, max(extent - 1, 0))
    return start, d.rng.randint(min(start + 1, extent), extent), 1


def _draw_gather(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(least_rank=1))
    rank = len(d.shape(x))
    if not rank:
        raise GiveUp
    axis = d.attr(term, op, "axis", lambda: d.rng.randrange(rank))
    if axis >= rank:
        raise GiveUp
    name = term.children[1].name
    ranks = d.hints.ranks.get(name) if d.obey else None
    index_rank = d.rng.choice(ranks) if ranks else d.rng.choice([0, 0, 1, 1, 2])
    below = d.shape(x)[axis]
    index = d.child(term.children[1], Want(shape=d.dims(index_rank), dtype=7, index_below=below))
    return [x, index], {"axis": axis}


def _draw_pad(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(rank=want.rank, least_rank=want.least_rank or 1))
    rank = len(d.shape(x))

    def pads() -> list[int]:
        if d.rng.random() < 0.5:
            lead = min(2, rank)
            return (
                ([0] * lead + [d.rng.randint(0, 2) for _ in range(rank - lead)]) * 2
                if d.rng.random() < 0.5
                else (
                    [0] * lead
                    + [d.rng.randint(0, 2) for _ in range(rank - lead)]
                    + [0] * lead
                    + [d.rng.randint(0, 2) for _ in range(rank - lead)]
                )
            )
        if d.rng.random() < 0.4:  # a negative pad cuts off
            return [d.rng.choice([-1, -1, 0, 1, 2]) for _ in range(2 * rank)]
        return [d.rng.choice([0, 0, 1, 2]) for _ in range(2 * rank)]

    return [x], {
        "mode": d.attr(
            term, op, "mode", lambda: "constant" if d.rng.random() < 0.8 else d.rng.choice(["edge", "reflect", "wrap"])
        ),
        "pads": d.attr(term, op, "pads", pads),
        "value": d.attr(term, op, "value", lambda: 0.0 if d.rng.random() < 0.7 else 1.0),
    }


def _draw_eye_like(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    square = (d.extent(),) * 2 if d.rng.random() < 0.7 else d.dims(2)
    x = d.child(term.children[0], Want(shape=want.shape if want.shape is not None and len(want.shape) == 2 else square))
    attrs = {"k": d.attr(term, op, "k", lambda: d.rng.choice([0, 0, 1, -1]))}
    if term.rest or "dtype" in term.attrs:  # without one it is that of the operand
        attrs["dtype"] = d.attr(term, op, "dtype", lambda: d.rng.choice([1, 7, 11]))
    return [x], attrs


def _native_slice(a: Attributes) -> NativeKind:
    if len(a["axes"]) != 1 or a.get("steps", [1]) != [1]:
        raise UsageError("The generator declines Slice of several axes or with steps.")
    return NativeKind("Slice", 1, [a["axes"][0], a["starts"][0], a["ends"][0]])


def _native_pad(a: Attributes) -> NativeKind:
    if a.get("mode", "constant") != "constant" or a.get("value", 0.0) != 0:
        raise UsageError("The generator declines Pad but with zeros.")
    return NativeKind("Pad", 1, list(a["pads"]))


register(
    "Concat", meaning=_concat, draw=_draw_concat, one_term=True, native=lambda a: NativeKind("Concat", 2, [a["axis"]])
)
register(
    "Split",
    meaning=_split,
    draw=_draw_split,
    one_term=True,
    native=lambda a: NativeKind("Split", 1, [a["axis"]], outputs=2),
)
register("Slice", meaning=_slice, draw=_draw_slice, one_term=True, native=_native_slice)
register("Pad", meaning=_pad, draw=_draw_pad, one_term=True, native=_native_pad)
register("Gather", meaning=_gather, draw=_draw_gather, one_term=True)
register("GatherElements", meaning=_gather_elements, one_term=True)
register("Trilu", meaning=_trilu)
register("Shape", meaning=_shape)
register("Size", meaning=_size)
register("EyeLike", meaning=_eye_like, draw=_draw_eye_like)
