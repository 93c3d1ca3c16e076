"""ONNX Runtime with our kernels as a runtime and a cost model: `--cost onnxruntime+kernels`."""

from __future__ import annotations

import blocked_models as models
import numpy as np
import onnx
import pytest

import rlflow.kernels
from rlflow import price
from rlflow.deployment.place import WITH_KERNELS, Deployment
from rlflow.kernels import known_sites
from rlflow.kernels.kernel_runtime import NAME, KernelChooser
from rlflow.kernels.known_sites import FAST, TUNED, FastKernel, SitePlace, known, site_key, tuned_digest
from rlflow.kernels.preparing import block_here
from rlflow.ledger import Ledger, LedgerWarning
from rlflow.runtime import RuntimeOptions, Worker, runtime

unavailable = rlflow.kernels.unavailable()
needs_kernels = pytest.mark.skipif(unavailable is not None, reason=str(unavailable))
PLACE = SitePlace("a processor", "1.31", 1, "0123")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RLFLOW_CACHE", str(tmp_path / "cache"))


def feeds(size: int = 24) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((1, 3, size, size)).astype(np.float32)}


# --- what is known of a place -----------------------------------------------------------------------------------------


def test_what_a_tuning_found_comes_before_one_look() -> None:
    name = site_key(PLACE, "convolution", (64, 64), (1, 64, 56, 56))
    assert known(name) is None
    Ledger(FAST).keep(name, FastKernel("winograd-2x2", {}))
    assert known(name) == FastKernel("winograd-2x2", {})
    assert tuned_digest() == ""
    Ledger(TUNED).keep(name, FastKernel("winograd-4x4", {"chunk": 48}))
    assert known(name) == FastKernel("winograd-4x4", {"chunk": 48})
    first = tuned_digest()
    Ledger(TUNED).keep(name, FastKernel("", {}))
    assert known(name) == FastKernel("", {}) and FastKernel("", {}).attributes is None
    assert len({first, tuned_digest(), ""}) == 3


def test_a_place_is_what_a_time_depends_on() -> None:
    def keys():
        yield site_key(PLACE, "convolution", (64, 64), (1, 64, 56, 56))
        yield site_key(PLACE, "convolution", (64, 64), (1, 64, 28, 28))
        yield site_key(PLACE, "convolution", (64, 64), None)
        yield site_key(PLACE, "convolution", (64, 128), (1, 64, 56, 56))
        yield site_key(PLACE, "grouped", (64, 64), (1, 64, 56, 56))
        yield site_key(SitePlace("a processor", "1.31", 2, "0123"), "convolution", (64, 64), (1, 64, 56, 56))
        yield site_key(SitePlace("a processor", "1.31", 1, "4567"), "convolution", (64, 64), (1, 64, 56, 56))

    assert len(set(keys())) == 7


@pytest.mark.parametrize(
    "value",
    [
        {"algorithm": "magic", "tuning": {}},
        {"algorithm": "winograd-4x4", "tuning": {"chunk": 7}},
        {"algorithm": "winograd-4x4", "tuning": {"speed": 1}},
        {"algorithm": "winograd-4x4", "tuning": []},
        {"algorithm": "winograd-4x4"},
        "winograd-4x4",
    ],
)
def test_an_entry_that_names_no_kernel_is_thrown_away(value, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(known_sites, "TUNED", known_sites.Kind(TUNED.name, TUNED.version, lambda one: one, TUNED.of))
        Ledger(known_sites.TUNED).keep("a", value)
    with pytest.warns(LedgerWarning, match="cannot be used"):
        assert known("a") is None
    assert len(Ledger(TUNED)) == 0


# --- the runtime ------------------------------------------------------------------------------------------------------


@needs_kernels
def test_it_computes_what_onnx_runtime_computes() -> None:
    model, given = models.small_network(), feeds()
    with Worker(RuntimeOptions()) as stock, Worker(RuntimeOptions(runtime=NAME)) as other:
        expected, found = (one.run(one.load(model), given) for one in (stock, other))
        assert [*found] == [*expected]
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4 * np.abs(value).max())
        mine, theirs = other.describe(), stock.describe()
    assert mine["runtime"] == NAME and mine["device"] == theirs["device"]
    assert mine["version"].startswith(f"{theirs['version']}+")


