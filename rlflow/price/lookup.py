"""Prices by key in the database, and which of them a cost model went by."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from rlflow.price.bench import Bench
from rlflow.price.database import Price, PriceDatabase

#: What keys of programs that a runtime makes of regions begin with.
PROGRAM = "program:"


class Lookup:
    """Kept prices of one way of timing (:meth:`rlflow.price.bench.Bench.kept_as`), in an open database, one at a path,
    or the user's own.
    """

    def __init__(self, bench: Bench, database: PriceDatabase | str | os.PathLike[str] | None) -> None:
        self._bench, self._given = bench, database
        self._own: PriceDatabase | None = None
        #: Milliseconds by the key in the database, of every price that was gone by (``None``: refused).
        self.used: dict[str, float | None] = {}
        #: Prices of a few short sessions each, which are not kept.
        self.hasty: set[str] = set()

    @property
    def database(self) -> PriceDatabase:
        """Where prices are kept."""
        if isinstance(self._given, PriceDatabase):
            return self._given
        if self._own is None:
            self._own = PriceDatabase(self._given)
        return self._own

    def close(self) -> None:
        """Close the database, where it is this object's own."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def find(self, keys: Iterable[str], cold: bool = True) -> dict[str, Price]:
        """Those of the prices that are known, by key."""
        names = {self._bench.kept_as(key, cold): key for key in keys}
        if not names:
            return {}
        return {names[name]: price for name, price in self.database.get_many(names, self._bench.place).items()}

    def keep(self, prices: Mapping[str, Price], cold: bool = True) -> None:
        """For this run and others."""
        named = {self._bench.kept_as(key, cold): price for key, price in prices.items()}
        self.database.put_many(named, self._bench.place)

    def go_by(self, key: str, price: Price, cold: bool = True) -> None:
        """Take down that this price was used."""
        self.used[self._bench.kept_as(key, cold)] = price.ms

    def alike(self) -> list[Price]:
        """All regions that were timed here in the same way; what a program took is that of a region, too."""
        known = self.database.all_here(self._bench.place)
        return [price for name, price in known.items() if self._bench.kept_so(name) and f":{PROGRAM}" not in name]

    def still_holds(self, used: Mapping[str, float | None]) -> bool:
        """Whether the database has these prices, as they were."""
        found = self.database.get_many(used, self._bench.place)
        return all(key in found and found[key].ms == ms for key, ms in used.items())
