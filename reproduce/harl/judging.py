"""The best programs of all runs on one operator, timed again in turn: what each search found, by one clock.

A search reports the least time that it ever saw, in its own minutes of a machine that is now faster and now slower. So
who found the better program is only told here, where all of them take turns in one process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlflow.tuner.tvm_child import OperatorPrograms, opened

#: How often each program has its turn.
TURNS = 15


def judged(kind: str, sizes: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, float] | None]:
    """The least and the middle microseconds of each row's program; ``None`` where it has none, or that does not run.

    A process of its own does it, because TVM keeps what it compiled.
    """
    asked = {"kind": kind, "sizes": list(sizes), "programs": [_program(row) for row in rows]}
    environment = {**os.environ, "TVM_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, __file__], input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True,
        env=environment,
    )  # fmt: skip
    found: list[dict[str, float] | None] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _program(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's program: numbers of ours, or TVM's own text; with the seed, which the sketches depend on."""
    return {"seed": row["seed"], "program": row.get("program"), "trace": row.get("trace")}


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
    if program["program"] is not None:
        sketch, values = program["program"]
        return operator.built(sketch, tuple(values))
    if program["trace"] is None:
        return None
    tvm = opened()
    schedule = tvm.s_tir.Schedule(operator.module, debug_mask=0, error_render_level="none")
    tvm.s_tir.schedule.Trace.apply_json_to_schedule(tvm.ir.load_json(program["trace"]), schedule)
    return operator.compiled(schedule.mod)


def _answers(found: Sequence[Sequence[float]]) -> Iterator[dict[str, float] | None]:
    for took in found:
        least_and_middle = (min(took), statistics.median(took)) if took else None
        yield least_and_middle and {
            name: round(seconds * 1e6, 3)
            for name, seconds in zip(("least_us", "middle_us"), least_and_middle, strict=True)
        }


def main() -> int:
    asked = json.loads(sys.stdin.read())
    print(json.dumps(list(_answers(times(asked["kind"], asked["sizes"], asked["programs"])))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
