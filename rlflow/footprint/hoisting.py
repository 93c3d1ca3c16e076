"""Jobs in an order in which bands can take values whole: what makes such a value comes before those who take it."""

from __future__ import annotations

from collections.abc import Sequence

from rlflow.footprint.flow import FlowJob

__all__ = ["hoisted"]


def hoisted(jobs: Sequence[FlowJob]) -> list[FlowJob]:
    """The jobs, of which those that make a value which is taken whole stand before the rows that meet it, where that
    can be: in attention the values are made before the scores.
    """
    found = list(jobs)
    place = 0
    while place < len(found):
        for value in (found[place].inputs[one] for one in sorted(found[place].whole)):
            found = _with_first(found, place, value)
        place += 1
    return found


def _with_first(jobs: list[FlowJob], reader: int, value: str) -> list[FlowJob]:
    """The jobs with all that makes ``value`` before the rows of which the job at ``reader`` is the last."""
    maker = {name: place for place, job in enumerate(jobs) for name in job.outputs}
    rows = _rows_before(jobs, maker, reader)
    start = min(rows)
    needed = _ancestors(jobs, maker, value, start)
    if not needed or not rows.isdisjoint(needed):
        return jobs
    moved = sorted(needed)
    return [*jobs[:start], *(jobs[place] for place in moved),
            *(job for place, job in enumerate(jobs[start:], start) if place not in needed)]  # fmt: skip


def _rows_before(jobs: Sequence[FlowJob], maker: dict[str, int], last: int) -> set[int]:
    """The jobs that rows go through up to ``last``, back to those that take a value whole, too."""
    found, waiting = {last}, [last]
    while waiting:
        job = jobs[waiting.pop()]
        for place, value in enumerate(job.inputs):
            made = maker.get(value, -1)
            if place in job.whole or made < 0 or made in found or jobs[made].rows is None:
                continue
            found.add(made)
            if not jobs[made].whole:
                waiting.append(made)
    return found


def _ancestors(jobs: Sequence[FlowJob], maker: dict[str, int], value: str, start: int) -> set[int]:
    """The jobs from ``start`` on that ``value`` is made by."""
    found: set[int] = set()
    waiting = [value]
    while waiting:
        made = maker.get(waiting.pop(), -1)
        if made >= start and made not in found:
            found.add(made)
            waiting += jobs[made].inputs
    return found
