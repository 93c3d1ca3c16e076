"""What samplers share: attributes that are bound, spatial ranks and images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import Want

if TYPE_CHECKING:
    from rlflow.synthesis.sampling import Draw


def fixed_attr(d: Draw, term: Term, name: str) -> Any:
    """A window attribute that is bound already."""
    if name in term.attrs:
        return d.attrs.get(term.attrs[name])
    return (d.twins.known(term.rest, name, d.rests)) if term.rest else None


def spatial_rank(d: Draw, term: Term, want: Want) -> int:
    for known in (fixed_attr(d, term, "kernel_shape"), fixed_attr(d, term, "strides")):
        if known:
            return len(known)
    if want.shape is not None and len(want.shape) > 2:
        return len(want.shape) - 2
    hints = [r for c in term.children if c.kind in ("var", "seq") for r in d.hints.ranks.get(c.name, []) if r > 2]
    if hints and d.obey:
        return hints[0] - 2
    return d.rng.choice([1, 2, 2, 2, 2, 3])


def image(d: Draw, n: int, want: Want, channels: int | None = None) -> tuple[int, ...]:
    batch = want.shape[0] if want.shape and len(want.shape) == n + 2 else d.rng.choice([1, 1, 2])
    space = [d.rng.randint(1, 5 if n < 3 else 3) for _ in range(n)]
    if want.shape and len(want.shape) == n + 2 and d.rng.random() < 0.4:
        space = list(want.shape[2:])
    elif d.large_left and d.hints.boundaries.extents and n < 3:
        space[d.rng.randrange(n)] = d.extent()
    return (batch, channels or d.rng.choice([1, 2, 2, 3, 4]), *space)
