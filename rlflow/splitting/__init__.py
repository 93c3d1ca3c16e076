"""Models in parts: cut, written, checked as a chain, and run by worker processes, here or on hosts."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlflow.splitting.coordinator import Coordinator
    from rlflow.splitting.cutting import SplitResult, split
    from rlflow.splitting.manifest import Manifest
    from rlflow.splitting.serving import serve_parts

_HOMES = {
    "Coordinator": "coordinator",
    "Manifest": "manifest",
    "SplitResult": "cutting",
    "serve_parts": "serving",
    "split": "cutting",
}

__all__ = ["Coordinator", "Manifest", "SplitResult", "serve_parts", "split"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlflow.splitting' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlflow.splitting.{_HOMES[name]}"), name)
