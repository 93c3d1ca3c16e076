"""What a cost model is, and what it says about a graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from rlflow.price.coverage import Coverage

if TYPE_CHECKING:
    from rlflow._core import Pricer
    from rlflow.graph import Graph
    from rlflow.price.allowance import PricingProgress
    from rlflow.price.database import PriceDatabase
    from rlflow.price.in_model import InModel
    from rlflow.price.records import Price, PriceContext
    from rlflow.runtime import ModelSource, Worker

_Self = TypeVar("_Self", bound="CostModel")


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


class GraphTime(NamedTuple):
    """A graph's time: milliseconds (the baseline's, times the ratio to it), half the 95 % interval of the ratio's
    logarithm, and the number of blocks; or, with ``ms`` ``None``, why there is none.
    """

    ms: float | None
    half_width: float = 0.0
    blocks: int = 0
    refusal: str | None = None


@runtime_checkable
class CostModel(Protocol):
    """Prices graphs. ``pricer`` answers inside the core; where ``measures`` is true it may lack prices, which ``fill``
    supplies.

    Derive from it, and everything but ``name``, ``pricer``, ``cost`` and ``fill`` has a default, which says what is
    true of a formula: nothing is measured, kept, or left over. Use it as a context manager, or ``close`` it.
    """

    name: str
    #: Whether a clock decides anything.
    measures: bool = False
    #: Whether prices belong to whole graphs (:meth:`graph_time`), and ``pricer`` only ranks them.
    whole: bool = False
    #: Whether a GPU is what is priced: then the result is deployed there, unless the user says where.
    on_gpu: bool = False
    #: Values of symbolic dimensions; others count as 1.
    dims: Mapping[str, int] = MappingProxyType({})
    #: Why regions, or whole graphs, have no price, by signature or digest.
    refusals: Mapping[str, str] = MappingProxyType({})
    #: What part of the first graph has prices; of no regions before there was one.
    coverage: Coverage = Coverage(0, 0)
    #: All reports of :meth:`fill` added up.
    totals: FillReport = FillReport()

    # --- prices -----------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def pricer(self) -> Pricer:
        """The native pricer that states and moves are priced with; one and the same for the model's life."""
        ...

    @abstractmethod
    def cost(self, graph: Graph) -> CostReport:
        """The price of ``graph``; missing prices are measured first."""
        ...

    @abstractmethod
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

    def firm(self, graphs: Sequence[Graph], seconds: float, stop: Callable[[], bool] | None = None) -> int:
        """Make sure, in about so many ``seconds``, of the prices on which it depends which of ``graphs`` is cheapest,
        where they were had in haste; the number of prices that were made again.
        """
        return 0

    def renew(self, graph: Graph, seconds: float, stop: Callable[[], bool] | None = None) -> int:
        """Make sure, in about so many ``seconds``, of those prices of earlier runs that most of the price of ``graph``
        rests on; the number of those that were put right.
        """
        return 0

    @property
    def in_haste(self) -> bool:
        """Whether some prices were had at less accuracy, because time was short."""
        return False

    def graph_time(self, digest: str) -> GraphTime | None:
        """The time of a whole graph that was timed, by its digest; ``None`` for others."""
        return None

    @property
    def relative_noise(self) -> float:
        """Part of a cost up to which differences count as none."""
        return 0.0

    @property
    def in_model(self) -> InModel | None:
        """What was learnt from whole models about regions inside one; ``None`` where nothing was."""
        return None

    @property
    def streams_weights(self) -> bool:
        """Whether the model at hand is priced as one that mostly reads weights; known after the first graph."""
        return False

    def timed_regions(self) -> Sequence[Price]:
        """What was timed before, region by region, where the model at hand is timed; empty where nobody knows."""
        return ()

    def channel_block(self) -> int | None:
        """Channels per block of the runtime's layout, 0 where it has none; ``None`` where nobody knows."""
        return None

    # --- before the first price -------------------------------------------------------------------------------------

    def available(self) -> str | None:
        """Why the model cannot be used here, in a sentence; ``None`` where it can."""
        return None

    def bind(self, dims: Mapping[str, int]) -> None:
        """Say what sizes symbolic dimensions have, beside those that are known."""
        self.dims = {**self.dims, **dims}

    def attach(self, export: Callable[[Graph], ModelSource], feeds: Callable[[], Mapping[str, Any]] | None) -> None:
        """Say how graphs are written for deployment, and what they are fed. Of use where whole graphs are timed."""
        return

    def hurry(self, after: float = 0.0) -> None:
        """Time is short after so many seconds from now: whatever can be had at less accuracy in less time should be."""
        return

    # --- what it stands on ------------------------------------------------------------------------------------------

    @property
    def worker(self) -> Worker | None:
        """The worker process that measures, to be shared with the final comparison; it stays the model's to close."""
        return None

    @property
    def database(self) -> PriceDatabase | None:
        """Where prices are kept; ``None`` where they are not."""
        return None

    @property
    def place(self) -> PriceContext | None:
        """Where the prices in the database hold; ``None`` where none are kept."""
        return None

    def used(self) -> Mapping[str, float | None] | None:
        """The prices that were gone by, milliseconds by their key in the database (``None``: refused); ``None`` where
        another run may go by others.
        """
        return None

    def still_holds(self, used: Mapping[str, float | None]) -> bool:
        """Whether the database has these prices, as they were."""
        return False

    def notes(self) -> list[str]:
        """What a report has to say about how the prices came about."""
        return []

    def close(self) -> None:
        """Give back processes and files; may be called twice."""
        return

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
