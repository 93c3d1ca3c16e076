"""The simulator of placements again, in plain Python and another way: time advances from moment to moment, and at each
everything is asked anew. For tests only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlflow.placement import Devices, Work


def simulate(
    work: Work, devices: Devices, device: Sequence[int], priority: Sequence[float] | None = None
) -> tuple[float, list[float], list[float]]:
    """(makespan, finish of each task, peak bytes of each device)."""
    seconds = work.times(devices)
    count, n = len(devices), work.tasks
    arrived: dict[tuple[int, int], float] = {}  # (value, device) -> when it is there
    link_free: dict[tuple[int, int], float] = {}
    sent: list[tuple[float, int, int]] = []  # (time of being held, value, receiver)
    start, finish = [math.inf] * n, [math.inf] * n
    for value, maker in enumerate(work.maker):
        if maker < 0:
            arrived.update({(value, d): 0.0 for d in range(count)})
    read = [[v for v, tasks in enumerate(work.readers) if t in tasks] for t in range(n)]
    ready_since: dict[int, tuple[float, int]] = {}
    busy_until, now, order = [0.0] * count, 0.0, 0
    done: set[int] = set()
    while len(done) < n:
        for t in sorted(range(n), key=lambda t: (finish[t], t)):
            if finish[t] <= now and t not in done:
                done.add(t)
                for v in work.outputs[t]:
                    arrived[v, device[t]] = now
                    for e in sorted({device[r] for r in work.readers[v]} - {device[t]}):
                        begin = max(now, link_free.get((device[t], e), 0.0)) if devices.serial_links else now
                        end = begin + devices.latency[device[t], e] + work.bytes[v] * devices.per_byte[device[t], e]
                        link_free[device[t], e] = arrived[v, e] = end
                        sent.append((now, v, e))
        for t in range(n):
            if t not in ready_since and all(arrived.get((v, device[t]), math.inf) <= now for v in read[t]):
                since = max([arrived[v, device[t]] for v in read[t]], default=0.0)
                ready_since[t] = (since, order)
                order += 1
        for d in range(count):
            mine = [t for t in ready_since if device[t] == d and math.isinf(start[t])]
            if mine and busy_until[d] <= now:
                t = min(mine, key=lambda t: (-(priority[t] if priority is not None else 0.0), *ready_since[t]))
                start[t], finish[t] = now, now + seconds[t, d]
                busy_until[d] = finish[t]
        later = [x for x in (*finish, *arrived.values(), *busy_until) if now < x < math.inf]
        if not later and len(done) < n and not any(f <= now and t not in done for t, f in enumerate(finish)):
            raise AssertionError("nothing happens any more")
        if later and not any(finish[t] <= now and t not in done for t in range(n)):
            now = min(later)
    return max(finish, default=0.0), finish, _peaks(work, device, start, finish, arrived, sent, count)


def _peaks(work, device, start, finish, arrived, sent, count) -> list[float]:
    """Bytes by looking at every moment: a value lives at home from its maker's start until its last local reader has
    finished and its last transfer has arrived; elsewhere from its sending until the last reader there has finished.
    """
    spans: list[tuple[int, float, float, float]] = []
    for v, maker in enumerate(work.maker):
        homes = range(count) if maker < 0 else [device[maker]]
        for d in homes:
            local = [finish[r] for r in work.readers[v] if device[r] == d]
            if maker < 0 and not local:
                continue
            gone = [arrived[v, e] for _, value, e in sent if value == v]
            begin = 0.0 if maker < 0 else start[maker]
            end = max([*local, *(gone if maker >= 0 else []), begin if maker < 0 else finish[maker]])
            spans.append((d, begin, math.inf if work.kept[v] and maker >= 0 else end, float(work.bytes[v])))
        for at, value, e in sent:
            if value == v:
                last = max(finish[r] for r in work.readers[v] if device[r] == e)
                spans.append((e, at, last, float(work.bytes[v])))
    constant = [0.0] * count
    for d in range(count):
        held = {w for t in range(work.tasks) if device[t] == d for w in (work.weights[t] if work.weights else ())}
        constant[d] = float(sum(work.weight_bytes[w] for w in held))
    peaks = []
    for d in range(count):
        moments = sorted({begin for place, begin, _, _ in spans if place == d})
        most = 0.0
        for moment in moments:
            alive = (s for s in spans if s[0] == d and s[1] <= moment)
            most = max(most, sum(size for _, begin, end, size in alive if end > moment or begin == moment))
        peaks.append(constant[d] + most)
    return peaks


def random_work(rng: np.random.Generator, tasks: int, *, ties: bool = False) -> Work:
    """A random graph of tasks; with ``ties`` many times are equal."""
    times = rng.integers(1, 4, tasks).astype(float) if ties else rng.random(tasks) + 0.1
    maker, readers, kept = [], [], []
    for t in range(tasks):
        for _ in range(int(rng.integers(1, 3))):
            later = np.arange(t + 1, tasks)
            chosen = sorted(rng.choice(later, min(len(later), int(rng.integers(0, 4))), replace=False).tolist())
            maker.append(t)
            readers.append(chosen)
            kept.append(not chosen)
    for _ in range(2):
        maker.append(-1)
        readers.append(sorted(rng.choice(tasks, min(tasks, 2), replace=False).tolist()))
        kept.append(False)
    weights = [sorted(rng.choice(4, int(rng.integers(0, 3)), replace=False).tolist()) for _ in range(tasks)]
    sizes = rng.random(len(maker)) + 0.05
    return Work(times, np.array(maker), sizes, readers, np.array(kept), weights, rng.random(4) * 3)
