"""Where a Softmax is not a number, over the prime field.

Its elements are e_k / (e_1 + ... + e_n), so that one NaN makes the sum NaN, and with it the whole row. Whether an
element that a Softmax made is NaN is therefore an arbitrary predicate of its row. Of any other element it is an
arbitrary predicate of that element.
"""

from __future__ import annotations

import weakref

import numpy as np

from rlflow.synthesis import field
from rlflow.synthesis.domains import Array, Field

_KEY = field.key_of("IsNaN", [])
#: Of the elements that Softmax made over a domain, the first of their row. They are 61 bits at random: nothing else is
#: equal to one by chance.
_FIRST_OF_ROW: weakref.WeakKeyDictionary[Field, dict[int, int]] = weakref.WeakKeyDictionary()


def note_rows(d: Field, made: Array, axis: int) -> None:
    """Remembers the elements that a Softmax made along ``axis``."""
    if not made.size:
        return
    first = np.broadcast_to(np.take(made, [0], axis=axis), made.shape)
    known = _FIRST_OF_ROW.setdefault(d, {})
    known.update(zip(made.reshape(-1).tolist(), first.reshape(-1).tolist(), strict=True))


def is_nan(d: Field, x: Array) -> Array:
    """Whether elements are NaN; bools of the shape of ``x``."""
    known = _FIRST_OF_ROW.get(d, {})
    asked = np.array([known.get(value, value) for value in x.reshape(-1).tolist()], dtype=np.uint64)
    return d.predicate(_KEY, asked.reshape(x.shape))
