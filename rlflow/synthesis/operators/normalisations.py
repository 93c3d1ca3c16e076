"""Normalisations, and functions of whole rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Field
from rlflow.synthesis.operators import degrees, not_numbers
from rlflow.synthesis.operators.exact import floats_only, function_of, rows_over
from rlflow.synthesis.operators.facets import Call, Drawn, register
from rlflow.synthesis.operators.native import Attributes, NativeKind
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import GiveUp, Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw


def _batch_norm(c: Call) -> Array:
    floats_only(c)
    d, x = c.domain, c.arg(0)
    tail = (1, -1, *[1] * (x.ndim - 2)) if x.ndim > 1 else (-1,)
    scale, bias, mean, var = (c.arg(k).reshape(tail) for k in range(1, 5))
    root = function_of(d, "Sqrt", d.add(var, d.constant(c.attrs["epsilon"])))
    return d.add(d.mul(scale, d.div(d.sub(x, mean), root)), bias)


def _row_wise(c: Call) -> Array:
    floats_only(c)
    x = c.arg(0)
    if x.ndim == 0:
        return c.domain.rows(field.key_of(c.op, c.attrs.get("p")), x.reshape(1)).reshape(())
    return rows_over(c, x, [c.attrs["axis"]], field.key_of(c.op, c.attrs.get("p")))


def _softmax(c: Call) -> Array:
    """A row function, of which IsNaN asks the row."""
    out = _row_wise(c)
    if isinstance(c.domain, Field) and out.ndim:
        not_numbers.note_rows(c.domain, out, c.attrs["axis"])
    return out


def _layer_norm(c: Call) -> Array | list[Array]:
    floats_only(c)
    x, d = c.arg(0), c.domain
    axes = list(range(c.attrs["axis"], x.ndim))
    key = field.key_of(c.op, c.attrs["epsilon"], c.attrs["stash_type"])
    out = d.mul(rows_over(c, x, axes, key), c.arg(1))
    out = d.add(out, c.arg(2)) if c.present(2) else out
    return [out, *_statistics(c, x, key)] if len(c.out_dtypes) > 1 else out


def _statistics(c: Call, x: Array, key: int) -> list[Array]:
    lead = x.shape[: c.attrs["axis"]]
    rows = c.domain.words(x).reshape(*lead, math.prod(x.shape[len(lead) :]))
    state = field.row_state(key, rows).reshape(*lead, *[1] * (x.ndim - len(lead)))
    return [c.domain.function(field.key_of(key, k), state) for k in ("mean", "deviation")]


def _instance_norm(c: Call) -> Array:
    floats_only(c)
    x, d = c.arg(0), c.domain
    tail = (1, -1, *[1] * (x.ndim - 2))
    rows = rows_over(c, x, list(range(2, x.ndim)), c.key())
    return d.add(d.mul(rows, c.arg(1).reshape(tail)), c.arg(2).reshape(tail))


def _group_norm(c: Call) -> Array:
    floats_only(c)
    x, d, g = c.arg(0), c.domain, c.attrs["num_groups"]
    tail = (1, -1, *[1] * (x.ndim - 2))
    grouped = x.reshape(x.shape[0], g, math.prod(x.shape[1:]) // g)
    as_instances = field.key_of("InstanceNormalization", [("epsilon", c.attrs["epsilon"])])
    rows = rows_over(c, grouped, [2], as_instances).reshape(x.shape)
    return d.add(d.mul(rows, c.arg(1).reshape(tail)), c.arg(2).reshape(tail))


def _mean_variance(c: Call) -> Array:
    floats_only(c)
    return rows_over(c, c.arg(0), list(c.attrs["axes"]), field.key_of(c.op))


def _lrn(c: Call) -> Array:
    floats_only(c)
    return rows_over(c, c.arg(0), [1], c.key())


def _draw_epsilon(d: Draw, term: Term, op: str) -> float:
    return float(d.attr(term, op, "epsilon", lambda: d.rng.choice([2.0**-10, 0.125, 0.5])))


def _draw_channel_norm(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    least = 2 if op == "BatchNormalization" else 3
    wish = want.shape if want.shape is not None and len(want.shape) >= least else None
    x = d.child(term.children[0], Want(shape=wish or d.dims(max(least, want.rank or d.rng.choice([2, 3, 4, 4, 4])))))
    if len(d.shape(x)) < least:
        raise GiveUp
    channels = d.shape(x)[1]
    attrs: dict[str, Any] = {"epsilon": _draw_epsilon(d, term, op)}
    if op == "GroupNormalization":
        attrs["num_groups"] = d.attr(
            term, op, "num_groups", lambda: d.rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
        )
    return [x, *(d.child(c, Want(shape=(channels,), dtype=d.dtype_of(x))) for c in term.children[1:])], attrs


def _draw_layer_norm(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(shape=want.shape or None, least_rank=1, rank=want.rank))
    rank = len(d.shape(x))
    if not rank:
        raise GiveUp
    last = rank - 1
    axis = d.attr(term, op, "axis", lambda: last if d.rng.random() < 0.7 else d.rng.randrange(rank))
    attrs = {"axis": axis, "epsilon": _draw_epsilon(d, term, op)}
    attrs["stash_type"] = d.attr(term, op, "stash_type", lambda: 1 if d.rng.random() < 0.9 else 16)
    tail = d.shape(x)[axis:]
    shape = tail if d.rng.random() < 0.85 else d.rng.choice([tail[-1:], (1,), d.shape(x)[max(axis - 1, 0) :]])
    return [x, *(d.child(c, Want(shape=shape, dtype=d.dtype_of(x))) for c in term.children[1:])], attrs


def _draw_along_axis(d: Draw, term: Term, op: str, want: Want) -> Drawn:
    x = d.child(term.children[0], Want(shape=want.shape, least_rank=1, rank=want.rank))
    if not d.shape(x):
        raise GiveUp
    attrs = {"axis": d.attr(term, op, "axis", lambda: d.rng.randrange(len(d.shape(x))))}
    if op == "LpNormalization":
        attrs["p"] = d.attr(term, op, "p", lambda: d.rng.randint(1, 2))
    return [x], attrs


def _native_layer(a: Attributes) -> NativeKind:
    """Over the last axis, with a scale and no bias."""
    key = field.key_of("LayerNormalization", float(np.float32(a["epsilon"])), a["stash_type"])
    return NativeKind("ScaledRows", 2, [a["axis"]], key=key)


register(
    "BatchNormalization",
    meaning=_batch_norm,
    draw=_draw_channel_norm,
    integers=False,
    degree=degrees.normalised,
    one_term=True,
    parameters=True,
)
register("InstanceNormalization", meaning=_instance_norm, draw=_draw_channel_norm, integers=False, parameters=True)
register("GroupNormalization", meaning=_group_norm, draw=_draw_channel_norm, integers=False, parameters=True)
register("LayerNormalization", meaning=_layer_norm, draw=_draw_layer_norm, integers=False, native=_native_layer)
register("RMSNormalization", meaning=_layer_norm, draw=_draw_layer_norm, integers=False)
register("MeanVarianceNormalization", meaning=_mean_variance, integers=False)
register("LRN", meaning=_lrn, integers=False)
for _name, _meaning in (("Softmax", _softmax), ("LogSoftmax", _row_wise)):
    register(
        _name,
        meaning=_meaning,
        draw=_draw_along_axis,
        integers=False,
        native=lambda a, op=_name: NativeKind("Rows", 1, [a["axis"]], key=field.key_of(op, None)),
    )
register("Hardmax", "LpNormalization", meaning=_row_wise, draw=_draw_along_axis, integers=False)
