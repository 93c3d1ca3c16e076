"""onnx-ir without the half second of sympy, which it imports for sums of symbolic dimensions that nobody here asks for.

``importlib.util.LazyLoader`` does not help: the import statement itself asks for ``__spec__``, and that wakes it up.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import types
from importlib.machinery import PathFinder
from typing import Any

__all__ = ["ir"]

_LOCK = threading.RLock()


class _Late(types.ModuleType):
    """A module whose code runs when something of it, or a module inside it, is first used."""

    _begun = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # what tools ask every module for
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _LOCK:
            if type(self) is _Late and not self._begun:
                self._run()
        return types.ModuleType.__getattribute__(self, name)

    def _run(self) -> None:
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        self._begun = True
        if spec.submodule_search_locations is not None:
            self.__path__ = spec.submodule_search_locations
        spec.loader.exec_module(self)
        self.__class__ = types.ModuleType  # type: ignore[assignment]


def _put_off(name: str) -> None:
    """Let the module ``name`` run later; one that is there already, or absent, stays so."""
    package, _, inner = name.rpartition(".")
    parent = importlib.util.find_spec(package) if inner and package else None
    spec = PathFinder.find_spec(name, None if parent is None else parent.submodule_search_locations)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    late = _Late(name)
    late.__spec__, late.__loader__, late.__package__, late.__file__ = spec, spec.loader, spec.parent, spec.origin
    sys.modules[name] = late


if "onnx_ir" not in sys.modules:
    _put_off("sympy")
    _put_off("onnx_ir._symbolic_shapes")

import onnx_ir as ir  # noqa: E402 - after that
