"""What a cost model is, and what it says about a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rlflow._core import Pricer
    from rlflow.graph import Graph
    from rlflow.price.allowance import PricingProgress


@dataclass(frozen=True)
class RegionCost:
    """One region of a graph: what the runtime runs as one kernel, or as one inseparable group.

    ``ms`` is ``None`` where no price is known. ``flops`` counts a multiply-add as 2, ``bytes`` what crosses the
    region's border. ``note`` says what is special about the price (a refusal, a node that cannot be priced).
    """

    signature: str
    kind: str
    operators: tuple[str, ...]
    ms: float | None
    flops: float
    bytes: float
    spread_ms: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class CostReport:
    """The price of a graph: ``total_ms`` is the sum over the regions that have one.

    ``source`` is ``analytic``, ``measured`` (``estimated`` of its regions by interpolation, the others by the clock),
    or ``end-to-end``. ``spread_ms`` is the root of the summed squares of the regions' interquartile ranges (``None``
    where nothing was measured). ``unmeasured`` regions are *not* in the total; ``unpriced`` names the operators that
    count as zero because they cannot be priced at all, ``refusals`` says, by signature, why.
    """

    total_ms: float
    per_region: tuple[RegionCost, ...]
    source: str
    device: str
    runtime: str | None = None
    spread_ms: float | None = None
    unmeasured: int = 0
    unpriced: tuple[str, ...] = ()
    refusals: Mapping[str, str] = field(default_factory=dict)
    weight_bytes: int = 0
    estimated: int = 0

    @property
    def complete(self) -> bool:
        """Whether every region has a price."""
        return self.unmeasured == 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class FillReport:
    """What filling in missing prices took.

    ``measured``: regions timed now (what a budget in measurements counts); ``cached``: found in the database,
    or the same program as one that was;
    ``refused``: regions among the measured ones that the runtime would not run, priced as zero and named in reports;
    ``estimated``: regions priced by interpolation (``measure="lazy"``);
    ``remaining``: signatures still without a price, because the limit was reached or a stop was asked for.
    """

    measured: int = 0
    cached: int = 0
    refused: int = 0
    remaining: int = 0
    seconds: float = 0.0
    estimated: int = 0

    def __add__(self, other: FillReport) -> FillReport:
        return FillReport(
            self.measured + other.measured,
            self.cached + other.cached,
            self.refused + other.refused,
            other.remaining,
            self.seconds + other.seconds,
            self.estimated + other.estimated,
        )


@runtime_checkable
class CostModel(Protocol):
    """Prices graphs. ``pricer`` answers inside the core; where ``measures`` is true it may lack prices, which ``fill``
    supplies.
    """

    name: str
    #: Whether a clock decides anything.
    measures: bool

    @property
    def pricer(self) -> Pricer:
        """The native pricer that states and moves are priced with; one and the same for the model's life."""
        ...

    def available(self) -> str | None:
        """Why the model cannot be used here, in a sentence; ``None`` where it can."""
        ...

    def cost(self, graph: Graph) -> CostReport:
        """The price of ``graph``; missing prices are measured first."""
        ...

    def fill(
        self,
        graphs: Iterable[Graph],
        *,
        limit: int | None = None,
        stop: Callable[[], bool] | None = None,
        seconds: float | None = None,
        tell: Callable[[PricingProgress], None] | None = None,
    ) -> FillReport:
        """Supply the prices that ``graphs`` lack: from the database, else by at most ``limit`` measurements.

        ``seconds`` is what measuring may take (``None``: any); a model that cannot do with less does not look at it.
        ``tell`` hears how far it is.
        """
        ...

    def hurry(self) -> None:
        """Time is short: whatever can be had at less accuracy in less time should be; said before anything is asked."""
        ...

    def close(self) -> None:
        """Give back processes and files; may be called twice."""
        ...
