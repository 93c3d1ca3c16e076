"""Checkpoints of world models: one ``.npz`` of arrays and a line of JSON, as :mod:`rlflow.agents.checkpoint`'s."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlflow.agents.checkpoint import FORMAT, part_of, read_archive, write_archive
from rlflow.agents.worldmodel_config import WorldConfig
from rlflow.nn.batch import Vocabulary

KIND = "worldmodel"


@dataclass
class WorldCheckpoint:
    """``weights``: arrays by name, the networks' names in front. ``extra``: what a resumed training needs beside them.
    ``progress``, ``card``: as :class:`rlflow.agents.checkpoint.Checkpoint` has them.
    """

    config: WorldConfig
    vocabulary: Vocabulary
    weights: dict[str, np.ndarray]
    extra: dict[str, np.ndarray] = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)

    def save(self, path: str | os.PathLike[str], *, half: bool = False) -> None:
        """Write the file, through a temporary one; ``half``: weights in 16 bits, for shipping. Raises
        :class:`rlflow.errors.OutputError`.
        """
        meta = {
            "kind": KIND,
            "format": FORMAT,
            "config": self.config.to_dict(),
            "vocabulary": {"ops": self.vocabulary.ops, "rules": self.vocabulary.rules},
            "progress": self.progress,
            "card": self.card,
        }
        small = np.float16 if half else np.float32
        arrays = {f"weights/{name}": array.astype(small) for name, array in self.weights.items()}
        write_archive(Path(path), meta, arrays | {f"extra/{name}": array for name, array in self.extra.items()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> WorldCheckpoint:
        """Read a file; raises :class:`rlflow.errors.ModelError` where there is none, or it is something else."""
        meta, arrays = read_archive(path, "worldmodel", KIND)
        words = meta["vocabulary"]
        return cls(
            WorldConfig.from_dict(meta["config"]),
            Vocabulary(tuple(words["ops"]), tuple(words["rules"])),
            {name: array.astype(np.float32) for name, array in part_of(arrays, "weights/").items()},
            part_of(arrays, "extra/"),
            meta["progress"],
            meta["card"],
        )

    def networks(self) -> dict[str, Any]:
        """The networks with their weights, by name: ``world``, and for the latent form ``controller``."""
        made = make_networks(self.config, self.vocabulary, 0)
        load_weights(made, self.weights)
        return made


def make_networks(config: WorldConfig, vocabulary: Vocabulary, seed: int) -> dict[str, Any]:
    """Fresh networks of a form."""
    if config.worldmodel == "graph":
        from rlflow.agents.worldmodel_graph import make_graph_world

        return {"world": make_graph_world(config, vocabulary, seed)}
    from rlflow.agents.dream import make_controller
    from rlflow.agents.worldmodel import make_world

    world = make_world(config, vocabulary, seed)
    return {"world": world.eval(), "controller": make_controller(config, world.rows, seed + 1).eval()}


def all_weights(networks: dict[str, Any]) -> dict[str, np.ndarray]:
    """A copy of the weights of several networks, their names in front."""
    return {
        f"{name}/{key}": value.detach().cpu().numpy().copy()
        for name, network in networks.items()
        for key, value in network.state_dict().items()
    }


def load_weights(networks: dict[str, Any], weights: dict[str, np.ndarray]) -> None:
    """The reverse of :func:`all_weights`."""
    for name, network in networks.items():
        mine = {key: torch.from_numpy(array.copy()) for key, array in part_of(weights, f"{name}/").items()}
        network.load_state_dict(mine)
        network.eval()


def optimizer_arrays(optimizer: torch.optim.Optimizer, network: torch.nn.Module, name: str) -> dict[str, np.ndarray]:
    """Adam's state by parameter names."""
    return {
        f"{name}/{key}/{parameter_name}": value.detach().cpu().numpy()
        for parameter_name, parameter in network.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(
    optimizer: torch.optim.Optimizer, network: torch.nn.Module, name: str, arrays: dict[str, np.ndarray]
) -> None:
    """The reverse of :func:`optimizer_arrays`."""
    for parameter_name, parameter in network.named_parameters():
        keys = [key for key in ("step", "exp_avg", "exp_avg_sq") if f"{name}/{key}/{parameter_name}" in arrays]
        if keys:
            optimizer.state[parameter] = {
                key: torch.from_numpy(arrays[f"{name}/{key}/{parameter_name}"].copy()) for key in keys
            }


def shipped(form: str) -> Path:
    """The checkpoint of that form that comes with the package."""
    return Path(__file__).parent / "checkpoints" / f"rlflow-{form}.npz"


def load_world(path: str | os.PathLike[str] | None, form: str = "graph") -> WorldCheckpoint:
    """A checkpoint (default: the shipped one of the form); read once per file and date."""
    found = Path(path) if path else shipped(form)
    try:
        stamp = found.stat().st_mtime_ns
    except OSError:
        stamp = 0
    return _load(os.fspath(found), stamp)


@lru_cache(maxsize=4)
def _load(path: str, stamp: int) -> WorldCheckpoint:
    return WorldCheckpoint.load(path)
