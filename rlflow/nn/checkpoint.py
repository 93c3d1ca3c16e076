"""Checkpoints of agents: one ``.npz`` file of arrays and a line of JSON, so that reading one runs no code.

The arrays are weights by name, and while training what a resumed training needs beside them; the JSON holds
configuration, vocabulary, progress and the training card. What a file holds beside that is said by X-RLflow's form in
:mod:`rlflow.agents.xrlflow.trained` and by a world model's in :mod:`rlflow.agents.rlflow.trained`.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from rlflow.errors import ModelError, OutputError, UsageError, brief
from rlflow.files import parse_json, replacing
from rlflow.nn.token_vocabulary import TokenVocabulary

_C = TypeVar("_C", bound="Checkpoint")
_P = TypeVar("_P")

FORMAT = 1
_ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error)
#: What networks raise over weights and configurations that do not go together.
_UNFIT = (RuntimeError, TypeError, ValueError, KeyError, AttributeError, AssertionError, MemoryError, UsageError)
_META = "meta.json"
#: The most that a checkpoint may ask for, by the names of the sizes of networks.
_LARGEST = 1 << 14
_SIZES = {"layers": 64, "encoder_layers": 64, "ensemble": 64, "heads": 64, "mixtures": 1 << 10} | dict.fromkeys(
    ("hidden", "rule_size", "encoder_hidden", "latent", "locations", "controller_size"), _LARGEST
)


@dataclass
class Checkpoint:
    """What every agent's checkpoint holds. ``weights``: arrays by name. ``extra``: arrays that a resumed training needs
    beside them. ``progress``: what it goes on with (rounds, steps, …). ``card``: what the agent was trained on, how
    long, by which seeds and version.

    Each form says in class variables: ``kind``, of file; ``verb``, what of ``rlflow train`` makes it; the prefixes of
    the two groups of arrays; the class of its configuration.
    """

    config: Any
    vocabulary: TokenVocabulary
    weights: dict[str, np.ndarray]
    extra: dict[str, np.ndarray] = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)

    kind: ClassVar[str]
    verb: ClassVar[str]
    prefixes: ClassVar[tuple[str, str]] = ("weights/", "extra/")
    config_class: ClassVar[Any]

    def save(self, path: str | os.PathLike[str], *, half: bool = False) -> None:
        """Write the file, through a temporary one; ``half``: weights in 16 bits, for shipping. Raises
        :class:`OutputError` where it cannot be written.
        """
        meta = {
            "kind": self.kind,
            "format": FORMAT,
            "config": self.config.to_dict(),
            "vocabulary": {"ops": self.vocabulary.ops, "rules": self.vocabulary.rules},
            "progress": self.progress,
            "card": self.card,
        }
        first, second = self.prefixes
        small = np.float16 if half else np.float32
        arrays = {first + name: array.astype(small) for name, array in self.weights.items()}
        write_arrays(Path(path), meta, arrays | {second + name: array for name, array in self.extra.items()})

    @classmethod
    def load(cls: type[_C], path: str | os.PathLike[str]) -> _C:
        """Read a file; raises :class:`ModelError` where there is none, or it is something else."""
        meta, arrays = read_arrays(path, cls.verb, cls.kind)
        first, second = cls.prefixes
        try:
            words = meta["vocabulary"]
            _check_sizes(meta["config"])
            found = cls(
                cls.config_class.from_dict(meta["config"]),
                TokenVocabulary(tuple(words["ops"]), tuple(words["rules"])),
                {name: array.astype(np.float32) for name, array in part_of(arrays, first).items()},
                part_of(arrays, second),
                meta["progress"],
                meta["card"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(
                f"The checkpoint {os.fspath(path)} lacks what an agent needs, or has it in another form "
                f"({type(error).__name__}: {brief(error)}); make it anew with `rlflow train {cls.verb}`."
            ) from error
        broken = [name for name, array in found.weights.items() if not np.isfinite(array).all()]
        if broken:
            raise ModelError(
                f"The checkpoint {os.fspath(path)} holds weights that are not finite ({brief(broken[0])}); make "
                f"it anew with `rlflow train {cls.verb}`."
            )
        return found

    @contextmanager
    def fitting(self) -> Iterator[None]:
        """Around the making of the networks: raises :class:`ModelError` where the weights do not fit them."""
        try:
            yield
        except _UNFIT as error:
            raise ModelError(
                f"The weights of the checkpoint do not fit its configuration ({brief(error)}); "
                f"make it anew with `rlflow train {self.verb}`."
            ) from error


def _check_sizes(plain: Any) -> None:
    """Raises ValueError for a number in a configuration that no network of ours has, before one is made that large."""
    for name, value in plain.items():
        if isinstance(value, Mapping):
            _check_sizes(value)
        elif name in _SIZES and not (type(value) is int and 0 < value <= _SIZES[name]):
            raise ValueError(f"{name} is {value!r}")


def read_arrays(path: str | os.PathLike[str], verb: str, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What :func:`write_arrays` wrote. ``verb``: what of ``rlflow train`` makes such files; ``kind``: of checkpoint.

    Raises :class:`ModelError` where there is no such file, or it is something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            meta = parse_json(archive.read(_META))
            arrays = {
                name.removesuffix(".npy"): np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
    except FileNotFoundError as error:
        raise ModelError(f"There is no checkpoint {os.fspath(path)}; `rlflow train {verb}` makes one.") from error
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, MemoryError, *_ARCHIVE_ERRORS) as error:
        raise ModelError(f"The file {os.fspath(path)} is not a checkpoint of an agent: {brief(error)}") from error
    if not isinstance(meta, dict):
        raise ModelError(f"The file {os.fspath(path)} is not a checkpoint of an agent: its description is no object.")
    if meta.get("kind", "policy") != kind:
        raise ModelError(
            f"The checkpoint {os.fspath(path)} holds a {brief(meta.get('kind', 'policy'))}; expected a {kind}, as "
            f"`rlflow train {verb}` makes one."
        )
    if meta.get("format") != FORMAT:
        raise ModelError(
            f"The checkpoint {os.fspath(path)} has format {brief(meta.get('format'))}; this version reads {FORMAT}."
        )
    return meta, arrays


def part_of(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, without that."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def write_arrays(path: Path, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
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


def shipped(name: str) -> Path:
    """The checkpoint of that name that comes with the package."""
    return Path(__file__).parent / "checkpoints" / f"{name}.npz"


def read_once(read: Callable[[str], _P], path: str | os.PathLike[str]) -> _P:
    """``read(path)``, which is called once per date of the file."""
    try:
        stamp = os.stat(path).st_mtime_ns
    except OSError:
        stamp = 0
    return _read_once(read, os.fspath(path), stamp)


@lru_cache(maxsize=8)
def _read_once(read: Callable[[str], Any], path: str, stamp: int) -> Any:
    return read(path)


def known_score(score: float) -> float | None:
    """The best score for JSON: ``None`` where nothing was judged yet."""
    return None if math.isinf(score) else score


def progress_of(kind: type[_P], plain: Mapping[str, Any]) -> _P:
    """The progress that a checkpoint holds, as the dataclass that counts it; the reverse of :func:`known_score` too."""
    best = -math.inf if plain["best_score"] is None else plain["best_score"]
    made: Any = kind
    known = {**plain, "best_score": best}
    return made(**{one.name: known[one.name] for one in fields(made) if one.name in known})


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
