"""``manifest.json`` of a split model: its parts in order, what each takes and gives, and the digest of every file.

The file may come from anybody: every field is checked, names of files are plain names in the manifest's folder, and a
part whose content is another than its digest says is not opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlflow.errors import ModelError, brief
from rlflow.files import check_readable, mode_of, parse_json
from rlflow.runtime import TensorInfo

#: The file's name, and the version of its form.
NAME, VERSION = "manifest.json", 1
_MOST_BYTES, _MOST_PARTS = 1 << 24, 1024
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")
_STEP = 1 << 22

Ranges = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Part:
    """One part: its ``file``, with the digest of its content (SHA-256), that of the file of its weights where they are
    in one (``data``, by name), what it takes and gives, and its ``share`` of the whole's time.
    """

    file: str
    sha256: str
    data: dict[str, str]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    share: float
    weight_bytes: int


@dataclass(frozen=True)
class Manifest:
    """A split model: the interface of the whole, and its parts in the order in which they run.

    ``ranges``: of random inputs, by name (both ends included); ``sizes``: of open dimensions, as they were when it was
    checked.
    """

    model: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    parts: tuple[Part, ...]
    ranges: Ranges
    sizes: dict[str, int]

    def text(self) -> str:
        """As JSON."""
        found = asdict(self)
        for holder in (found, *found["parts"]):
            for key in ("inputs", "outputs"):
                holder[key] = [{key: one[key] for key in ("name", "dtype", "shape")} for one in holder[key]]
        return json.dumps({"format": VERSION, **found}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Manifest:
        """The manifest in a folder. Raises ModelError for what is none."""
        path = Path(folder) / NAME
        if not stat.S_ISREG(mode_of(path, "The manifest", ModelError)):
            raise ModelError(
                f"'{folder}' is no folder of a split model, as it holds no {NAME}; make one: "
                "`rlflow split MODEL -n 2 -o DIR`."
            )
        check_readable(path, "The manifest", ModelError)
        if path.stat().st_size > _MOST_BYTES:
            raise ModelError(f"The manifest '{path}' has {path.stat().st_size} bytes; expected {_MOST_BYTES} at most.")
        try:
            manifest = _manifest(parse_json(path.read_bytes()))
            _require_order(manifest)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"it has no {error}" if isinstance(error, KeyError) else brief(error)
            raise ModelError(f"The manifest '{path}' cannot be used: {what}.") from error
        return manifest


def digest_of_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's content, 64 hex digits."""
    found = hashlib.sha256()
    with open(path, "rb") as stream:
        while piece := stream.read(_STEP):
            found.update(piece)
    return found.hexdigest()


def checked_file(folder: str | os.PathLike[str], part: Part) -> str:
    """The path of a part, once it and its weights are what the manifest says. Raises ModelError."""
    for name, expected in {part.file: part.sha256, **part.data}.items():
        path = Path(folder) / name
        check_readable(path, "The part", ModelError)
        found = digest_of_file(path)
        if found != expected:
            raise ModelError(
                f"The file '{path}' is not the one that the manifest means: its SHA-256 begins with {found[:12]}, "
                f"expected {expected[:12]}. Split the model again."
            )
    return str(Path(folder) / part.file)


def _manifest(found: Any) -> Manifest:
    if found.get("format") != VERSION:
        raise ValueError(f"its format is {brief(found.get('format'), 40)!r}, expected {VERSION}")
    if not 1 <= len(found["parts"]) <= _MOST_PARTS:
        raise ValueError(f"it has {len(found['parts'])} parts")
    ranges = {str(name): (float(low), float(high)) for name, (low, high) in found["ranges"].items()}
    sizes = {str(name): int(size) for name, size in found["sizes"].items()}
    return Manifest(
        str(found["model"]),
        _infos(found["inputs"]),
        _infos(found["outputs"]),
        tuple(map(_part, found["parts"])),
        ranges,
        sizes,
    )


def _part(found: Any) -> Part:
    files = {found["file"]: found["sha256"], **found["data"]}
    for name, digest in files.items():
        if not (isinstance(name, str) and _FILE.fullmatch(name)):
            raise ValueError(f"{brief(name, 60)!r} is not the plain name of a file")
        if not (isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest)):
            raise ValueError(f"the digest of {name} is not a SHA-256")
    share, weights = float(found["share"]), int(found["weight_bytes"])
    inputs, outputs = _infos(found["inputs"]), _infos(found["outputs"])
    return Part(found["file"], found["sha256"], dict(found["data"]), inputs, outputs, share, weights)


def _infos(found: Any) -> tuple[TensorInfo, ...]:
    infos = []
    for one in found:
        name, dtype, shape = one["name"], one["dtype"], one["shape"]
        if not (isinstance(name, str) and isinstance(dtype, str) and isinstance(shape, list)):
            raise ValueError("a tensor has no name, type or shape")
        if not all(extent is None or isinstance(extent, (int, str)) for extent in shape):
            raise ValueError(f"the shape of {name!r} makes no sense")
        infos.append(TensorInfo(name, dtype, tuple(shape)))
    if len({info.name for info in infos}) < len(infos):
        raise ValueError("two tensors have one name")
    return tuple(infos)


def _require_order(manifest: Manifest) -> None:
    """Every value is there before it is read."""
    known = {info.name for info in manifest.inputs}
    for number, part in enumerate(manifest.parts):
        missing = [info.name for info in part.inputs if info.name not in known]
        if missing:
            raise ValueError(f"part {number} takes {missing[0]!r}, which no part before it gives")
        known.update(info.name for info in part.outputs)
    missing = [info.name for info in manifest.outputs if info.name not in known]
    if missing:
        raise ValueError(f"no part gives the output {missing[0]!r}")