@needs_kernels
@pytest.mark.skipif(unavailable is None and not block_here(), reason="no blocked layout here")
def test_a_kernel_that_is_known_works_and_is_not_measured_again(monkeypatch) -> None:
    from rlflow.kernels import kernel_runtime

    model, given = models.small_network(), feeds()
    asked = []

    def measured(graph, profiler, feeds):
        asked.append([site.name for site in graph.sites()])
        return {site.name: {"": 2.0, "winograd-2x2": 1.0, "winograd-4x4": 3.0} for site in graph.sites()}

    monkeypatch.setattr(kernel_runtime, "measured", measured)
    chooser = KernelChooser(runtime("onnxruntime"), RuntimeOptions(runtime=NAME))

    def kernels(source: bytes) -> list[tuple[int, int]]:
        nodes = [one for one in onnx.load_from_string(source).graph.node if one.domain == "rlflow.kernels"]
        found = [{each.name: each.i for each in one.attribute} for one in nodes]
        return [(one["tile"], one.get("chunk", 0)) for one in found]

    first, options = chooser.model(model, given)
    assert kernels(first) == [(2, 0)] * len(kernels(first)) and kernels(first)
    assert len(asked) == 1 and options.library == rlflow.kernels.library_path() and options.runtime == "onnxruntime"
    again, _ = chooser.model(model, given)
    assert kernels(again) == kernels(first) and len(asked) == 1
    for entry in Ledger(FAST).folder.glob("*.json"):
        Ledger(TUNED).keep(entry.stem, FastKernel("winograd-4x4", {"chunk": 12}))
    tuned, _ = chooser.model(model, given)
    assert kernels(tuned) == [(4, 12)] * len(kernels(first)) and len(asked) == 1
    for entry in Ledger(FAST).folder.glob("*.json"):
        Ledger(TUNED).keep(entry.stem, FastKernel("", {}))
    assert chooser.model(model, given)[0] is model


@needs_kernels
def test_less_optimisation_leaves_the_runtimes_own_kernels() -> None:
    with Worker(RuntimeOptions(runtime=NAME, level="basic")) as worker:
        worker.run(worker.load(models.small_network()), feeds())
    assert len(Ledger(FAST)) == 0


def test_prices_with_kernels_are_deployed_with_kernels_unless_somebody_says_otherwise() -> None:
    assert WITH_KERNELS == NAME
    assert NAME in price.names()
    assert Deployment.priced_by(NAME, 1, "onnxruntime", None, None).with_kernels
    assert not Deployment.priced_by("onnxruntime", 1, "onnxruntime", None, None).with_kernels
    assert Deployment.priced_by(NAME, 1, "onnxruntime", None, "run {model}").runtime == "onnxruntime"


@needs_kernels
@pytest.mark.skipif(unavailable is None and not block_here(), reason="no blocked layout here")
def test_a_region_is_timed_with_the_kernel_that_is_known() -> None:
    """Winograd's algorithm does a convolution of 128 channels in about 0.4 of the time, changes of layout included."""
    model = models.small_network(28, 128)
    times = {}
    for name in ("onnxruntime", NAME):
        with Worker(RuntimeOptions(runtime=name)) as worker:
            found = worker.measure_many([(0, model, None)], repeats=5, min_time=1e-4)[0]
            assert not isinstance(found, str), found
            times[name] = found.ms
    assert times[NAME] < 0.8 * times["onnxruntime"]
    assert len(Ledger(FAST)) > 0
