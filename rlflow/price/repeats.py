"""Times that can be had again: each model is timed in new sessions until they agree.

Most sessions of one small model differ by a per cent or two, but about one in twenty is slower by ten to twenty-five
per cent for as long as it lives (its buffers lie badly, or a neighbour of this machine was busy in that moment). A
price is asked for once and kept, so that one such session misleads every later search; and nothing makes a session
faster than it is. So the two fastest sessions have to agree, and their mean is the time. Of small models two slow
sessions agree by accident too often (a moment's noise lasts longer than they do), and sessions cost little: they get a
few more.

What takes longer than such moments last is never out of them, so that the fastest sessions differ by chance too. Models
from ``PACED_MS`` on are timed beside two references (:mod:`rlflow.price.pace`), and all their sessions count, each at
the same pace. In three price databases of each kind, taken in turns, the prices of the 42 dearest regions of a
ResNet-18 and its variants had a standard deviation of 3.7 % with the fastest sessions and of 1.9 % so. Those of the
short products of a recurrent network had 1 % with the fastest sessions, and up to 10 % beside references.

Where there is no time for sessions that agree, the fastest of a few short ones counts. (Beside two busy programs, the
times of the regions of a ShuffleNet had a standard deviation of 32 % by one session of three samples, of 14 % by the
fastest of three, and one of nine samples was no better than one of three: it is the sessions that differ.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlflow.price.pace import at_pace, pace_of, residuals
from rlflow.runtime import Measurement

#: The two fastest sessions agree if they differ by this part of the time, or by so many milliseconds.
AGREEMENT, AGREEMENT_MS = 0.02, 0.0005
#: Models that take so many milliseconds are timed beside references, and their sessions agree if the standard error of
#: their mean is this part of the time.
PACED_MS, STEADY = 0.3, 0.01
MOST_SESSIONS = 7
#: Every model gets two sessions, and one more for each of these bounds (milliseconds) that it stays below.
SMALL_MS = (5.0, 1.0)

Found = Measurement | str
Item = tuple[str, bytes, Any]
Measure = Callable[[Sequence[Item]], Mapping[str, Found]]
Over = Callable[[], bool]


def repeated(
    measure: Measure, items: Sequence[Item], beside: Measure | None = None, over: Over = lambda: False
) -> dict[str, Found]:
    """``measure`` all of ``items``, and again, in reverse order, those whose times do not agree yet; or
    ``beside`` references those that take long.

    Every item gets two to four sessions at least and ``MOST_SESSIONS`` at most. A sentence (the runtime refused it)
    stands. ``over`` is asked before further sessions; where it says yes, what there is counts.
    """
    first = dict(measure(items)) if items else {}
    if beside is None:
        return _until_agreed(measure, items, first, over)
    long = {key for key, one in first.items() if isinstance(one, Measurement) and one.ms >= PACED_MS}
    short = [item for item in items if item[0] not in long]
    found = _until_agreed(measure, short, {key: first[key] for key, *_ in short}, over)
    if long and over():
        return found | {key: first[key] for key in long}
    return found | _until_agreed(beside, [item for item in items if item[0] in long], {}, over)


def fastest(measure: Measure, items: Sequence[Item], over: Over = lambda: False) -> dict[str, Found]:
    """The fastest of one session of each of ``items``, and one more for each bound of ``SMALL_MS`` that it stays below;
    no more where it is ``over``. A sentence stands.
    """
    found = dict(measure(items))
    for bound in SMALL_MS:
        waiting = [item for item in items if isinstance(one := found[item[0]], Measurement) and one.ms < bound]
        if not waiting or over():
            break
        for key, one in measure(waiting).items():
            found[key] = min(found[key], one, key=_ms)
    return found


def _ms(one: Found) -> float:
    """Below all times where it is a sentence."""
    return -1.0 if isinstance(one, str) else one.ms


def _until_agreed(measure: Measure, items: Sequence[Item], first: Mapping[str, Found], over: Over) -> dict[str, Found]:
    """New sessions of each of ``items``, after a ``first`` one where there was one, until they agree or it is
    ``over``.
    """
    refused = {key: one for key, one in first.items() if isinstance(one, str)}
    found = {key: [one for one in [first.get(key)] if isinstance(one, Measurement)] for key, *_ in items}
    waiting = list(items)
    for _ in range(len(first) > 0, MOST_SESSIONS):
        waiting = [item for item in reversed(waiting) if item[0] not in refused and not agreed(found[item[0]])]
        if not waiting or (all(found[item[0]] for item in waiting) and over()):
            break
        for key, one in measure(waiting).items():
            if isinstance(one, str):
                refused[key] = one
            else:
                found[key].append(one)
    return {key: refused[key] if key in refused else combined(times) for key, times in found.items()}


def agreed(times: Sequence[Measurement]) -> bool:
    """Whether there are enough sessions for a model of this size, and they differ by little."""
    if len(times) < 2:
        return False
    first, second = sorted(one.ms for one in times)[:2]
    if len(times) < 2 + sum(first < bound for bound in SMALL_MS):
        return False
    if not _paced(times):
        return second - first <= max(AGREEMENT * first, AGREEMENT_MS)
    off = residuals([one.beside for one in times])
    return float(np.std(off, ddof=1)) / math.sqrt(len(off)) <= STEADY


def combined(times: Sequence[Measurement]) -> Measurement:
    """All sessions as one, at the median pace of their samples; or the mean of the two fastest, where nothing was timed
    beside (the spread is theirs, their difference included).
    """
    samples = sum(one.samples for one in times)
    if _paced(times):
        together = Measurement(0.0, 0.0, samples, tuple(row for one in times for row in one.beside))
        return at_pace(together, pace_of(times))
    fastest = sorted(times, key=lambda one: one.ms)[:2]
    ms = sum(one.ms for one in fastest) / len(fastest)
    spread = max(*(one.spread_ms for one in fastest), fastest[-1].ms - fastest[0].ms)
    return Measurement(ms, spread, samples)


def _paced(times: Sequence[Measurement]) -> bool:
    return all(one.beside for one in times)
