"""Which input rows an operator needs for some of its output rows, and how it computes just these.

**Why bands are exact.** Let an operator compute output row ``o`` from the input rows ``t(o, 0), t(o, 1), ...``, and let
what it reads outside of the input be its padding. For output rows ``[first, end)`` a band reads the input rows that
lie between the least and the largest of these ``t``, clipped to the input. Relative to the band, row ``o`` has the
place ``o - first``. Each class below chooses the padding (or what is cut off) so that place ``o - first`` of the band
reads the very rows ``t(o, j)``: the formula is linear in ``o``, so one shift is right for all of them. What lies before
the first row of a band is padding only where it is before the first row of the whole input, because the band was
clipped there and nowhere else; the same holds at the end. So each output element is the same sum, or the same maximum,
of the same operands. The kernels may add in another order, so the sums may round differently.
:mod:`rlflow.synthesis.band_proofs` proves this of the code below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Share(NamedTuple):
    """Input rows ``[first, end)``. ``before`` and ``after``: rows of padding at either end, or rows of the result that
    are cut off (see :attr:`RowMap.cuts`).
    """

    first: int
    end: int
    before: int = 0
    after: int = 0


class RowMap(Protocol):
    """How rows go through an operator."""

    @property
    def cuts(self) -> bool:
        """Whether ``before`` and ``after`` of a share are rows to cut off the result of the operator."""

    def share(self, first: int, end: int, height: int) -> Share | None:
        """What output rows ``[first, end)`` need of an input of ``height`` rows; ``None`` where they cannot be computed
        by themselves.
        """


@dataclass(frozen=True)
class Along:
    """Row by row: output row ``o`` needs input row ``o``."""

    cuts = False

    def share(self, first: int, end: int, height: int) -> Share | None:
        """The same rows."""
        return Share(first, end)


@dataclass(frozen=True)
class Sliding:
    """A window: output row ``o`` needs the input rows ``o * stride - begin + j * dilation`` for ``0 <= j < kernel``.

    ``strict``: rows of padding at the end that count in the result, beyond which no window may reach; ``None`` where
    what lies outside never counts.
    """

    kernel: int
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    strict: int | None = None

    cuts = False

    def share(self, first: int, end: int, height: int) -> Share | None:
        """The rows from the first window's first to the last window's last, clipped; ``None`` where all of them are
        padding, or where a window reaches beyond padding that counts.
        """
        low = first * self.stride - self.begin
        high = (end - 1) * self.stride - self.begin + (self.kernel - 1) * self.dilation + 1
        start, stop = max(low, 0), min(high, height)
        if start >= stop or (self.strict is not None and high > height + self.strict):
            return None
        return Share(start, stop, start - low, high - stop)


@dataclass(frozen=True)
class Spreading:
    """A transposed convolution: input row ``i`` adds to the output rows ``i * stride - begin + j * dilation``.

    A share's ``before`` is the padding that cuts the result's beginning; a negative ``after`` is output padding.
    """

    kernel: int
    stride: int = 1
    dilation: int = 1
    begin: int = 0

    cuts = False

    def share(self, first: int, end: int, height: int) -> Share | None:
        """All input rows that add to one of the output rows, and one more where none does."""
        reach = (self.kernel - 1) * self.dilation
        start = -(-(first + self.begin - reach) // self.stride)
        start = max(min(start, (first + self.begin) // self.stride, height - 1), 0)
        stop = max(min((end - 1 + self.begin) // self.stride + 1, height), start + 1)
        before = first - (start * self.stride - self.begin)
        after = (stop - 1) * self.stride - self.begin + reach + 1 - end
        if before < 0 or -after >= max(self.stride, self.dilation, 1):
            return None
        return Share(start, stop, before, after)


@dataclass(frozen=True)
class Repeating:
    """Each row ``factor`` times: output row ``o`` needs input row ``o // factor``."""

    factor: int

    cuts = True

    def share(self, first: int, end: int, height: int) -> Share | None:
        """The rows that are repeated; what is too much is cut off."""
        start, stop = first // self.factor, -(-end // self.factor)
        return Share(start, stop, first - start * self.factor, stop * self.factor - end)


@dataclass(frozen=True)
class Blending:
    """Linear interpolation by a whole ``factor``: output row ``o`` needs the input rows next to ``o / factor``, at most
    one further on either side; at the ends of the input the last row counts again.
    """

    factor: int

    cuts = True

    def share(self, first: int, end: int, height: int) -> Share | None:
        """One row more on either side, where there is one; what is made of the band's own ends is cut off."""
        start, stop = max(first // self.factor - 1, 0), min(-(-end // self.factor) + 1, height)
        return Share(start, stop, first - start * self.factor, stop * self.factor - end)
