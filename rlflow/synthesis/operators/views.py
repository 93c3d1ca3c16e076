"""Views, and what repeats elements: reshaping, transposing, expanding."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rlflow.synthesis.domains import Array
from rlflow.synthesis.operators.drawing import fixed_attr
from rlflow.synthesis.operators.exact import no_tensor_operands, plain
from rlflow.synthesis.operators.facets import Call, Drawn, register
from rlflow.synthesis.operators.native import NativeKind
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import GiveUp, Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw


def _reshape(c: Call) -> Array:
    no_tensor_operands(c)
    x, target = c.arg(0), plain(c.attrs["shape"])
    if not c.attrs.get("allowzero"):
        target = [x.shape[k] if e == 0 else e for k, e in enumerate(target)]
    return x.reshape(target)


def _flatten(c: Call) -> Array:
    x, a = c.arg(0), c.attrs["axis"]
    return x.reshape(math.prod(x.shape[:a]), math.prod(x.shape[a:]))


def _squeeze(c: Call) -> Array:
    no_tensor_operands(c)
    return np.squeeze(c.arg(0), axis=tuple(c.attrs["axes"]))


def _unsqueeze(c: Call) -> Array:
    no_tensor_operands(c)
    return np.expand_dims(c.arg(0), tuple(c.attrs["axes"]))


def _transpose(c: Call) -> Array:
    return np.transpose(c.arg(0), c.attrs["perm"])


def _expand(c: Call) -> Array:
    no_tensor_operands(c)
    x = c.arg(0)
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(plain(c.attrs["shape"]))))


def _tile(c: Call) -> Array:
    no_tensor_operands(c)
    return np.tile(c.arg(0), c.attrs["repeats"])


def _blocks(c: Call) -> Array:
    x, b = c.arg(0), c.attrs["blocksize"]
    n, ch, h, w = x.shape
    if c.op == "SpaceToDepth":
        return x.reshape(n, ch, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, ch * b * b, h // b, w // b)
    if c.attrs["mode"] == "DCR":
        return x.reshape(n, b, b, ch // b // b, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, ch // b // b, h * b, w * b)
    return x.reshape(n, ch // b // b, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, ch // b // b, h * b, w * b)


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
    return out[:6] if math.prod(out[:6]) == math.prod(shape) else [math.prod(shape)]


def _unregrouped(d: Draw, want: Want) -> Want:
    if want.shape is None:
        return Want(least_rank=1) if d.rng.random() < 0.9 else Want()
    return Want(shape=tuple(_regroup(d, want.shape)))


def _draw_reshape(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    fixed = fixed_attr(d, term, "shape")
    x = d.child(term.children[0], Want(shape=tuple(_regroup(d, tuple(fixed)))) if fixed else _unregrouped(d, want))
    wish = list(want.shape) if want.shape is not None and math.prod(want.shape) == math.prod(d.shape(x)) else None
    shape = d.attr(term, op, "shape", lambda: wish if wish and d.rng.random() < 0.8 else _regroup(d, d.shape(x)))
    return [x], {"shape": shape}


def _draw_flatten(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0])
    return [x], {"axis": d.attr(term, op, "axis", lambda: d.rng.randint(0, len(d.shape(x))))}


def _draw_squeeze(d: Draw, term: Term, op: str, want: Want) -> Drawn:
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


def _draw_unsqueeze(d: Draw, term: Term, op: str, want: Want) -> Drawn:
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


def _draw_transpose(d: Draw, term: Term, op: str, want: Want) -> Drawn:
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


def _draw_expand(d: Draw, term: Term, op: str, want: Want) -> Drawn:
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


def _draw_tile(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0])
    return [x], {"repeats": d.attr(term, op, "repeats", lambda: [d.rng.choice([1, 1, 2, 3]) for _ in d.shape(x)])}


def _draw_blocks(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    b = d.attr(term, op, "blocksize", lambda: d.rng.choice([2, 2, 2, 1, 3]))
    shape = (1, b * b * d.rng.randint(1, 2), 2, 1) if op == "DepthToSpace" else (1, d.extent(), b, 2 * b)
    x = d.child(term.children[0], Want(shape=shape))
    attrs = {"blocksize": b}
    if op == "DepthToSpace":
        attrs["mode"] = d.attr(term, op, "mode", lambda: d.rng.choice(["DCR", "CRD"]))
    return [x], attrs


register("Reshape", meaning=_reshape, draw=_draw_reshape, one_term=True)
register("Flatten", meaning=_flatten, draw=_draw_flatten, one_term=True)
register("Squeeze", meaning=_squeeze, draw=_draw_squeeze, one_term=True)
register("Unsqueeze", meaning=_unsqueeze, draw=_draw_unsqueeze, one_term=True)
register(
    "Transpose",
    meaning=_transpose,
    draw=_draw_transpose,
    one_term=True,
    native=lambda a: NativeKind("Transpose", 1, list(a["perm"])),
)
register("Expand", meaning=_expand, draw=_draw_expand, one_term=True)
register("Tile", meaning=_tile, draw=_draw_tile, one_term=True)
register("DepthToSpace", "SpaceToDepth", meaning=_blocks, draw=_draw_blocks)
