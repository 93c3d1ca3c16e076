"""Trains the policy of chains that ships: `rlflow optimize --search levin` uses it by default.

    python reproduce/learning/chains.py --out rlflow/nn/checkpoints/levin.npz
    python reproduce/learning/chains.py --out FILE --resume       goes on where it was stopped

On the families of config.json that are to train on, by recorded prices (results/prices.jsonl), so that no clock decides
what is learnt: the same command makes the same file. Each family is two lessons: by the recorded prices, and by drawn
ones, as another machine could have them.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "common")]

from families import CONFIG, read  # from this folder
from run import MEASURED, RULES, priced

from rlflow.agents.chain_lessons.chain_training import LevinTraining
from rlflow.search import InterruptGuard, Problem, StopToken
from rlflow.search.levin.trained import LevinConfig
from rlflow.specs import pair

LESSONS = tuple(CONFIG["training"]) + tuple(CONFIG["further"])
ROUNDS, MACHINES = 2, 2


@dataclass(frozen=True)
class Block:
    """A family's block by its recorded prices, as a lesson. ``machine``: 0 for the recorded ones, else drawn ones."""

    family: str
    machine: int = 0

    @property
    def title(self) -> str:
        return f"{self.family}, machine {self.machine}" if self.machine else self.family

    def load(self) -> Block:
        return self

    @property
    def ruleset(self) -> Any:
        return RULES

    def problem(self, budget: str, **options: Any) -> Problem:
        return Problem(read(self.family), RULES, priced(MEASURED, self.family, self.machine), budget, **options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, metavar="FILE")
    parser.add_argument("--families", nargs="*", choices=LESSONS, metavar="NAME", default=LESSONS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--machines", type=int, default=MACHINES, help="prices of so many machines, this one included")
    parser.add_argument("--set", dest="options", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    config = LevinConfig().with_options(dict(filter(None, map(pair, options.options))))
    blocks = [Block(family, machine) for machine in range(options.machines) for family in options.families]
    training = LevinTraining(blocks, config, out=options.out, resume=options.resume)
    stop = StopToken()
    with InterruptGuard(stop):
        training.train(options.rounds, on_lesson=_tell, stop=stop)
    print(f"{training.progress.rounds} rounds, {training.progress.seconds:.0f} CPU seconds: {options.out}")
    return 130 if stop.stopped else 0  # who called it may not take this for the end


def _tell(figures: dict[str, Any]) -> None:
    print(
        f"round {figures['round']}  {figures['model']:<26} gain {figures['gain']:.4f}  chains {figures['chains']:>3}  "
        f"{figures['seconds']:.0f} s",
        file=sys.stderr, flush=True,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
