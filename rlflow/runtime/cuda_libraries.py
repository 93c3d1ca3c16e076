"""Where NVIDIA's libraries may lie: a folder that the user names, pip packages, torch's own copies, CUDA's folder."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

_PATTERNS = ("cu13/lib", "cu12/lib", "cudnn/lib", "cublas/lib", "cuda_nvrtc/lib", "*/lib")


def folders() -> list[str]:
    """Folders to search before the system's own places, the most specific first."""
    found = [part for part in os.environ.get("RLFLOW_CUDA_PATH", "").split(os.pathsep) if part]
    for base in _package_folders("nvidia"):
        for pattern in _PATTERNS:
            found += [os.fspath(path) for path in sorted(base.glob(pattern)) if path.is_dir()]
    found += [os.fspath(base / "lib") for base in _package_folders("torch")]
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            found.append(os.path.join(os.environ[variable], "lib64"))
    return list(dict.fromkeys(folder for folder in found if os.path.isdir(folder)))


def only_named() -> bool:
    """Whether nothing but RLFLOW_CUDA_PATH is searched (``RLFLOW_CUDA_ONLY=1``, for tests and closed installations)."""
    return os.environ.get("RLFLOW_CUDA_ONLY") == "1"


def search_path() -> tuple[list[str], bool]:
    """The folders, and whether the system's own places are searched after them."""
    if only_named():
        return [part for part in os.environ.get("RLFLOW_CUDA_PATH", "").split(os.pathsep) if part], False
    return folders(), True


def _package_folders(name: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec is not None else []
