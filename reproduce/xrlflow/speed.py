"""Steps a second of the environment on BERT-base with the analytic cost: one core, no policy, nothing remembered.

    python reproduce/xrlflow/speed.py [--model bert-base] [--steps 300] [--json FILE]

CPU time of this process; the walk is random and begins anew every 40 steps. The bar is 300.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "common"))

import numpy as np
import results

from rlflow import env

BAR = 300.0
WALK = 40


def steps_per_second(model: str, observation: str, steps: int) -> tuple[float, float]:
    """Steps a second of CPU time, and the mean number of candidates at a step."""
    world = env.make(model, observation=observation, keep=1, horizon=10 * WALK)
    rng = np.random.default_rng(0)
    _, info = world.reset(seed=0)
    seconds, candidates = 0.0, []
    for step in range(steps):
        action = int(rng.integers(1, info["actions"]))
        candidates.append(info["actions"] - 1)
        begun = time.process_time()
        _, _, terminated, truncated, info = world.step(action)
        seconds += time.process_time() - begun
        if terminated or truncated or step % WALK == WALK - 1:
            _, info = world.reset()
    return steps / seconds, statistics.mean(candidates)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bert-base")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--json", type=Path)
    results.add_options(parser)
    options = parser.parse_args()
    command = ["python", "reproduce/xrlflow/speed.py", "--model", options.model]
    kept = results.Results(options.json, command, dirty=options.dirty) if options.json else None
    rows = []
    for observation in ("cost", "ragged"):
        speed, candidates = steps_per_second(options.model, observation, options.steps)
        rows.append({"kind": "speed", "model": options.model, "observation": observation, "steps_per_second": speed,
                     "candidates": candidates, "bar": BAR, "met": speed >= BAR})  # fmt: skip
        print(f"{options.model}, observation {observation}: {speed:.0f} steps/s ({candidates:.0f} candidates; bar 300)")
    if kept is not None:
        kept.extend(rows)
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
