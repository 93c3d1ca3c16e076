"""``rlflow place``: valid placements, written as ONNX has them, and clear sentences for bad files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from split_models import branches, mlp

from rlflow.cli import main
from rlflow.errors import ModelError, UsageError
from rlflow.frontends.device_configurations import placed_model, read_placement
from rlflow.placement.devices_file import read_devices
from rlflow.splitting.placing import NAME, place

TWO = {"devices": [{"name": "a", "speed": 2.0, "memory": "10KB"}, {"name": "b"}], "link": {"bandwidth": "1GB"}}


def written(folder: Path, content: object) -> Path:
    path = folder / "devices.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def invoke(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, [str(one) for one in arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_placement_is_written_and_the_model_stays_what_it_was(tmp_path: Path) -> None:
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    path.write_bytes(mlp(layers=6, width=32).SerializeToString())
    devices = written(tmp_path, {"devices": [{"name": name, "memory": "9.5KB"} for name in "abc"]})
    code, text, err = invoke("place", path, "--devices", devices, "-o", out, "--cost", "analytic")
    assert code == 0, err
    assert "simulated" in text
    assert "single: breaks a memory limit" in text
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 11
    names, stages = read_placement(model, NAME)
    assert names == ["a", "b", "c"]
    assert sorted(stages) == list(range(18))
    assert len(set(stages.values())) == 3
    code, _, err = invoke("verify", path, out, "--dim", "N=2")
    assert code == 0, err


def test_json_lists_every_node_and_device(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(branches().SerializeToString())
    code, text, err = invoke(
        "place", path, "--devices", written(tmp_path, TWO), "-o", tmp_path / "o.onnx", "--dim", "N=2", "--json",
        "--placer", "heft", "--placer", "annealing:evaluations=50",
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(text)
    assert len(found["nodes"]) == 8
    assert set(found["placers_ms"]) == {"heft", "annealing:evaluations=50"}
    assert found["bound_ms"] <= found["objective_ms"]
    assert sum(one["nodes"] for one in found["devices"]) == 8


def test_one_quick_device_takes_all_where_links_are_slow(tmp_path: Path) -> None:
    devices = read_devices(
        written(tmp_path, {"devices": [{"name": "a"}, {"name": "b", "speed": 3}], "link": {"latency_us": 1e6}})
    )
    found = place(mlp(), devices, tmp_path / "o.onnx", cost="analytic")
    assert found.decisions.tolist() == [1] * 12
    assert found.evaluation.valid


def test_too_little_memory_is_said_and_nothing_written(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(mlp(width=64).SerializeToString())
    devices = written(tmp_path, {"devices": [{"name": "a", "memory": "1KB"}]})
    code, _, err = invoke("place", path, "--devices", devices, "-o", tmp_path / "o.onnx", "--cost", "analytic")
    assert code == 2
    assert "the model's weights take 66.3 KB" in err
    assert not (tmp_path / "o.onnx").exists()


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("{", "Expecting property name"),
        ("[]", "at least one device"),
        ({"devices": []}, "at least one device"),
        ({"devices": [{"name": "a"}], "speed": 1}, "the field 'speed' is unknown"),
        ({"devices": [{"name": "a", "ram": 1}]}, "unknown field 'ram'"),
        ({"devices": ["a"]}, "device 0 is no object"),
        ({"devices": [{}]}, "device 0 has no name"),
        ({"devices": [{"name": "a"}, {"name": "a"}]}, "two devices are called 'a'"),
        ({"devices": [{"name": "a", "speed": 0}]}, "the speed of a is '0'"),
        ({"devices": [{"name": "a", "speed": True}]}, "the speed of a is 'True'"),
        ({"devices": [{"name": "a", "memory": "lots"}]}, "expected bytes"),
        ({"devices": [{"name": "a"}], "links": [{"from": "a", "to": "z"}]}, "has to 'z'"),
        ({"devices": [{"name": "a"}], "links": [{"from": "a", "to": "a"}]}, "to itself"),
        ({"devices": [{"name": "a"}], "links": {}}, "links is not a list"),
        ({"devices": [{"name": "a"}], "link": {"latency_us": -1}}, "0 or more"),
        ({"devices": [{"name": "a"}], "link": {"bandwidth": "0"}}, "expected bytes"),
        ({"devices": [{"name": str(k)} for k in range(65)]}, "64 at most"),
    ],
)
def test_a_bad_devices_file_is_one_sentence(content: object, part: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(mlp().SerializeToString())
    code, _, err = invoke("place", path, "--devices", written(tmp_path, content), "-o", tmp_path / "o.onnx")
    assert code == 2
    assert part in err
    assert err.count("\n") == 1
    assert not (tmp_path / "o.onnx").exists()


def test_links_of_a_devices_file(tmp_path: Path) -> None:
    links = [{"from": "a", "to": "b", "bandwidth": "1MB", "latency_us": 5}, {"from": "b", "to": "a", "latency_us": 7}]
    content = {"devices": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "link": {"bandwidth": "1GB"}, "links": links}
    found = read_devices(written(tmp_path, content))
    assert found.latency[0].tolist() == pytest.approx([0, 5e-6, 10e-6])
    assert found.latency[1].tolist() == pytest.approx([7e-6, 0, 10e-6])
    assert found.per_byte[0].tolist() == pytest.approx([0, 1e-6, 1e-9])
    assert np.isinf(found.memory).all()


def test_a_placement_is_replaced_and_others_stay() -> None:
    first = placed_model(mlp(), "theirs", ["x"], {0: 0})
    second = placed_model(placed_model(first, NAME, ["a", "b"], {0: 1, 1: 0}), NAME, ["c", "d"], {1: 1})
    assert read_placement(second, "theirs") == (["x"], {0: 0})
    assert read_placement(second, NAME) == (["c", "d"], {1: 1})
    assert [tensor.name for tensor in second.graph.initializer] == [tensor.name for tensor in mlp().graph.initializer]
    with pytest.raises(ModelError, match="no device configuration 'other'"):
        read_placement(second, "other")


def test_an_unknown_placer_is_refused_before_anything(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no placer 'heff'"):
        place(mlp(), written(tmp_path, TWO), tmp_path / "o.onnx", placers=["heff"])
