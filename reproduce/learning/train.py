"""Expert iteration on the training half: searches show, the policy imitates, then plays itself and is judged.

    python reproduce/learning/train.py --out build/learning/agent.npz [--graphs 24] [--steps 2000] [--seed 0] [--resume]

It learns on blocks of the eight training families, cut at random places and of random sizes, and is judged on the
families' whole blocks; nothing of the unseen half is read. It begins with the weights that ship (``--start none``:
with fresh ones). ``--resume`` goes on where OUT.last ended, once the demonstrations are over. The same seed gives the
same weights. ``run.py --checkpoint OUT --out FILE`` says what came of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE))

import families  # from this folder

from rlflow.env import ProblemSpec
from rlflow.graph import Graph
from rlflow.search import generator

#: Working nodes of a block to learn on: small enough that a teacher finds what is to be found.
NODES = (20, 70)
TEACHERS = "backtracking:alpha=1.3;backtracking:alpha=1.05;mcts"


def blocks(count: int, seed: int) -> Iterator[Graph]:
    """Random blocks of the training families, one family after the other."""
    rng = generator(seed)
    names = families.CONFIG["training"]
    for number in range(count):
        whole = families.read(names[number % len(names)])
        yield families.block(whole, float(rng.random()), int(rng.integers(NODES[0], NODES[1] + 1)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--graphs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=2000, help="of its own play, after what it was shown")
    parser.add_argument("--rounds", type=int, default=2, help="of demonstrations")
    parser.add_argument("--teacher-budget", default="800x")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", choices=["shipped", "none"], default="shipped")
    known = families.CONFIG["training"]
    parser.add_argument("--judge", nargs="+", choices=known, metavar="FAMILY", default=known, help="default: all")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(arguments)
    import torch

    from rlflow.agents.xrlflow.config import preset
    from rlflow.agents.xrlflow.ppo import Trainer
    from rlflow.agents.xrlflow.trained import SHIPPED, PolicyCheckpoint

    torch.set_num_threads(1)
    config = dataclasses.replace(
        preset("taught"), rounds=options.rounds, teacher=TEACHERS, teacher_budget=options.teacher_budget,
        own_budget="150x", orders=2,
    )  # fmt: skip
    trainer = Trainer(
        [ProblemSpec.of(graph) for graph in blocks(options.graphs, options.seed)],
        config,
        held_out=[ProblemSpec.of(families.read(name)) for name in options.judge],
        out=options.out,
        seed=options.seed,
        evaluate_every=2,
        resume=options.resume,
        start=PolicyCheckpoint.load(SHIPPED) if options.start == "shipped" else None,
    )

    def report(figures: dict[str, object]) -> None:
        print(f"{trainer.progress.steps} steps, gain {figures['gain']:.5f}, score {figures.get('score')}",
              file=sys.stderr, flush=True)  # fmt: skip

    found = trainer.train(options.steps, on_update=report)
    print(f"{options.out}: {found.card}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
