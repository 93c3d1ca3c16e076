"""Prices of regions that were timed once, from a table: the same figures whatever else the machine does.

``results/prices.jsonl`` holds them by family (record_prices.py makes it): for each region of ONNX Runtime's fusion
table, by signature, its time inside the model in milliseconds, or the sentence by which the runtime refused it. A
region that the table lacks is estimated from those of its kind and operators (:mod:`rlflow.price.interpolate`), or by a
roofline in proportion to those of its kind. :attr:`RecordedCost.guessed` says which ones were.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from results import read  # from the folder "common"

from rlflow._core import Pricer
from rlflow.errors import UsageError
from rlflow.graph import Graph
from rlflow.price import CostModel, CostReport, FillReport, RegionCost, regions
from rlflow.price.interpolate import Interpolation, TimedRegion

TABLE = Path(__file__).resolve().parent / "results" / "prices.jsonl"
FUSION = "onnxruntime"
#: Roofline of what nothing is known about; only the proportions matter.
_FLOPS_PER_MS, _BYTES_PER_MS, _OVERHEAD_MS = 60e6, 12e6, 0.002
#: Standard deviation of the logarithm of a drawn factor.
_SPREAD = 0.2
#: Keeps the price of a region above zero.
_LEAST_MS = 1e-5

Row = dict[str, Any]


def kind_of(region: Any) -> str:
    """The kind of a region; those of the blocked layout are another."""
    return f"{region.kind} blocked" if region.blocked else str(region.kind)


def names_of(graph: Graph, region: Any) -> str:
    """Its operators, joined by spaces."""
    return " ".join(regions.operators(graph, region))


class RecordedCost(CostModel):
    """Prices of one family. ``rows``: of the table, one of kind ``family`` and any number of kind ``price``.
    ``otherwise``: as another machine could price them: each times a factor that is drawn by this number (0: none are).

    Raises :class:`UsageError` where there is none of kind ``family``, or no price at all.
    """

    name = "recorded"
    measures = True  # a candidate's regions are priced when it is opened, as where the clock is asked

    def __init__(self, rows: Iterable[Row], family: str, otherwise: int = 0) -> None:
        mine = [row for row in rows if row.get("family") == family]
        about = next((row for row in mine if row["kind"] == "family"), None)
        known = [row for row in mine if row["kind"] == "price"]
        if about is None or not any(row["ms"] for row in known):
            raise UsageError(
                f"There are no recorded prices of {family}; expected some in {TABLE.name}. "
                "`python reproduce/learning/record_prices.py` makes them."
            )
        self._pricer = Pricer.table(FUSION, block=about["block"])
        self._pricer.set_view_price(about["view_ms"])
        self._refused = {row["signature"]: row["refusal"] for row in known if row["ms"] is None}
        timed = [
            row | {"ms": row["ms"] * _factor(row["signature"], otherwise)} for row in known if row["ms"] is not None
        ]
        self._pricer.set_prices([row["signature"] for row in timed], [row["ms"] for row in timed])
        self._like = Interpolation(
            TimedRegion(row["region"], row["operators"], row["flops"], row["bytes"], row["ms"]) for row in timed
        )
        ratios: dict[str, list[float]] = defaultdict(list)
        for row in timed:
            for kind in (row["region"], ""):
                ratios[kind].append(row["ms"] / _roofline(row["flops"], row["bytes"]))
        self._ratios = {kind: statistics.median(values) for kind, values in ratios.items()}
        #: Signatures of the regions that were estimated, and why others have no price.
        self.guessed: set[str] = set()
        self.refusals: dict[str, str] = {}

    @property
    def pricer(self) -> Any:
        """The native pricer; what the table has is known from the start."""
        return self._pricer

    def fill(
        self,
        graphs: Iterable[Graph],
        *,
        limit: int | None = None,
        stop: Callable[[], bool] | None = None,
        seconds: float | None = None,
        tell: Callable[[Any], None] | None = None,
    ) -> FillReport:
        """Estimate what the table lacks; nothing is timed."""
        estimated = refused = 0
        for graph in graphs:
            for region in self._pricer.regions(graph, unpriced_only=True):
                why = self._refused.get(region.signature)
                if why is not None:
                    self.refusals[region.signature] = why
                    refused += 1
                else:
                    self.guessed.add(region.signature)
                    estimated += 1
                self._pricer.set_prices([region.signature], [0.0 if why is not None else self._estimate(graph, region)])
        return FillReport(refused=refused, estimated=estimated)

    def _estimate(self, graph: Graph, region: Any) -> float:
        kind, flops, size = kind_of(region), region.flops, region.bytes
        found = self._like.estimate(kind, names_of(graph, region), flops, size)
        ratio = self._ratios.get(kind, self._ratios[""])
        return max(found.ms if found is not None else ratio * _roofline(flops, size), _LEAST_MS)

    def cost(self, graph: Graph) -> CostReport:
        """The price of ``graph`` in milliseconds."""
        self.fill([graph])
        rows = tuple(
            RegionCost(one.signature, one.kind, regions.operators(graph, one), one.ms, one.flops, one.bytes)
            for one in self._pricer.regions(graph)
        )
        return CostReport(
            self._pricer.summary(graph)["ms"], rows, "measured", "a recorded table", refusals=dict(self.refusals),
            estimated=sum(row.signature in self.guessed for row in rows),
        )  # fmt: skip

    def guesses(self, graph: Graph) -> tuple[int, float]:
        """How many regions of a graph are estimates, and their part of its price."""
        found = [(one.ms or 0.0, one.signature in self.guessed) for one in self._pricer.regions(graph)]
        total = sum(ms for ms, _ in found)
        return sum(guess for _, guess in found), sum(ms for ms, guess in found if guess) / total if total else 0.0


def _factor(signature: str, number: int) -> float:
    """Drawn from a lognormal distribution, the same for the same signature and number; 1 for number 0."""
    if not number:
        return 1.0
    seed = int.from_bytes(hashlib.blake2b(f"{number} {signature}".encode(), digest_size=8).digest(), "big")
    return math.exp(_SPREAD * float(np.random.default_rng(seed).standard_normal()))


def _roofline(flops: float, size: float) -> float:
    return max(flops / _FLOPS_PER_MS, size / _BYTES_PER_MS) + _OVERHEAD_MS


def table(path: Path = TABLE) -> Sequence[Row]:
    """All rows."""
    return read(path)[0]
