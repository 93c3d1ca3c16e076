"""Where and when a report was made."""

from __future__ import annotations

import datetime
import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path

__all__ = ["surroundings"]

_PACKAGES = ("onnxruntime", "onnx", "numpy")


def surroundings() -> dict[str, str]:
    """Date (UTC), processor, cores that this process may use, system, Python and packages, each in words."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "processor": f"{_processor()}, {_cores()} core{'s' if _cores() != 1 else ''}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        "packages": ", ".join(filter(None, map(_version, _PACKAGES))),
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(package: str) -> str:
    with suppress(metadata.PackageNotFoundError):
        return f"{package} {metadata.version(package)}"
    return ""
