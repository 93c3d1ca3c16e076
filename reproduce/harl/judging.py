"""The programs that runs on one operator found, timed again in turn: by one clock.

A search reports the least time that it ever saw, in its own minutes of a machine that is now faster and now slower. So
who found the better program, and after how long, is only told here, where all of them take turns in one process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rlflow.tuner.tvm_child import OperatorPrograms, opened

#: How often each program has its turn.
TURNS = 15


def judged(kind: str, sizes: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each row the least and the middle microseconds of the program that it found; nothing where it has none, or
    that does not run. Where a row says by which programs it got there, ``steps``: trials, processor seconds and the
    middle microseconds of each of them.

    A process of its own does it, because TVM keeps what it compiled.
    """
    programs = [_programs(row) for row in rows]
    asked = {"kind": kind, "sizes": list(sizes), "programs": [one for some in programs for one in some]}
    environment = {**os.environ, "TVM_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, __file__], input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True,
        env=environment,
    )  # fmt: skip
    left = iter(json.loads(ended.stdout.splitlines()[-1]))
    return [_answer(row, [next(left) for _ in some]) for row, some in zip(rows, programs, strict=True)]


def _programs(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row's programs, the best one last: numbers of ours, or TVM's own text; with the seed, which the sketches depend
    on.
    """
    seed = row["seed"]
    if "climb" in row:
        return [{"seed": seed, "program": program} for _, _, program in row["climb"]]
    return [{"seed": seed, "trace": row["trace"]}] if row.get("trace") else []


def _answer(row: Mapping[str, Any], found: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Fields of what is known of a row."""
    middles = [round(statistics.median(took) * 1e6, 3) if took else None for took in found]
    answer: dict[str, Any] = {}
    if found and found[-1]:
        answer = {"least_us": round(min(found[-1]) * 1e6, 3), "middle_us": middles[-1]}
    if "climb" in row:
        climbed = zip(row["climb"], middles, strict=True)
        answer["steps"] = [[trials, spent, middle] for (trials, spent, _), middle in climbed]
    return answer


def times(kind: str, sizes: Sequence[int], programs: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """[programs][turns] Seconds; nothing of a program that cannot be built."""
    operators = {seed: OperatorPrograms(kind, tuple(sizes), seed) for seed in {one["seed"] for one in programs}}
    built = [_built(operators[one["seed"]], one) for one in programs]
    clock = next(iter(operators.values()))
    found: list[list[float]] = [[] for _ in programs]
    for _ in range(TURNS):
        for took, function in zip(found, built, strict=True):
            if function is not None:
                took.append(clock.call_seconds(function))
    return found


def _built(operator: OperatorPrograms, program: Mapping[str, Any]) -> Any:
    if "program" in program:
        sketch, values = program["program"]
        return operator.built(sketch, tuple(values))
    tvm = opened()
    schedule = tvm.s_tir.Schedule(operator.module, debug_mask=0, error_render_level="none")
    tvm.s_tir.schedule.Trace.apply_json_to_schedule(tvm.ir.load_json(program["trace"]), schedule)
    return operator.compiled(schedule.mod)


def main() -> int:
    asked = json.loads(sys.stdin.read())
    print(json.dumps(times(asked["kind"], asked["sizes"], asked["programs"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
