"""How much each size of the reproduction runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """``models``: of the efficiency stage; ``limit``: expansions and ``seconds`` of CPU after which a run is given up.
    ``search_seconds``: CPU seconds of every search. ``latent``, ``graph``: what is set beside the presets ``tuned`` and
    ``graph``.
    """

    models: tuple[str, ...]
    searched: tuple[str, ...]
    timed: tuple[str, ...]
    studied: tuple[str, ...]
    seeds: int
    limit: int
    seconds: float
    search_seconds: float
    study_expansions: int
    study_rounds: int
    latent: dict[str, str]
    graph: dict[str, str]


SIZES = {
    "small": Size(
        models=("squeezenet1.1", "vit-base?layers=2", "llama-decoder-step", "resnet-18", "mobilenet-v2", "fpn-resnet18",
                "unet", "bert6-classifier?layers=2"),
        searched=("vit-base?layers=2", "bert-base", "vit-base", "bert6-classifier?layers=2", "squeezenet1.1",
                  "resnet-18", "resnet-50", "inception-v3"),
        timed=("squeezenet1.1", "inception-v3", "bert-base"),
        studied=("vit-base?layers=2", "squeezenet1.1"),
        seeds=3,
        limit=3000,
        seconds=60.0,
        search_seconds=10.0,
        study_expansions=300,
        study_rounds=4,
        latent={"random_episodes": "2", "downhill_episodes": "1", "episodes": "2", "horizon": "60",
                "hidden": "128", "fit_steps": "100", "dream_updates": "10", "batch": "5", "schedule": "3"},
        graph={"random_episodes": "0", "horizon": "60", "fit_steps": "40", "batch": "8", "opens": "20"},
    ),
    "full": Size(
        models=("squeezenet1.1", "resnet-18", "resnet-50", "inception-v3", "bert-base", "vit-base"),
        searched=("squeezenet1.1", "resnet-18", "resnet-50", "inception-v3", "bert-base", "vit-base"),
        timed=("squeezenet1.1", "resnet-50", "inception-v3", "bert-base", "vit-base"),
        studied=("bert-base", "inception-v3"),
        seeds=5,
        limit=100_000,
        seconds=4 * 3600.0,
        search_seconds=300.0,
        study_expansions=5000,
        study_rounds=20,
        latent={},
        graph={},
    ),
}  # fmt: skip
