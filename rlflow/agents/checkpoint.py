"""Checkpoints: one ``.npz`` file of arrays and a line of JSON, so that reading one runs no code.

Arrays: ``policy/<name>``, and while training ``optimizer/<name>``. The JSON holds configuration, vocabulary, progress
and the training card.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlflow.agents.config import TrainConfig
from rlflow.errors import ModelError, OutputError, UsageError
from rlflow.files import replacing
from rlflow.nn.batch import Vocabulary
from rlflow.nn.policy import Policy

FORMAT = 1
_META = "meta.json"


@dataclass
class Checkpoint:
    """``weights``, ``optimizer``: arrays by name. ``progress``: what a resumed training goes on with (updates, steps,
    …). ``card``: what the agent was trained on, how long, by which seeds and version.
    """

    config: TrainConfig
    vocabulary: Vocabulary
    weights: dict[str, np.ndarray]
    optimizer: dict[str, np.ndarray] = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)

    def policy(self) -> Policy:
        """The network with its weights."""
        policy = Policy(self.config.policy, self.vocabulary)
        policy.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in self.weights.items()})
        return policy.eval()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, through a temporary one. Raises :class:`OutputError` where it cannot be written."""
        meta = {
            "format": FORMAT,
            "config": self.config.to_dict(),
            "vocabulary": {"ops": self.vocabulary.ops, "rules": self.vocabulary.rules},
            "progress": self.progress,
            "card": self.card,
        }
        arrays = {f"policy/{name}": array for name, array in self.weights.items()}
        arrays |= {f"optimizer/{name}": array for name, array in self.optimizer.items()}
        write_archive(Path(path), meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Read a file; raises :class:`ModelError` where there is none, or it is something else."""
        meta, arrays = read_archive(path, "xrlflow", "policy")
        words = meta["vocabulary"]
        return cls(
            TrainConfig.from_dict(meta["config"]),
            Vocabulary(tuple(words["ops"]), tuple(words["rules"])),
            part_of(arrays, "policy/"),
            part_of(arrays, "optimizer/"),
            meta["progress"],
            meta["card"],
        )


def read_archive(path: str | os.PathLike[str], verb: str, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What :func:`write_archive` wrote. ``verb``: what of ``rlflow train`` makes such files; ``kind``: of checkpoint.

    Raises :class:`ModelError` where there is no such file, or it is something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            meta = json.loads(archive.read(_META))
            arrays = {
                name.removesuffix(".npy"): np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
    except FileNotFoundError as error:
        raise ModelError(f"There is no checkpoint {os.fspath(path)}; `rlflow train {verb}` makes one.") from error
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"The file {os.fspath(path)} is not a checkpoint of an agent: {error}") from error
    if meta.get("kind", "policy") != kind:
        raise ModelError(
            f"The checkpoint {os.fspath(path)} holds a {meta.get('kind', 'policy')}; expected a {kind}, as "
            f"`rlflow train {verb}` makes one."
        )
    if meta.get("format") != FORMAT:
        raise ModelError(
            f"The checkpoint {os.fspath(path)} has format {meta.get('format')}; this version reads {FORMAT}."
        )
    return meta, arrays


def part_of(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, without that."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def write_archive(path: Path, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a file of arrays and JSON, through a temporary one; equal contents make equal files.

    Raises :class:`OutputError` where it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The checkpoint {path} cannot be written: {error.strerror or error}.") from error
    with replacing(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(_META), json.dumps(meta, indent=1))
        for name, array in sorted(arrays.items()):
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy")  # without a date: equal weights make equal files
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, buffer.getvalue())


def shipped() -> Path:
    """The checkpoint that comes with the package."""
    return Path(__file__).parent / "checkpoints" / "xrlflow.npz"


def load_policy(path: str | os.PathLike[str] | None = None) -> tuple[Policy, TrainConfig]:
    """The policy of a checkpoint (default: the shipped one) and how it was trained; read once per file and date."""
    found = Path(path) if path else shipped()
    try:
        stamp = found.stat().st_mtime_ns
    except OSError:
        stamp = 0
    return _load_policy(os.fspath(found), stamp)


@lru_cache(maxsize=4)
def _load_policy(path: str, stamp: int) -> tuple[Policy, TrainConfig]:
    checkpoint = Checkpoint.load(path)
    return checkpoint.policy(), checkpoint.config


def weights_of(policy: torch.nn.Module) -> dict[str, np.ndarray]:
    """A copy of the network's weights as arrays."""
    return {name: value.detach().cpu().numpy().copy() for name, value in policy.state_dict().items()}


def resumed(path: Path | None, load: Callable[[Path], Any], config: Any, models: Sequence[str], seed: int) -> Any:
    """The checkpoint that a training goes on from; raises :class:`UsageError` where there is none, or where it was
    another training's.
    """
    if path is None:
        raise UsageError("The training was to be resumed, and has no checkpoint to resume from; give one with out.")
    last = load(path)
    if last.config != config or last.progress["models"] != list(models) or last.progress["seed"] != seed:
        raise UsageError(
            f"The checkpoint {path} is of a training with other models, seed or options; resume with the same, or "
            "begin another file."
        )
    return last
