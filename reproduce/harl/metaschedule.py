"""TVM's own search, MetaSchedule, on one operator; `run.py --stage live --methods metaschedule` calls it.

    python reproduce/harl/metaschedule.py gemm 128 128 128 --trials 64 --seed 0

Evolutionary search with boosted trees, as TVM has them (`pip install 'rlflow[tuner]' xgboost`), on the sketches,
with the builder and by the clock of rlflow's TVM engine. Two of its values differ: batches are of 16 programs, since
one of 64 would be all of a short run, and the trees predict after the first batch, not only after 100 trials.
Prints a line of JSON: operations, and after each batch trials, microseconds of the best program and processor seconds
of the whole process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from rlflow.tuner.tvm_child import OperatorPrograms

BATCH = 16
#: What TVM keeps for a program that cannot run.
_CANNOT_RUN = 1e10


def curve(operator: OperatorPrograms, trials: int, seed: int, model: Any = None) -> Iterator[list[float]]:
    """[trials, microseconds of the best, processor seconds] after each batch; ``model``: another than the trees."""
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.meta_schedule.database import MemoryDatabase
    from tvm.s_tir.meta_schedule.runner import RunnerResult

    context = meta_schedule.TuneContext(
        mod=operator.module, target=operator.target, space_generator="post-order-apply", search_strategy="evolutionary",
        num_threads=1, rand_state=1 + seed,
    )  # fmt: skip
    trees = model or meta_schedule.CostModel.create("xgb", num_tuning_cores=1, num_warmup_samples=BATCH)
    database = MemoryDatabase()
    context.pre_tuning(trials, BATCH, None, database, trees)
    best, done = math.inf, 0
    while candidates := context.generate_measure_candidates():
        found = []
        for one in candidates:
            seconds = operator.seconds_of(one.sch.mod, best)
            best = min(best, seconds)
            runs = math.isfinite(seconds)
            found.append(RunnerResult([seconds], None) if runs else RunnerResult(None, "it cannot run"))
        context.notify_runner_results(candidates, found)
        keep(database, context, candidates, found)
        trees.update(context, candidates, found)
        done += len(candidates)
        yield [done, round(best * 1e6, 3), round(time.process_time(), 3)]
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
    options = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = "1"
    operator = OperatorPrograms(options.kind, tuple(options.sizes), options.seed)
    print(json.dumps({"flops": operator.flops, "curve": list(curve(operator, options.trials, options.seed))}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
