"""How a time is named in the database, and what a model finds in the caches."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from rlflow.graph import Graph
from rlflow.price.bench import FLUSH_MB, STREAMING_FLUSH_MB, Bench, Caches, mega, serialized
from rlflow.price.database import Price, PriceDatabase
from rlflow.price.lookup import Lookup
from rlflow.runtime import RuntimeOptions

USUAL, STREAMING, WARM = mega(FLUSH_MB), mega(STREAMING_FLUSH_MB), 0


class FakeWorker:
    options = RuntimeOptions()

    def describe(self) -> dict[str, object]:
        fixed = {"runtime": "onnxruntime", "version": "0", "provider": "CPUExecutionProvider", "device": "fake"}
        return {**fixed, "threads": 1, "clock_state": "governor performance"}


def bench(flush: int = USUAL, streams: bool = False) -> Bench:
    return Bench(RuntimeOptions(), FakeWorker(), caches=Caches(flush, streams))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flush", "cold", "name"),
    [
        (USUAL, True, "8:key"),
        (USUAL, False, "8:key"),
        (STREAMING, True, "8:flush-33554432:key"),
        (STREAMING, False, "8:key"),  # what is timed warm is the same in every model
        (WARM, True, "8:flush-0:key"),
    ],
)
def test_the_names_of_kept_prices_are_those_of_earlier_runs(flush: int, cold: bool, name: str) -> None:
    assert bench(flush).kept_as("key", cold) == name


@pytest.mark.parametrize(("threads", "name"), [(1, "8:key"), (2, "8-2:key"), (8, "8-2:key")])
def test_runs_of_several_threads_are_timed_in_another_way_than_before(threads: int, name: str) -> None:
    several = Bench(RuntimeOptions(threads=threads), caches=Caches(USUAL))
    assert several.kept_as("key") == name
    assert several.kept_so(name)
    assert not several.kept_so("7-1:key")


@pytest.mark.parametrize(
    ("flush", "name", "alike"),
    [
        (USUAL, "8:key", True),
        (USUAL, "6:key", False),
        (USUAL, "8:flush-33554432:key", False),
        (STREAMING, "8:key", False),
        (STREAMING, "8:flush-33554432:key", True),
        (WARM, "8:flush-33554432:key", False),
    ],
)
def test_estimates_follow_from_prices_of_the_same_way_of_timing(flush: int, name: str, alike: bool) -> None:
    assert bench(flush).kept_so(name) == alike


@pytest.mark.parametrize(
    ("flush", "streams", "far", "paced"),
    [
        (USUAL, False, False, True),
        (USUAL, True, False, True),  # few weights: they stay in a shared cache
        (STREAMING, False, False, True),
        (STREAMING, True, True, False),
        (WARM, False, False, False),
    ],
)
def test_what_is_timed_from_memory_has_no_pace(flush: int, streams: bool, far: bool, paced: bool) -> None:
    caches = Caches(flush, streams)
    assert (caches.far, caches.paced) == (far, paced)


def test_the_clock_says_its_state() -> None:
    assert bench().clock_state() == f"{RuntimeOptions().effective_clock} time; governor performance"


def test_a_given_worker_is_not_closed() -> None:
    one = bench()
    one.close()  # FakeWorker has no close
    assert one.worker is one.worker


class TestLookup:
    def test_a_price_is_found_by_the_way_it_was_timed(self, tmp_path: Path) -> None:
        with PriceDatabase(tmp_path / "prices.sqlite") as database:
            Lookup(bench(), database).keep({"key": Price(1.0, 0.1, 9)})
            assert Lookup(bench(), database).find(["key", "other"]).keys() == {"key"}
            assert Lookup(bench(STREAMING), database).find(["key"]) == {}
            assert Lookup(bench(STREAMING), database).find(["key"], cold=False).keys() == {"key"}

    def test_what_was_used_holds_as_long_as_it_is_there(self, tmp_path: Path) -> None:
        with PriceDatabase(tmp_path / "prices.sqlite") as database:
            lookup = Lookup(bench(), database)
            for key, price in {"key": Price(1.0), "refused": Price(None, refusal="no")}.items():
                lookup.keep({key: price})
                lookup.go_by(key, price)
            assert lookup.used == {"8:key": 1.0, "8:refused": None}
            assert lookup.still_holds(lookup.used)
            lookup.keep({"key": Price(1.1)})
            assert not lookup.still_holds(lookup.used)

    def test_alike_are_the_regions_that_were_timed_so(self, tmp_path: Path) -> None:
        with PriceDatabase(tmp_path / "prices.sqlite") as database:
            lookup = Lookup(bench(), database)
            lookup.keep({"key": Price(1.0, 0.1, 9), "other": Price(2.0, 0.1, 9), "program:key": Price(1.0, 0.1, 9)})
            Lookup(bench(STREAMING), database).keep({"key": Price(3.0, 0.1, 9), "program:key": Price(3.0, 0.1, 9)})
            assert [one.ms for one in lookup.alike()] == [1.0, 2.0]
            assert [one.ms for one in Lookup(bench(STREAMING), database).alike()] == [3.0]

    def test_its_own_database_is_closed_and_a_given_one_is_not(self, tmp_path: Path) -> None:
        with PriceDatabase(tmp_path / "given.sqlite") as database:
            Lookup(bench(), database).close()
            assert database.count() == 0
        own = Lookup(bench(), tmp_path / "own.sqlite")
        own.keep({"key": Price(1.0)})
        own.close()
        assert own.find(["key"])["key"].ms == 1.0  # opened again
        own.close()


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("x: f32[1,24,8,8] = input\ny = AveragePool{kernel_shape=[3,3], pads=[1,1,1,1]}(x)\nreturn y", 18),
        ("x: f32[1,24] = input\ny = Gelu(x)\nreturn y", 20),
    ],
)
def test_regions_are_of_the_opset_that_results_are_written_for(text: str, opset: int) -> None:
    model = onnx.load_model_from_string(serialized(Graph.parse(text)))
    assert [entry.version for entry in model.opset_import] == [opset]
