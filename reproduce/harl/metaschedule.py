"""TVM's own search, MetaSchedule, on one operator; `run.py --stage live --methods metaschedule` calls it.

    python reproduce/harl/metaschedule.py gemm 128 128 128 --trials 64 --seed 0 [--batch 64]

Evolutionary search with boosted trees, as TVM has them (`pip install 'rlflow[tuner]' xgboost`), on the sketches,
with the builder and by the clock of rlflow's TVM engine. Two of its values differ: batches are of 16 programs, since
TVM's 64 would be half of a short run (`--batch 64` has it so: less searching, and less found); and the trees predict
after the first batch, not only after 100 trials.
Prints a line of JSON: operations; after each batch trials, microseconds of the best program and processor seconds of
the whole process; and the best program, as TVM writes it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlflow.tuner.tvm_child import OperatorPrograms

BATCH = 16
#: What TVM keeps for a program that cannot run.
_CANNOT_RUN = 1e10


@dataclass
class Best:
    """The fastest schedule so far."""

    seconds: float = math.inf
    schedule: Any = None

    def hear(self, seconds: float, schedule: Any) -> None:
        """Of one more."""
        if seconds < self.seconds:
            self.seconds, self.schedule = seconds, schedule

    def text(self) -> str | None:
        """Its trace as TVM writes it; ``None``: nothing ran."""
        import tvm

        return None if self.schedule is None else str(tvm.ir.save_json(self.schedule.trace.as_json()))


def curve(
    operator: OperatorPrograms, trials: int, seed: int, model: Any = None, best: Best | None = None, batch: int = BATCH
) -> Iterator[list[float]]:
    """[trials, microseconds of the best, processor seconds] after each batch; ``model``: another than the trees;
    ``best`` hears of every program.
    """
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.meta_schedule.database import MemoryDatabase
    from tvm.s_tir.meta_schedule.runner import RunnerResult

    context = meta_schedule.TuneContext(
        mod=operator.module, target=operator.target, space_generator="post-order-apply", search_strategy="evolutionary",
        num_threads=1, rand_state=1 + seed,
    )  # fmt: skip
    trees = model or meta_schedule.CostModel.create("xgb", num_tuning_cores=1, num_warmup_samples=batch)
    database = MemoryDatabase()
    context.pre_tuning(trials, batch, None, database, trees)
    best, done = best or Best(), 0
    while candidates := context.generate_measure_candidates():
        found = []
        for one in candidates:
            seconds = operator.seconds_of(one.sch.mod, best.seconds)
            best.hear(seconds, one.sch)
            runs = math.isfinite(seconds)
            found.append(RunnerResult([seconds], None) if runs else RunnerResult(None, "it cannot run"))
        context.notify_runner_results(candidates, found)
        keep(database, context, candidates, found)
        trees.update(context, candidates, found)
        done += len(candidates)
        yield [done, round(best.seconds * 1e6, 3), round(time.process_time(), 3)]
    context.post_tuning()


def keep(database: Any, context: Any, candidates: Any, found: Any) -> None:
    """Let the next generation begin with what was measured."""
    from tvm.s_tir.meta_schedule.database import TuningRecord

    workload = database.commit_workload(context.mod)
    for one, result in zip(candidates, found, strict=True):
        seconds = list(result.run_secs) if result.run_secs else [_CANNOT_RUN]
        database.commit_tuning_record(TuningRecord(one.sch.trace, workload, seconds, context.target, one.args_info))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind")
    parser.add_argument("sizes", nargs="+", type=int)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=BATCH, help="programs between two generations")
    options = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = "1"
    operator, best = OperatorPrograms(options.kind, tuple(options.sizes), options.seed), Best()
    found = list(curve(operator, options.trials, options.seed, best=best, batch=options.batch))
    print(json.dumps({"flops": operator.flops, "curve": found, "trace": best.text()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
