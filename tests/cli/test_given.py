"""What is missing is said before the work starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

import rlflow
from rlflow import errors


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with an open dimension."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])],
    )
    file = tmp_path / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file.write_bytes(model.SerializeToString())
    return file


def refused(model: Any, error: type[Exception], sentence: str, **options: Any) -> None:
    """The run ends with this sentence, and no stage of it has begun."""
    stages: list[str] = []
    with pytest.raises(error, match=sentence):
        rlflow.optimize(model, on_stage=stages.append, **{"cost": "analytic", "budget": "5c", **options})
    assert stages == []


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"input_data": "none.npz"}, errors.UsageError, "none.npz does not exist"),
        ({"input_data": ["x=none.npy"]}, errors.UsageError, "none.npy does not exist"),
        ({"rules": ["nowhere/none.json"]}, errors.UsageError, "The rule file 'nowhere/none.json' does not exist"),
        ({"output": "nowhere/at/all.onnx"}, errors.OutputError, "there is no directory"),
        ({"dims": {"N": "3..2"}}, errors.UsageError, "expected a size above zero"),
    ],
)
def test_files_that_are_absent(path: Path, options: dict[str, Any], error: type[Exception], sentence: str) -> None:
    refused(path, error, sentence, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"shapes": {"x": (1, 16)}}, "The shape of 'x' is .* expected text"),
        ({"cost": 3}, "The cost is 3; expected the name"),
        ({"search": None}, "The search is None; expected the name"),
        ({"max_growth": "2"}, "must be above zero and at most 1000000, not '2'"),
        ({"seed": 1.5}, "The seed is 1.5; expected a whole number"),
        ({"threads": True}, "The number of threads is True; expected a whole number"),
        ({"dims": "N=1"}, "The sizes of dimensions are 'N=1'; expected a dictionary"),
        ({"dims": ["N"]}, r"The sizes of dimensions are \['N'\]; expected a dictionary"),
        ({"dims": {"N": 1.9}}, "The size of the dimension 'N' is 1.9; expected a size"),
        ({"dims": {"N": (1, 2.9, 3.5)}}, "The size of the dimension 'N' is .* expected a size"),
        ({"dims": {"N": True}}, "The size of the dimension 'N' is True; expected a size"),
        ({"freeze": "N=3"}, "The dimensions to freeze are 'N=3'; expected a dictionary"),
        ({"freeze": {"N": 1.5}}, "The size to freeze the dimension 'N' at is 1.5"),
        ({"shapes": ["x:2"]}, "The shapes of inputs are .* expected a dictionary"),
        ({"provider": 3}, "The provider is 3; expected the name"),
        ({"measure_cmd": 3}, "The measuring command is 3; expected text"),
        ({"stop": 3}, "What stops the work is 3; expected"),
        ({"verify": "no"}, "The option 'verify' is 'no'; expected True or False"),
    ],
)
def test_values_of_another_kind(path: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(errors.UsageError, match=sentence):
        rlflow.optimize(path, **{"cost": "analytic", "budget": "5c", **options})


def test_calls_of_another_kind(path: Path, tmp_path: Path) -> None:
    from rlflow.benchmark import bench
    from rlflow.splitting import split

    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
        (rlflow.optimize, (None,), {}, "A model is a path, bytes or a ModelProto; NoneType is none"),
        (rlflow.shrink, (path,), {"memory": "32MB"}, "The memory, in bytes, is '32MB'"),
        (rlflow.verify, (path, path), {"seed": -1}, "The seed is -1"),
        (rlflow.verify, (path, path), {"shapes": {"x": (2,)}}, "The shape of 'x' is"),
        (rlflow.verify, (path, path), {"shapes": 3}, "The shapes of inputs are 3; expected a dictionary"),
        (rlflow.verify, (path, path), {"dims": "N=1"}, "The sizes of dimensions are 'N=1'; expected a dictionary"),
        (rlflow.verify, (path, path), {"provider": 3}, "The provider is 3"),
        (rlflow.load, (path,), {"freeze": "N=3"}, "The dimensions to freeze are 'N=3'; expected a dictionary"),
        (rlflow.save, (None, None), {}, "What is saved is a model of rlflow.load .* got NoneType and NoneType"),
        (split, (path, tmp_path / "parts", True), {}, "The number of parts is True"),
        (bench, ("q.onnx",), {}, "takes a list of models"),
        (bench, ([path],), {"threads": 1}, "takes a list of numbers of threads"),
    ]
    for call, given, more, sentence in calls:
        with pytest.raises(errors.UsageError, match=sentence):
            call(*given, **more)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dims": "N=3"}, "The sizes of dimensions are 'N=3'; expected a dictionary"),
        ({"dims": {"N": 1.5}}, "The size of the dimension 'N' is 1.5"),
        ({"workers": 3}, "The workers are 3; expected text"),
        ({"threads": 0}, "The number of threads is 0"),
        ({"gate_seconds": 0}, "The time for timing the winners must be above zero"),
        ({"seeds": 1.5}, "The number of seeds is 1.5"),
        ({"stop": 3}, "What stops the work is 3"),
        ({"models": []}, r"takes a list of models, one or more; got \[\]"),
        ({"models": "m.onnx"}, "takes a list of models, one or more; got 'm.onnx'"),
    ],
)
def test_comparisons_of_another_kind(path: Path, options: dict[str, Any], sentence: str) -> None:
    plain = {"models": [path], "strategies": ["greedy", "beam"], "cost": "analytic", "budget": "5c", "seeds": 1}
    with pytest.raises(errors.UsageError, match=sentence):
        rlflow.compare(**{**plain, **options})


@pytest.mark.parametrize("call", ["optimize", "simplify", "load", "verify", "shrink", "replay"])
def test_a_path_with_a_nul(call: str, path: Path) -> None:
    more: dict[str, tuple[Any, ...]] = {"verify": (path,), "replay": ([],)}
    with pytest.raises(errors.ModelError, match="cannot be read: embedded null byte"):
        getattr(rlflow, call)("a\0b.onnx", *more.get(call, ()))


def test_a_model_that_is_absent(tmp_path: Path) -> None:
    refused(tmp_path / "none.onnx", errors.ModelError, "The model '.*none.onnx' does not exist")
    refused(tmp_path, errors.ModelError, "is a directory")


@pytest.mark.parametrize(
    "search",
    [
        "xrlflow:checkpoint=none.npz",
        "rlflow:checkpoint=none.npz",
        "portfolio:members=greedy+xrlflow(checkpoint=none.npz)",
        "partition:inner=xrlflow(checkpoint=none.npz)",
    ],
)
def test_a_checkpoint_that_is_absent(path: Path, search: str) -> None:
    if search.startswith("rlflow"):
        pytest.importorskip("torch", reason="torch is not installed")
    refused(path, errors.ModelError, "none.npz", search=search)


def test_a_checkpoint_that_is_something_else(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "other.npz"
    file.write_bytes(b"not an archive")
    refused(path, errors.ModelError, "other.npz", search=f"xrlflow:checkpoint={file}")


def test_an_extra_that_is_not_installed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in ("torch", "highspy") else found(name, *rest)
    )
    refused(path, errors.UsageError, r"pip install 'rlflow\[rl\]'", search="rlflow")
    refused(path, errors.UsageError, r"pip install 'rlflow\[rl\]'", search="xrlflow:train=20")
    refused(path, errors.UsageError, r"pip install 'rlflow\[eqsat\]'", search="eqsat:extraction=ilp")
