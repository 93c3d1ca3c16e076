"""How much of a model its regions' prices cover.

A region that cannot stand alone (an operand whose extent is known only when the model runs) has no price: a search
goes by an estimate of it, and keeps away from rewrites that make another one. Where there are many, prices say little
about the model, and its graphs are better timed whole (:mod:`rlflow.price.endtoend`).

What counts is the number of regions: an extent that is unknown leaves the work of a region unknown too. Left out are
those that no rule can change, which are the same on both sides of every comparison: operators that are carried as they
are, and renamed tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rlflow._core import Region

#: Where more than this part of a model's regions has no price, whole graphs are timed.
MOST = 0.25


class Coverage(NamedTuple):
    """``unpriced`` of ``regions`` have no price; ``reason``: the sentence of most of these."""

    unpriced: int
    regions: int
    reason: str = ""

    @classmethod
    def of(cls, regions: Iterable[Region], refusals: Mapping[str, str]) -> Coverage:
        """The coverage of a graph's regions; ``refusals``: why some have no price, by signature."""
        mine = [region for region in regions if not (region.opaque or region.view)]
        reasons = Counter(refusals[region.signature] for region in mine if region.signature in refusals)
        common = reasons.most_common(1)
        return cls(reasons.total(), len(mine), common[0][0] if common else "")

    @property
    def small(self) -> bool:
        """Whether prices say too little about the model."""
        return self.unpriced > MOST * self.regions

    @property
    def sentence(self) -> str:
        """For a report."""
        return f"{self.unpriced} of {self.regions} regions have no price. Most often: {self.reason}"
