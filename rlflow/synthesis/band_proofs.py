"""Bands of rows proved: that the shares of :mod:`rlflow.footprint.rowmaps` are exact, for every height and every band.

z3 proves it of the code itself. A row map runs on integers that are symbols; each comparison on the way is decided both
ways, as far as both are possible. For each way through the code that is left, z3 shows that no height, band, padding,
kernel size, stride, dilation or factor contradicts the statement; only linear interpolation has its factors by number.

What is proved of a band with output rows ``[first, end)``:

* it reads rows that the input has, and makes exactly so many rows;
* place by place, it reads the very row that the whole reads there, and padding exactly where the whole does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rlflow.footprint.rowmaps import Along, Blending, Repeating, RowMap, Share, Sliding, Spreading
from rlflow.synthesis.axioms import z3_or_raise

__all__ = ["BandProof", "band_proofs"]

#: Factors of linear interpolation that are proved, each for itself.
DOUBLINGS = (2, 4, 8, 16)
#: Milliseconds that z3 gets for one question.
PATIENCE = 20_000


class BandProof(NamedTuple):
    """A statement; the ways through the code for which it is proved; and, where it is not, one that contradicts it in
    z3's words, or that z3 found nothing in its time (empty: it is proved).
    """

    statement: str
    ways: int
    against: str = ""

    def __str__(self) -> str:
        ways = f"{self.ways} {'way' if self.ways == 1 else 'ways'} through the code"
        return f"{self.statement}: {'proved' if self.proved else 'not proved'}; {ways}"

    @property
    def proved(self) -> bool:
        """Whether nothing contradicts it, and it says something."""
        return not self.against and self.ways > 0


class _Case(NamedTuple):
    """One statement. ``make``: the row map of symbols; ``claims``: what holds of a share (before it: what is assumed
    beside the general things), of (first, end, height, share).
    """

    statement: str
    names: tuple[str, ...]
    make: Callable[..., RowMap]
    assumed: Callable[..., list[Any]]
    claims: Callable[..., Any]


def band_proofs() -> Iterator[BandProof]:
    """All statements, one by one. Raises ProofError without z3."""
    z3 = z3_or_raise()
    for case in _cases(z3):
        yield _proved(z3, case)


# --- statements -------------------------------------------------------------------------------------------------------


def _cases(z3: Any) -> Iterator[_Case]:
    yield _Case("row by row", (), Along, lambda first, end, height: [end <= height], _same_rows)
    yield _Case(
        "a window", ("kernel", "stride", "dilation", "begin"), Sliding, _window_of,
        lambda *found: _slides(z3, *found),
    )  # fmt: skip
    yield _Case(
        "a window whose padding counts", ("kernel", "stride", "dilation", "begin", "strict"), Sliding,
        lambda first, end, height, *sizes: [*_window_of(first, end, height, *sizes[:4]), sizes[4] >= 0],
        lambda *found: _slides(z3, *found),
    )  # fmt: skip
    yield _Case(
        "a transposed window", ("kernel", "stride", "dilation", "begin"), Spreading, _window_of,
        lambda *found: _spreads(z3, *found),
    )  # fmt: skip
    yield _Case(
        "each row several times", ("factor",), Repeating,
        lambda first, end, height, factor: [factor >= 1, end <= factor * height],
        lambda *found: _repeats(z3, *found),
    )  # fmt: skip
    for factor in DOUBLINGS:
        for shift in (1 - factor, 0):
            yield _Case(
                f"linear interpolation, factor {factor}, {'half_pixel' if shift else 'asymmetric'}", (),
                lambda f=factor: Blending(f),
                lambda first, end, height, f=factor: [end <= f * height],
                lambda *found, f=factor, by=shift: _blends(z3, f, by, *found),
            )  # fmt: skip


def _window_of(first: Any, end: Any, height: Any, kernel: Any, stride: Any, dilation: Any, begin: Any) -> list[Any]:
    return [kernel >= 1, stride >= 1, dilation >= 1, begin >= 0]


def _same_rows(first: Any, end: Any, height: Any, share: Share) -> list[Any]:
    return [share.first == first, share.end == end, share.before == 0, share.after == 0]


def _slides(
    z3: Any, first: Any, end: Any, height: Any, share: Share,
    kernel: Any, stride: Any, dilation: Any, begin: Any, strict: Any = None,
) -> list[Any]:  # fmt: skip
    row, tap = z3.Ints("row tap")
    rows = share.end - share.first
    whole = row * stride - begin + tap * dilation
    band = (row - first) * stride - share.before + tap * dilation
    asked = z3.And(first <= row, row < end, tap >= 0, tap < kernel)
    room = rows + share.before + share.after - (kernel - 1) * dilation - 1
    found = [
        share.first >= 0, share.first < share.end, share.end <= height, share.before >= 0, share.after >= 0,
        room == (end - first - 1) * stride,
        z3.Implies(asked, band + share.first == whole),
        z3.Implies(asked, z3.And(whole >= 0, whole < height) == z3.And(band >= 0, band < rows)),
    ]  # fmt: skip
    return found if strict is None else [*found, z3.Implies(asked, whole < height + strict)]


def _spreads(
    z3: Any, first: Any, end: Any, height: Any, share: Share, kernel: Any, stride: Any, dilation: Any, begin: Any
) -> list[Any]:
    given, tap = z3.Ints("given tap")
    made = given * stride - begin + tap * dilation
    adds = z3.And(given >= 0, given < height, tap >= 0, tap < kernel, first <= made, made < end)
    band = (given - share.first) * stride - share.before + tap * dilation
    rows = (share.end - share.first - 1) * stride + (kernel - 1) * dilation + 1 - share.before - share.after
    return [
        share.first >= 0, share.first < share.end, share.end <= height, share.before >= 0,
        z3.Or(-share.after < stride, -share.after < dilation), rows == end - first,
        z3.Implies(adds, z3.And(share.first <= given, given < share.end, band == made - first)),
    ]  # fmt: skip


def _repeats(z3: Any, first: Any, end: Any, height: Any, share: Share, factor: Any) -> list[Any]:
    row = z3.Int("row")
    return [
        *_cut(factor, first, end, height, share),
        z3.Implies(
            z3.And(first <= row, row < end),
            share.first + (row - first + share.before) / factor == row / factor,
        ),
    ]


def _blends(z3: Any, factor: int, shift: int, first: Any, end: Any, height: Any, share: Share) -> list[Any]:
    """Row ``o`` lies at ``(2 o + shift) / (2 factor)`` among the rows of the input, between two whole numbers."""
    row = z3.Int("row")
    local, rows = row - first + share.before, share.end - share.first
    whole, band = 2 * row + shift, 2 * local + shift
    near, near_band = whole / (2 * factor), band / (2 * factor)
    asked = z3.And(first <= row, row < end)
    return [
        *_cut(factor, first, end, height, share),
        z3.Implies(asked, whole % (2 * factor) == band % (2 * factor)),
        z3.Implies(asked, near_band + share.first == near),
        z3.Implies(asked, (near < 0) == (near_band < 0)),
        z3.Implies(asked, (near + 1 >= height) == (near_band + 1 >= rows)),
    ]


def _cut(factor: Any, first: Any, end: Any, height: Any, share: Share) -> list[Any]:
    """What is made of the rows of a share, and then cut off."""
    made = (share.end - share.first) * factor - share.before - share.after
    return [
        share.first >= 0, share.first < share.end, share.end <= height, share.before >= 0, share.after >= 0,
        made == end - first,
    ]  # fmt: skip


# --- ways through the code --------------------------------------------------------------------------------------------


def _proved(z3: Any, case: _Case) -> BandProof:
    first, end, height = z3.Ints("first end height")
    others = [z3.Int(name) for name in case.names]
    assumed = [first >= 0, first < end, height >= 1, *case.assumed(first, end, height, *others)]
    ways = 0
    for decided, share in _ways(z3, assumed, lambda way: _share(way, case, first, end, height, others)):
        if share is None:  # this band cannot be; that claims nothing
            continue
        ways += 1
        for claim in case.claims(first, end, height, share, *others):
            solver = z3.Solver()
            solver.set("timeout", PATIENCE)
            solver.add(*decided, z3.Not(claim))
            answer = solver.check()
            if answer != z3.unsat:
                said = str(solver.model()) if answer == z3.sat else f"z3 found nothing in {PATIENCE // 1000} s"
                return BandProof(case.statement, ways, f"{z3.simplify(claim)}: {said}")
    return BandProof(case.statement, ways)


def _share(way: _Way, case: _Case, first: Any, end: Any, height: Any, others: list[Any]) -> Share | None:
    made = case.make(*(_Number(way, one) for one in others))
    found = made.share(*(_Number(way, one) for one in (first, end, height)))  # type: ignore[arg-type]
    return None if found is None else Share(*map(_plain, found))


def _ways(
    z3: Any, assumed: list[Any], run: Callable[[_Way], Share | None]
) -> Iterator[tuple[list[Any], Share | None]]:
    """Each possible way through ``run``: what was assumed and decided, and what came of it."""
    waiting: list[list[bool]] = [[]]
    while waiting:
        way = _Way(z3, assumed, waiting.pop())
        found = run(way)
        waiting += way.others
        yield way.decided, found


class _Way:
    """One way through code: the first comparisons as ``given``, later ones true where that is possible. ``others``: the
    beginnings of the ways that were left out.
    """

    def __init__(self, z3: Any, assumed: list[Any], given: list[bool]) -> None:
        self._z3, self._given = z3, given
        self.decided, self.others = list(assumed), list[list[bool]]()
        self._taken: list[bool] = []

    def takes(self, condition: Any) -> bool:
        """Whether a comparison is true on this way."""
        place = len(self._taken)
        if place < len(self._given):
            taken = self._given[place]
        else:
            taken = self._may_be(condition)
            if taken and self._may_be(self._z3.Not(condition)):
                self.others.append([*self._taken, False])
        self._taken.append(taken)
        self.decided.append(condition if taken else self._z3.Not(condition))
        return taken

    def _may_be(self, condition: Any) -> bool:
        solver = self._z3.Solver()
        solver.set("timeout", PATIENCE)
        solver.add(*self.decided, condition)
        return bool(solver.check() != self._z3.unsat)


class _Number:
    """An integer of z3's that Python code computes with; comparing it decides a way."""

    def __init__(self, way: _Way, value: Any) -> None:
        self._way, self.value = way, value

    def _made(self, value: Any) -> _Number:
        return _Number(self._way, value)

    def __add__(self, other: Any) -> _Number:
        return self._made(self.value + _plain(other))

    def __sub__(self, other: Any) -> _Number:
        return self._made(self.value - _plain(other))

    def __mul__(self, other: Any) -> _Number:
        return self._made(self.value * _plain(other))

    def __floordiv__(self, other: Any) -> _Number:
        assert not isinstance(other, int) or other > 0  # as all symbols here are that are divided by
        return self._made(self.value / _plain(other))  # then z3 rounds as Python does

    def __neg__(self) -> _Number:
        return self._made(-self.value)

    def __radd__(self, other: int) -> _Number:
        return self._made(other + self.value)

    def __rsub__(self, other: int) -> _Number:
        return self._made(other - self.value)

    def __rmul__(self, other: int) -> _Number:
        return self._made(other * self.value)

    def __lt__(self, other: Any) -> bool:
        return self._way.takes(self.value < _plain(other))

    def __le__(self, other: Any) -> bool:
        return self._way.takes(self.value <= _plain(other))

    def __gt__(self, other: Any) -> bool:
        return self._way.takes(self.value > _plain(other))

    def __ge__(self, other: Any) -> bool:
        return self._way.takes(self.value >= _plain(other))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _Number) else value
