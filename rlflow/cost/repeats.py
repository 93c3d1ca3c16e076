"""Times that can be had again: each model is timed in new sessions until two of them agree.

Most sessions of one region differ by a per cent or two, but about one in twenty is slower by ten to twenty-five per
cent for as long as it lives (its buffers lie badly, or a neighbour of this machine was busy in that moment). A price is
asked for once and kept, so that one such session misleads every later search; and nothing makes a session faster than
it is. So the two fastest sessions have to agree, and their mean is the time. Of small models two slow sessions agree by
accident too often (a moment's noise lasts longer than they do), and sessions cost little: they get a few more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlflow.runtime import Measurement

#: The two fastest sessions agree if they differ by this part of the time, or by so many milliseconds.
AGREEMENT, AGREEMENT_MS = 0.02, 0.0005
MOST_SESSIONS = 7
#: Every model gets two sessions, and one more for each of these bounds (milliseconds) that it stays below.
SMALL_MS = (5.0, 1.0)

Found = Measurement | str
Item = tuple[str, bytes, Any]


def repeated(measure: Callable[[Sequence[Item]], Mapping[str, Found]], items: Sequence[Item]) -> dict[str, Found]:
    """``measure`` all of ``items``, and again, in reverse order, those whose times do not agree yet.

    Every item gets two to four sessions at least and ``MOST_SESSIONS`` at most. A sentence (the runtime refused it)
    stands.
    """
    found: dict[str, list[Measurement]] = {key: [] for key, *_ in items}
    refused: dict[str, str] = {}
    waiting = list(items)
    for _ in range(MOST_SESSIONS):
        for key, one in measure(waiting).items():
            if isinstance(one, str):
                refused[key] = one
            else:
                found[key].append(one)
        waiting = [item for item in reversed(waiting) if item[0] not in refused and not agreed(found[item[0]])]
        if not waiting:
            break
    return {key: refused[key] if key in refused else combined(times) for key, times in found.items()}


def agreed(times: Sequence[Measurement]) -> bool:
    """Whether there are enough sessions for a model of this size, and the two fastest differ by little."""
    if len(times) < 2:
        return False
    first, second = sorted(one.ms for one in times)[:2]
    if len(times) < 2 + sum(first < bound for bound in SMALL_MS):
        return False
    return second - first <= max(AGREEMENT * first, AGREEMENT_MS)


def combined(times: Sequence[Measurement]) -> Measurement:
    """The mean of the two fastest sessions; the spread is theirs, their difference included."""
    fastest = sorted(times, key=lambda one: one.ms)[:2]
    ms = sum(one.ms for one in fastest) / len(fastest)
    spread = max(*(one.spread_ms for one in fastest), fastest[-1].ms - fastest[0].ms)
    return Measurement(ms, spread, sum(one.samples for one in times))
