"""Operands and attributes of views and data movement (registered with :mod:`operands`)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from rlflow.synthesis.operands import Drawn, fixed_attr, generator
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import GiveUp, Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw


# ---- views and movement ---------------------------------------------------------------------------------------------


def _regroup(d: Draw, shape: tuple[int, ...]) -> list[int]:
    """Another shape of as many elements: neighbours merged, extents factored, ones put in or left out."""
    out = list(shape)
    for _ in range(d.rng.randint(1, 3)):
        way = d.rng.random()
        if way < 0.4 and len(out) > 1:
            k = d.rng.randrange(len(out) - 1)
            out[k : k + 2] = [out[k] * out[k + 1]]
        elif way < 0.75 and out:
            k = d.rng.randrange(len(out))
            f = d.rng.choice([f for f in range(1, out[k] + 1) if out[k] % f == 0] or [1])
            out[k : k + 1] = [f, out[k] // f] if f else [out[k]]
        elif way < 0.88:
            out.insert(d.rng.randint(0, len(out)), 1)
        elif 1 in out:
            out.remove(1)
    return out[:6] if _product(out[:6]) == _product(shape) else [_product(shape)]


def _product(shape: Any) -> int:
    n = 1
    for e in shape:
        n *= e
    return n


def _unregrouped(d: Draw, want: Want) -> Want:
    if want.shape is None:
        return Want(least_rank=1) if d.rng.random() < 0.9 else Want()
    return Want(shape=tuple(_regroup(d, want.shape)))


@generator("Reshape")
def _reshape(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    fixed = fixed_attr(d, term, "shape")
    x = d.child(term.children[0], Want(shape=tuple(_regroup(d, tuple(fixed)))) if fixed else _unregrouped(d, want))
    wish = list(want.shape) if want.shape is not None and _product(want.shape) == _product(d.shape(x)) else None
    shape = d.attr(term, op, "shape", lambda: wish if wish and d.rng.random() < 0.8 else _regroup(d, d.shape(x)))
    return [x], {"shape": shape}


@generator("Flatten")
def _flatten(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0])
    return [x], {"axis": d.attr(term, op, "axis", lambda: d.rng.randint(0, len(d.shape(x))))}


@generator("Squeeze")
def _squeeze(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    child = term.children[0]
    if not d.is_known(child):
        rank = want.rank + 1 if want.rank is not None else d.rank(1)
        shape = list(want.shape) if want.shape is not None else list(d.dims(max(rank - 1, 0)))
        for _ in range(d.rng.randint(1, 2)):
            shape.insert(d.rng.randint(0, len(shape)), 1)
        x = d.child(child, Want(shape=tuple(shape)))
    else:
        x = d.child(child, Want(least_rank=1))
    ones = [k for k, e in enumerate(d.shape(x)) if e == 1]
    if not ones:
        raise GiveUp
    return [x], {"axes": d.attr(term, op, "axes", lambda: sorted(d.rng.sample(ones, d.rng.randint(1, len(ones)))))}


@generator("Unsqueeze")
def _unsqueeze(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    wish = want.shape
    if wish is not None and 1 in wish:
        k = d.rng.choice([k for k, e in enumerate(wish) if e == 1])
        x = d.child(term.children[0], Want(shape=wish[:k] + wish[k + 1 :]))
    else:
        x = d.child(term.children[0], Want(rank=max(want.rank - 1, 0) if want.rank else None))
    rank = len(d.shape(x))

    def axes() -> list[int]:
        n = 1 if d.rng.random() < 0.7 else 2
        return sorted(d.rng.sample(range(rank + n), n))

    return [x], {"axes": d.attr(term, op, "axes", axes)}


@generator("Transpose")
def _transpose(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    fixed = fixed_attr(d, term, "perm")
    least = 2 if d.rng.random() < 0.85 else 0
    if want.shape is not None:
        perm = fixed or d.rng.sample(range(len(want.shape)), len(want.shape))
        if len(perm) == len(want.shape):
            source = [1] * len(perm)
            for k, p in enumerate(perm):
                source[p] = want.shape[k]
            x = d.child(term.children[0], Want(shape=tuple(source)))
            return [x], {
                "perm": d.attr(
                    term, op, "perm", lambda: list(perm) if len(d.shape(x)) == len(perm) else _perm(d, len(d.shape(x)))
                )
            }
    x = d.child(term.children[0], Want(rank=len(fixed) if fixed else want.rank, least_rank=least))
    return [x], {"perm": d.attr(term, op, "perm", lambda: _perm(d, len(d.shape(x))))}


def _perm(d: Draw, rank: int) -> list[int]:
    perm = list(range(rank))
    way = d.rng.random()
    if way < 0.35 and rank > 1:
        perm[-2:] = perm[:-3:-1]
    elif way < 0.5 and rank > 2:
        k = d.rng.randrange(rank - 1)
        perm[k], perm[k + 1] = perm[k + 1], perm[k]
    elif way < 0.92:
        d.rng.shuffle(perm)
    return perm


@generator("Concat")
def _concat(d: Draw, term: Term, op: str, want: Want) -> Drawn:
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
    for _ in range(d.rng.choice([0, 1, 1, 2, 2, 3])):
        one = shape if axis is None or axis >= len(shape) else (*shape[:axis], d.extent(), *shape[axis + 1 :])
        values.append(d.fresh(kid.name, Want(shape=one)))
    d.members[kid.name] = values
    return values


@generator("Split")
def _split(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(least_rank=1, rank=want.rank))
    rank = len(d.shape(x))
    if not rank:
        raise GiveUp
    axis = d.attr(term, op, "axis", lambda: d.rng.choice([k for k in range(rank) if d.shape(x)[k] > 1] or [rank - 1]))
    if axis >= rank:
        raise GiveUp
    least = int(term.output) + 1 if isinstance(term.output, int) else 1
    name = term.attrs.get("split", "")
    lengths = d.plan.lengths.get(name) if d.obey else None

    def sizes() -> list[int]:
        extent = d.shape(x)[axis]
        n = d.rng.choice(lengths) if lengths else max(least, d.rng.choice([1, 2, 2, 3]))
        if n > extent:
            raise GiveUp
        cuts = sorted(d.rng.sample(range(1, extent), n - 1))
        return [b - a for a, b in zip([0, *cuts], [*cuts, extent], strict=True)]

    return [x], {"axis": axis, "split": d.attr(term, op, "split", sizes)}


@generator("Slice")
def _slice(d: Draw, term: Term, op: str, want: Want) -> Drawn:
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


@generator("Gather")
def _gather(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(least_rank=1))
    rank = len(d.shape(x))
    if not rank:
        raise GiveUp
    axis = d.attr(term, op, "axis", lambda: d.rng.randrange(rank))
    if axis >= rank:
        raise GiveUp
    name = term.children[1].name
    ranks = d.plan.ranks.get(name) if d.obey else None
    index_rank = d.rng.choice(ranks) if ranks else d.rng.choice([0, 0, 1, 1, 2])
    below = d.shape(x)[axis]
    index = d.child(term.children[1], Want(shape=d.dims(index_rank), dtype=7, index_below=below))
    return [x, index], {"axis": axis}


@generator("Expand")
def _expand(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    target = tuple(want.shape) if want.shape is not None else d.dims(d.rank())
    shape = tuple(
        e if d.rng.random() < 0.5 else 1 for e in target[d.rng.randint(0, len(target)) if d.rng.random() < 0.3 else 0 :]
    )
    fixed = fixed_attr(d, term, "shape")
    x = d.child(term.children[0], Want(shape=shape))

    def wide() -> list[int]:
        out = list(d.shape(x))
        for k, e in enumerate(out):
            if e == 1 and d.rng.random() < 0.6:
                out[k] = d.extent()
        return [*d.dims(d.rng.choice([0, 0, 1, 2])), *out]

    fits = want.shape is not None and d.shape(x) == shape
    return [x], {"shape": d.attr(term, op, "shape", lambda: list(target) if fits and not fixed else wide())}


@generator("Tile")
def _tile(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0])
    return [x], {"repeats": d.attr(term, op, "repeats", lambda: [d.rng.choice([1, 1, 2, 3]) for _ in d.shape(x)])}


@generator("Pad")
def _pad(d: Draw, term: Term, op: str, want: Want) -> Drawn:
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
        return [d.rng.choice([0, 0, 1, 2]) for _ in range(2 * rank)]

    return [x], {
        "mode": d.attr(
            term, op, "mode", lambda: "constant" if d.rng.random() < 0.8 else d.rng.choice(["edge", "reflect"])
        ),
        "pads": d.attr(term, op, "pads", pads),
        "value": d.attr(term, op, "value", lambda: 0.0 if d.rng.random() < 0.7 else 1.0),
    }


@generator("DepthToSpace", "SpaceToDepth")
def _blocks(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    b = 2
    shape = (1, 4 * d.rng.randint(1, 2), 2, 1) if op == "DepthToSpace" else (1, d.extent(), 2, 4)
    x = d.child(term.children[0], Want(shape=shape))
    attrs = {"blocksize": d.attr(term, op, "blocksize", lambda: b)}
    if op == "DepthToSpace":
        attrs["mode"] = d.attr(term, op, "mode", lambda: d.rng.choice(["DCR", "CRD"]))
    return [x], attrs


@generator("EyeLike")
def _eye_like(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    square = (d.extent(),) * 2 if d.rng.random() < 0.7 else d.dims(2)
    x = d.child(term.children[0], Want(shape=want.shape if want.shape is not None and len(want.shape) == 2 else square))
    return [x], {"k": d.attr(term, op, "k", lambda: 0)}
