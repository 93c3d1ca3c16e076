"""Which kernel is fastest at a place in a model, as it was measured on this machine: by a tuning, or by one look at all
algorithms. Both are kept in the ledger; what a tuning found comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlflow.errors import UsageError
from rlflow.kernels.algorithms import ALGORITHMS
from rlflow.ledger import Kind, Ledger, key

__all__ = ["FAST", "TUNED", "FastKernel", "SitePlace", "known", "site_key", "tuned_digest"]


@dataclass(frozen=True)
class FastKernel:
    """``algorithm`` ("": the runtime's own kernel is as fast) and its ``tuning``."""

    algorithm: str
    tuning: Mapping[str, int]

    @property
    def attributes(self) -> dict[str, int] | None:
        """Of the kernel's node; ``None`` for the runtime's own."""
        return ALGORITHMS[self.algorithm].attributes(self.tuning) if self.algorithm else None


@dataclass(frozen=True)
class SitePlace:
    """Where a time holds: processor, the runtime's version, its threads, and the digest of the kernels' library."""

    device: str
    version: str
    threads: int
    library: str


def _plain(one: FastKernel) -> dict[str, Any]:
    return {"algorithm": one.algorithm, "tuning": dict(one.tuning)}


def _of(given: Any) -> FastKernel:
    """Raises ValueError or UsageError for what names no kernel."""
    if not isinstance(given, dict) or set(given) != {"algorithm", "tuning"} or not isinstance(given["tuning"], dict):
        raise ValueError("it names no kernel")
    found = FastKernel(str(given["algorithm"]), given["tuning"])
    if found.algorithm and found.algorithm not in ALGORITHMS:
        raise UsageError(f"there is no kernel {found.algorithm!r}")
    found.attributes  # noqa: B018 - raises for a parameter or a value that the space lacks
    return found


TUNED: Kind[FastKernel] = Kind("tuned-kernels", 1, _plain, _of)
FAST: Kind[FastKernel] = Kind("fast-kernels", 1, _plain, _of)


def site_key(place: SitePlace, kind: str, sizes: Sequence[int], shape: Sequence[int] | None) -> str:
    """Names a place in a model by what a kernel's time depends on; ``shape``: of the first input."""
    return key(place, kind, tuple(sizes), None if shape is None else tuple(shape))


def known(name: str) -> FastKernel | None:
    """What was measured at the place of that key."""
    found = Ledger(TUNED).recall(name)
    return Ledger(FAST).recall(name) if found is None else found


def tuned_digest() -> str:
    """Changes with everything that tunings found; empty before the first."""
    ledger = Ledger(TUNED)
    names = sorted(path.name for path in ledger.folder.glob("*.json")) if len(ledger) else []
    found = [(name, ledger.recall(name.removesuffix(".json"))) for name in names]
    return key(*((name, _plain(one)) for name, one in found if one is not None))[:8] if found else ""
