"""Sessions with the kernels of a plan; and the plain model, with a note, wherever that cannot be."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path

import blocked_models as models
import numpy as np
import onnx
import onnxruntime as ort
import pytest

import rlflow.kernels
from rlflow.errors import ModelError
from rlflow.frontends import blocked, storage
from rlflow.kernels import Choice, KernelPlan, KernelsNotUsed, preparing, shared_library
from rlflow.runtime import interface

WINOGRAD = ["winograd-2x2", "winograd-4x4", "winograd-2x2-kept", "winograd-4x4-kept"]
needs_library = pytest.mark.skipif(rlflow.kernels.unavailable() is not None, reason=str(rlflow.kernels.unavailable()))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLFLOW_CACHE", os.fspath(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def planned(algorithm: str = "winograd-4x4", dynamic: bool = False, **changes) -> bytes:
    """The small network with a plan for every convolution that a kernel can do."""
    raw = models.small_network(dynamic=dynamic)
    block = preparing.block_here()
    graph = blocked.BlockedGraph(preparing_optimised(raw), block)
    choices = [Choice(one.name, one.sizes, algorithm, 2.0) for one in graph.sites()]
    assert len(choices) == 2  # the stem reads plain channels
    plan = KernelPlan("1.0", block, 1, 1.5, tuple(choices))
    return with_metadata(raw, changes.get("text", plan.text()))


def preparing_optimised(raw: bytes) -> bytes:
    from rlflow.runtime import inprocess

    return inprocess.optimised(raw)


def with_metadata(raw: bytes, text: str) -> bytes:
    model = onnx.ModelProto.FromString(raw)
    blocked.set_metadata(model, rlflow.kernels.KEY, text)
    return model.SerializeToString()


def feeds(size: int = 24) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((1, 3, size, size)).astype(np.float32)}


def plain_outputs(raw: bytes, size: int = 24) -> np.ndarray:
    return ort.InferenceSession(raw, providers=["CPUExecutionProvider"]).run(None, feeds(size))[0]


def kernel_nodes(path: str) -> list[str]:
    return [node.name for node in onnx.load(path).graph.node if node.domain == "rlflow.kernels"]


@needs_library
@pytest.mark.parametrize(("threads", "attribute"), [(1, []), (2, [2]), (16, [16])])
def test_kernels_cut_their_work_for_the_threads_of_the_plan(threads: int, attribute: list[int]) -> None:
    plan = KernelPlan.parse(interface.metadata_entry(planned(), rlflow.kernels.KEY) or "")
    made, _ = preparing.applied(planned(), replace(plan, threads=threads))
    nodes = [node for node in onnx.ModelProto.FromString(made or b"").graph.node if node.op_type == "NchwcWinograd"]
    assert len(nodes) == 2
    assert all([one.i for one in node.attribute if one.name == "threads"] == attribute for node in nodes)


@needs_library
@pytest.mark.parametrize("algorithm", WINOGRAD)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_session_uses_the_plan(algorithm: str, dynamic: bool, own_cache: Path) -> None:
    raw = planned(algorithm, dynamic)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rlflow.kernels.session(raw)
    expected = plain_outputs(raw)
    assert np.abs(found.run(None, feeds())[0] - expected).max() < 1e-5 * np.abs(expected).max()
    (cached,) = own_cache.glob("*.onnx")
    assert len(kernel_nodes(os.fspath(cached))) == 2


@needs_library
def test_another_program_uses_the_prepared_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(planned())
    prepared = rlflow.kernels.prepare(path)
    assert prepared != os.fspath(path)
    assert rlflow.kernels.prepare(path) == prepared
    options = ort.SessionOptions()
    options.register_custom_ops_library(rlflow.kernels.library_path())
    found = ort.InferenceSession(prepared, options, providers=["CPUExecutionProvider"]).run(None, feeds())[0]
    expected = plain_outputs(path.read_bytes())
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


@needs_library
def test_options_of_the_caller_are_used() -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    assert rlflow.kernels.session(planned(), options).get_session_options().intra_op_num_threads == 2


@needs_library
def test_a_prepared_file_that_was_damaged_is_made_again(own_cache: Path) -> None:
    raw = planned()
    rlflow.kernels.session(raw)
    (cached,) = own_cache.glob("*.onnx")
    good = cached.read_bytes()
    cached.write_bytes(good[:1000])
    with pytest.warns(KernelsNotUsed, match="refused to load"):
        found = rlflow.kernels.session(raw)
    np.testing.assert_allclose(found.run(None, feeds())[0], plain_outputs(raw), rtol=0, atol=1e-6)
    rlflow.kernels.session(raw)
    assert cached.read_bytes() == good


@needs_library
def test_the_cache_is_another_one_for_another_version(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlflow.runtime import inprocess

    raw = planned()
    rlflow.kernels.session(raw)
    monkeypatch.setattr(inprocess, "version", lambda: "9.9")
    rlflow.kernels.session(raw)
    assert len(list(own_cache.glob("*.onnx"))) == 2


@needs_library
def test_without_a_cache_the_kernels_are_used_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLFLOW_CACHE", os.fspath(tmp_path / "file"))
    raw = planned()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rlflow.kernels.session(raw)
    assert np.abs(found.run(None, feeds())[0] - plain_outputs(raw)).max() > 0.0  # rounded otherwise, so by a kernel


@needs_library
def test_old_prepared_files_make_room(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "_CACHE_BYTES", 10)
    for algorithm in WINOGRAD:
        rlflow.kernels.session(planned(algorithm))
    (kept,) = own_cache.glob("*.onnx")
    assert sorted(own_cache.iterdir()) == [kept, kept.with_name(f"{kept.name}.data")]


@needs_library
def test_weights_of_a_prepared_file_that_are_gone_are_made_again(own_cache: Path) -> None:
    raw = planned()
    rlflow.kernels.session(raw)
    (weights,) = own_cache.glob("*.onnx.data")
    assert weights.stat().st_size > 2 * 4 * 9 * 20 * 20  # they lie apart, and the runtime maps them
    weights.unlink()
    with pytest.warns(KernelsNotUsed, match="refused to load"):
        rlflow.kernels.session(raw)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rlflow.kernels.session(raw)
    assert weights.exists()


@needs_library
def test_weights_in_another_file_are_found(tmp_path: Path, own_cache: Path) -> None:
    model = onnx.ModelProto.FromString(planned())
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rlflow.kernels.session(path)
    expected = plain_outputs(planned())
    assert np.abs(found.run(None, feeds())[0] - expected).max() < 1e-5 * np.abs(expected).max()
    data = tmp_path / "model.data"
    data.write_bytes(bytes(reversed(data.read_bytes())))  # other weights: the cached file is no good for them
    rlflow.kernels.session(path)
    assert len(list(own_cache.glob("*.onnx"))) == 2


# --- the plain model, with a note -------------------------------------------------------------------------------------


def falls_back(raw: bytes, note: str) -> None:
    with pytest.warns(KernelsNotUsed, match=note):
        found = rlflow.kernels.session(raw)
    np.testing.assert_allclose(found.run(None, feeds())[0], plain_outputs(raw), rtol=0, atol=1e-6)


def test_a_model_without_a_plan_runs_plainly(tmp_path: Path) -> None:
    falls_back(models.small_network(), "the model has no plan")
    path = tmp_path / "model.onnx"
    path.write_bytes(models.small_network())
    assert rlflow.kernels.prepare(path) == os.fspath(path)


def test_without_the_library_the_model_runs_plainly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shared_library, "library_path", lambda: os.fspath(tmp_path / "none.so"))
    falls_back(with_metadata(models.small_network(), "{}"), "was not built")


@needs_library
def test_a_library_that_is_none_is_refused_and_the_model_runs_plainly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    raw = planned()
    monkeypatch.setattr(shared_library, "library_path", lambda: os.fspath(broken))
    falls_back(raw, "refused the library of kernels")


@needs_library
@pytest.mark.parametrize("text", ["", "{}", '{"version": 1}', "[" * 100_000, '{"version": 1, "choices": null}'])
def test_a_hostile_plan_is_refused_and_the_model_runs_plainly(text: str) -> None:
    falls_back(with_metadata(models.small_network(), text), "is refused")


@needs_library
def test_a_plan_that_makes_the_model_too_large_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "LARGEST_FILE", 150_000)
    raw = planned("winograd-4x4-kept")
    falls_back(raw, "too large for one piece")
    rlflow.kernels.session(planned("winograd-4x4"))


@needs_library
def test_a_plan_for_another_model_changes_nothing() -> None:
    stranger = KernelPlan("1.0", 8, 1, 2.0, (Choice("nobody", (8, 8), "winograd-2x2", 2.0),))
    falls_back(with_metadata(models.small_network(), stranger.text()), "none of the plan's nodes")


@needs_library
def test_a_choice_for_other_channels_is_left_out() -> None:
    block = preparing.block_here()
    graph = blocked.BlockedGraph(preparing_optimised(models.small_network()), block)
    first, second = graph.sites()
    choices = (
        Choice(first.name, first.sizes, "winograd-2x2", 2.0, {"chunk": 24}),
        Choice(second.name, (512, 512), "winograd-2x2", 2.0),
    )
    raw = with_metadata(models.small_network(), KernelPlan("1.0", block, 1, 2.0, choices).text())
    with pytest.warns(KernelsNotUsed, match="1 of the plan's 2 nodes"):
        rlflow.kernels.session(raw)


def test_another_provider_gets_the_plain_model() -> None:
    with pytest.warns(KernelsNotUsed, match="elsewhere"):
        rlflow.kernels.session(models.small_network(), providers=["AzureExecutionProvider", "CPUExecutionProvider"])


def test_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        rlflow.kernels.session(tmp_path / "missing.onnx")
    with pytest.raises(ModelError):
        rlflow.kernels.prepare(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="not ONNX"):
        rlflow.kernels.session(b"\xff\xff\xff")
