"""Trains the checkpoint that ships: `rlflow optimize --search xrlflow` uses it by default.

    python reproduce/xrlflow/ship.py --out rlflow/agents/checkpoints/xrlflow.npz

A few minutes of one core. Small forms of a few architectures, most of them a layer or two deep, on the two rooflines of
run.py; no vision transformer, no DALL-E decoder and no Inception is among them. The same seed gives the same file.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common")]

import run  # from this folder

#: Model and rooflines.
LEARN = (
    ("bert-base?layers=1", ("gpu", "cpu")),
    ("bert-base?layers=2", ("gpu",)),
    ("bert-base?layers=3", ("gpu",)),
    ("bert6-classifier?layers=1", ("gpu", "cpu")),
    ("bert6-classifier?layers=2", ("gpu",)),
    ("transducer?audio_layers=1&label_layers=1", ("gpu", "cpu")),
    ("transducer?audio_layers=2", ("gpu",)),
    ("llama-decoder-step?layers=1", ("gpu", "cpu")),
    ("squeezenet1.1", ("gpu", "cpu")),
    ("resnet-18", ("cpu",)),
)
#: To choose the weights by.
HELD_OUT = (
    ("vit-base?layers=2", ("gpu", "cpu")),
    ("vit-base?layers=4", ("gpu",)),
    ("dalle-decoder?layers=3", ("gpu",)),
    ("bert-base?layers=5", ("gpu",)),
    ("squeezenet1.1", ("gpu", "cpu")),
)
NOTE = "models on two rooflines of the analytic cost: the default one, and a GPU of 15 TFLOP/s, 1.4 TB/s, 4 us a launch"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--steps", type=int, default=1500, help="of its own play, after what it was shown")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import torch

    from rlflow.agents.config import preset
    from rlflow.agents.xrlflow import Trainer

    torch.set_num_threads(1)
    learn, held_out = ([run.spec(m, roofline) for m, some in group for roofline in some] for group in (LEARN, HELD_OUT))
    trainer = Trainer(
        learn, preset("taught"), held_out=held_out, seed=options.seed, evaluate_every=2, out=options.out,
    )  # fmt: skip

    def report(figures: dict[str, object]) -> None:
        if "score" in figures:
            print(f"{trainer.progress.steps} steps, score {figures['score']:.5f}", file=sys.stderr, flush=True)

    found = trainer.train(options.steps, on_update=report)
    found.card["note"] = NOTE
    found.save(options.out)
    print(f"{options.out}: {found.card}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
