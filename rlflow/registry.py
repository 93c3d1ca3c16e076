"""What is known by name: strategies, cost models, runtimes, decoders, importers.

A :class:`Registry` knows its own entries by the place where they are, and opens one when it is asked for. Entries of
packages above it are *offered* by the package's front (``rlflow/__init__.py``), those of other distributions by entry
points of the same group in their metadata:

    [project.entry-points."rlflow.strategies"]
    mine = "my_package.search:Mine"

A plug-in that cannot be opened is left out of listings with one warning, and refused in a sentence when somebody asks
for it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from rlflow.errors import UsageError
from rlflow.plugins import entry_points, offer, offered, warn
from rlflow.specs import about, arguments, did_you_mean, split, title_of

__all__ = ["Registry", "entry_points", "not_installed", "offer"]

_T = TypeVar("_T")


class Registry(Generic[_T]):
    """Things of one kind by name.

    ``what``: the kind in words. ``group``: of the entry points by which other packages add to it; ``None``: none can.
    ``places``: its own entries, ``"module:attribute"`` by name. ``capabilities``: what an entry may declare as an
    attribute of that name, and what holds where it does not. ``accept``: raises :class:`TypeError` or
    :class:`UsageError` for a value that is not of the kind.
    """

    def __init__(
        self,
        what: str,
        *,
        group: str | None = None,
        places: Mapping[str, str] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        accept: Callable[[str, Any], None] | None = None,
    ) -> None:
        self.what, self.group = what, group
        self.capabilities = dict(capabilities or {})
        self.opened: dict[str, _T] = {}
        self._places = dict(places or {})
        self._accept = accept or (lambda name, value: None)

    # --- names -------------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """All names, sorted; nothing is opened."""
        return sorted({*self.opened, *self._own(), *self._foreign()})

    def has(self, name: str) -> bool:
        """Whether there is an entry of that name; nothing is opened."""
        return name in self.opened or name in self._own() or name in self._foreign()

    def register(self, name: str, value: _T) -> None:
        """Add an entry of this process. Raises :class:`UsageError` where the name is taken."""
        self._accept(name, value)
        own = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"  # it may be offered, too
        if self.opened.get(name, value) is not value or self._own().get(name, own) != own:
            raise UsageError(f"There is a {self.what} called {name!r} already; give yours another name.")
        self.opened[name] = value

    def place(self, name: str, place: str) -> None:
        """Say where an entry is (``"module:attribute"``), as another process found it."""
        self._places.setdefault(name, place)

    def get(self, name: str) -> _T:
        """The entry of that name. Raises :class:`UsageError` where there is none, or it cannot be opened."""
        if name not in self.opened:
            place = self._own().get(name) or self._foreign().get(name)
            if place is None:
                raise UsageError(f"There is no {self.what} {name!r}. {did_you_mean(name, self.names())}")
            self.opened[name] = self._open(name, place)
        return self.opened[name]

    def usable(self) -> Iterator[tuple[str, _T]]:
        """All entries that can be opened, by name; about each of the others there is one warning."""
        for name in self.names():
            try:
                yield name, self.get(name)
            except UsageError as error:
                warn(f"{error} It is left out.")

    # --- what they are -----------------------------------------------------------------------------------------------

    def declared(self, name: str) -> dict[str, Any]:
        """The capabilities of an entry."""
        value = self.get(name)
        return {key: getattr(value, key, default) for key, default in self.capabilities.items()}

    def make(self, spec: str, /, **options: Any) -> Any:
        """What the entry makes, from ``"name:option=value"``; ``options`` that are not ``None`` win.

        Raises as :meth:`chosen` does.
        """
        maker, given = self.chosen(spec, **options)
        return maker(**given)

    def chosen(self, spec: str, /, **options: Any) -> tuple[Any, dict[str, Any]]:
        """The entry that :meth:`make` calls, and what with; for a layer above that makes its own things itself.

        Raises :class:`UsageError` for an unknown name or option, or a value that cannot be read.
        """
        name, given = split(spec, self.what)
        maker: Any = self.get(name)
        wanted = {**given, **{key: value for key, value in options.items() if value is not None}}
        return maker, arguments(maker, wanted, f"{self.what} {name!r}")

    def rows(self) -> list[dict[str, Any]]:
        """Every usable entry as plain data: name, a line about it, its capabilities, and its options with type, default
        and a line each.
        """
        return [
            {"name": name, "doc": title_of(value), **self.declared(name), "options": about(value)}  # type: ignore[arg-type]
            for name, value in self.usable()
        ]

    # --- where they are ----------------------------------------------------------------------------------------------

    def _own(self) -> dict[str, str]:
        return {**self._places, **offered(self.group or "")}

    def _foreign(self) -> dict[str, str]:
        return entry_points(self.group) if self.group else {}

    def _open(self, name: str, place: str) -> _T:
        module, _, attribute = place.partition(":")
        try:
            value = getattr(importlib.import_module(module), attribute)
            self._accept(name, value)
        except UsageError:
            raise
        except Exception as error:  # a plug-in may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise UsageError(f"The {self.what} {name!r} is at {place}, and cannot be opened ({reason}).") from error
        return value


def not_installed(title: str, module: str, install: str) -> str | None:
    """The sentence about a library that is not there, or ``None``; opens nothing. ``install``: what pip installs, an
    extra of ours in brackets (``[eqsat]``) or a package.
    """
    if importlib.util.find_spec(module) is not None:
        return None
    package = f"'rlflow{install}'" if install.startswith("[") else install
    return f"{title} is not installed: pip install {package}"
