"""Trains the checkpoint that ships: `rlflow optimize --search xrlflow` uses it by default.

    python reproduce/xrlflow/ship.py --out rlflow/nn/checkpoints/xrlflow.npz

Some seven minutes of one core, most of them demonstrations. Small forms of a few architectures, a layer to three deep,
and exercises (exercises.py), on the two rooflines of run.py; no vision transformer, no DALL-E decoder, no Inception and
no model of TASO's is among them, but the exercises were made with the way through TASO's BERT in mind. The same seed
gives the same weights.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common")]

import rooflines  # from this folder
from exercises import Stack  # from this folder

from rlflow.env import ProblemSpec

#: Model and rooflines; the last ones are too large to be taught and are practised.
LEARN = (
    ("bert-base?layers=1", ("gpu", "cpu")),
    ("bert6-classifier?layers=1", ("gpu", "cpu")),
    ("transducer?audio_layers=1&label_layers=1", ("gpu", "cpu")),
    ("llama-decoder-step?layers=1", ("gpu", "cpu")),
    ("squeezenet1.1", ("gpu", "cpu")),
    ("resnet-18", ("cpu",)),
    ("bert-base?layers=2", ("gpu",)),
    ("bert-base?layers=3", ("gpu",)),
    ("bert6-classifier?layers=2", ("gpu", "cpu")),
    ("transducer?audio_layers=2", ("gpu",)),
)
#: Exercises and rooflines.
STACKS = (
    (Stack(2, 1), ("gpu",)),
    (Stack(2, 3), ("gpu", "cpu")),
    (Stack(3, 2), ("gpu", "cpu")),
    (Stack(3, 3), ("gpu",)),
    (Stack(2, 3, open_end=True), ("gpu",)),
    (Stack(3, 2, inner=32), ("gpu",)),
    (Stack(4, 2, between="Relu"), ("gpu", "cpu")),
    (Stack(2, 3, rows=64, width=512, wide=512), ("cpu",)),
    (Stack(5, 3), ("gpu", "cpu")),
)
#: To play on besides.
PLAY = (("resnet-18", ("gpu",)),)
#: To choose the weights by.
HELD_OUT = (
    ("vit-base?layers=4", ("gpu",)),
    ("dalle-decoder?layers=3", ("gpu",)),
    ("bert-base?layers=5", ("gpu",)),
    ("transducer?audio_layers=4", ("gpu",)),
    ("resnet-50", ("gpu",)),
    ("squeezenet1.1", ("gpu", "cpu")),
)
NOTE = (
    "models and exercises (reproduce/xrlflow/exercises.py; graph ...) on two rooflines of the analytic cost: the "
    "default one, and a GPU of 15 TFLOP/s, 1.4 TB/s, 4 us a launch"
)


def exercise(stack: Stack, roofline: str) -> ProblemSpec:
    return ProblemSpec.of(stack.graph(), None, "analytic", rooflines.ROOFLINES[roofline])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--shown", type=Path, metavar="FILE", help="where the agent before its own play is kept")
    parser.add_argument("--steps", type=int, default=3000, help="of its own play, after what it was shown")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import torch

    from rlflow.agents.xrlflow.config import preset
    from rlflow.agents.xrlflow.ppo import Trainer
    from rlflow.agents.xrlflow.trained import PolicyCheckpoint

    torch.set_num_threads(1)
    learn, more, held_out = (
        [rooflines.spec(m, roof) for m, some in group for roof in some] for group in (LEARN, PLAY, HELD_OUT)
    )
    learn += [exercise(stack, roofline) for stack, some in STACKS for roofline in some]
    if options.shown is None or not options.shown.exists():
        shown = Trainer(learn, preset("taught"), held_out=held_out, seed=options.seed, out=options.shown).train(0)
    else:
        shown = PolicyCheckpoint.load(options.shown)
    trainer = Trainer(
        learn + more, dataclasses.replace(preset("taught"), rounds=0), held_out=held_out, seed=options.seed,
        evaluate_every=1, start=shown,
    )  # fmt: skip

    def report(figures: dict[str, object]) -> None:
        print(f"{trainer.progress.steps} steps, score {figures['score']:.5f}", file=sys.stderr, flush=True)

    found = trainer.train(options.steps, on_update=report)
    found.card["note"] = NOTE
    found.save(options.out)
    print(f"{options.out}: {found.card}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
