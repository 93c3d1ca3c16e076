"""The rows that an operator needs: against its definition, element by element."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlflow.footprint import Blending, Repeating, Share, Sliding, Spreading


@given(st.data(), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(0, 6), st.integers(1, 40))
def test_a_window_reads_the_rows_of_its_definition(
    data: st.DataObject, kernel: int, stride: int, dilation: int, begin: int, height: int
) -> None:
    room = height + begin - (kernel - 1) * dilation - 1
    if room < 0:
        return
    rows = room // stride + 1
    first = data.draw(st.integers(0, rows - 1))
    end = data.draw(st.integers(first + 1, rows))
    share = Sliding(kernel, stride, dilation, begin).share(first, end, height)
    reads = [[o * stride - begin + j * dilation for j in range(kernel)] for o in range(first, end)]
    inside = [row for window in reads for row in window if 0 <= row < height]
    if share is None:
        assert not inside
        return
    assert share.first <= min(inside, default=share.first) and max(inside, default=share.first) < share.end
    assert 0 <= share.first < share.end <= height and share.before >= 0 and share.after >= 0
    assert (share.before == 0) or share.first == 0  # padding is where the input's own border is
    assert (share.after == 0) or share.end == height
    # The window in the band: place by place the same rows of the whole.
    length = share.end - share.first + share.before + share.after
    assert (length - (kernel - 1) * dilation - 1) // stride + 1 == end - first
    for place, window in enumerate(reads):
        band = [place * stride - share.before + j * dilation + share.first for j in range(kernel)]
        assert band == window


@given(st.data(), st.integers(1, 5), st.integers(1, 4), st.integers(1, 2), st.integers(0, 2), st.integers(1, 12))
def test_a_transposed_window_reads_all_that_adds_to_its_rows(
    data: st.DataObject, kernel: int, stride: int, dilation: int, begin: int, height: int
) -> None:
    rows = (height - 1) * stride + (kernel - 1) * dilation + 1 - 2 * begin
    if rows < 1:
        return
    first = data.draw(st.integers(0, rows - 1))
    end = data.draw(st.integers(first + 1, rows))
    share = Spreading(kernel, stride, dilation, begin).share(first, end, height)
    needed = {i for i in range(height) for j in range(kernel) if first <= i * stride - begin + j * dilation < end}
    if share is None:
        return
    assert needed <= set(range(share.first, share.end))
    made = (share.end - share.first - 1) * stride + (kernel - 1) * dilation + 1 - share.before - share.after
    assert made == end - first
    for i in range(share.first, share.end):  # each input row lands where it does in the whole
        here = [(i - share.first) * stride - share.before + j * dilation + first for j in range(kernel)]
        assert here == [i * stride - begin + j * dilation for j in range(kernel)]


@given(st.integers(1, 5), st.integers(0, 30), st.integers(1, 20))
def test_repeated_rows(factor: int, first: int, more: int) -> None:
    share = Repeating(factor).share(first, first + more, 100)
    assert share is not None
    made = [row for row in range(share.first, share.end) for _ in range(factor)]
    kept = made[share.before : len(made) - share.after]
    assert kept == [row // factor for row in range(first, first + more)]


def test_blending_keeps_the_ends_of_the_whole() -> None:
    assert Blending(2).share(0, 4, 10) == Share(0, 3, 0, 2)
    assert Blending(2).share(4, 8, 10) == Share(1, 5, 2, 2)
    assert Blending(2).share(16, 20, 10) == Share(7, 10, 2, 0)
