"""Trains a world model that ships: `rlflow optimize --search rlflow` uses the graph form by default.

    python reproduce/rlflow/ship.py --form graph --out FILE      seven minutes of one core
    python reproduce/rlflow/ship.py --form latent --out FILE     twelve

On six models of the zoo with the analytic cost; the weights are kept in 16 bits. What was stopped goes on where it was,
from FILE.last. The same seed gives the same weights.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rlflow.env import ProblemSpec

#: Preset, options and real expansions of each form.
FORMS: dict[str, tuple[str, dict[str, str], int]] = {
    "graph": ("graph", {"fit_steps": "150", "opens": "20", "horizon": "60"}, 1500),
    "latent": ("tuned", {"hidden": "128", "fit_steps": "150", "batch": "8", "horizon": "60", "random_episodes": "2",
                         "downhill_episodes": "2", "episodes": "1"}, 1500),
}  # fmt: skip
MODELS = ("squeezenet1.1", "resnet-18", "vit-base?layers=2", "llama-decoder-step", "bert-base?layers=2&seq=64",
          "mobilenet-v2")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=FORMS, required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    import torch

    from rlflow.agents.rlflow import config as worldmodel_config
    from rlflow.agents.rlflow.train import WorldTrainer
    from rlflow.agents.rlflow.trained import WorldCheckpoint

    torch.set_num_threads(1)
    preset, given, expansions = FORMS[options.form]
    config = worldmodel_config.preset(preset).with_options(given)
    resume = options.out.with_name(options.out.name + ".last").exists()
    trainer = WorldTrainer([ProblemSpec(model) for model in MODELS], config, out=options.out, resume=resume)

    def report(figures: dict[str, Any]) -> None:
        print(figures["expansions"], figures["gains"], file=sys.stderr, flush=True)

    trainer.train(expansions, on_round=report)
    WorldCheckpoint.load(options.out).save(options.out, half=True)
    print(f"{options.out}: {trainer.progress.seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
