"""The exported architectures: the configuration names real ones, and those written here export and run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
HERE = Path(__file__).resolve().parents[2] / "reproduce" / "exports"
sys.path.insert(0, str(HERE))

import architectures  # noqa: E402 - from reproduce/exports
import calibrate  # noqa: E402

CONFIG = json.loads((HERE / "config.json").read_text(encoding="utf-8"))


def test_the_configuration_names_architectures_once() -> None:
    for names in (CONFIG["held_out"], CONFIG["older"], list(CONFIG["bars"])):
        assert set(names) <= set(architectures.BUILDERS)
        assert len(names) == len(set(names))


def test_as_many_as_promised_and_a_third_held_out() -> None:
    count = len(architectures.BUILDERS)
    assert count >= 45
    assert len(CONFIG["older"]) >= 15
    assert abs(len(CONFIG["held_out"]) - count / 3) < 1
    assert not set(CONFIG["held_out"]) & set(CONFIG["bars"]), "what is held out is only measured"


def test_calibration_moves_what_was_constant_and_keeps_what_was_drawn() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    module[0].bias.data.zero_()
    drawn = module[0].weight.clone()
    inputs = (5 + 3 * torch.randn(1, 3, 8, 8),)
    calibrate.calibrate(module, inputs, 1)
    assert torch.equal(module[0].weight, drawn)
    assert module[0].bias.std() > 0
    assert module[1].weight.std() > 0
    with torch.no_grad():
        before = module[0](inputs[0])
    normal = torch.nn.functional.batch_norm(before, module[1].running_mean, module[1].running_var)
    assert float(normal.mean().abs()) < 1e-4
    assert abs(float(normal.std()) - 1) < 0.1


def test_calibration_is_seeded() -> None:
    def parameters(seed: int) -> np.ndarray:
        torch.manual_seed(0)
        module = calibrate.calibrate(torch.nn.BatchNorm2d(8), (torch.randn(1, 8, 4, 4),), seed)
        return module.weight.detach().numpy()

    assert np.array_equal(parameters(1), parameters(1))
    assert not np.array_equal(parameters(1), parameters(2))


@pytest.mark.parametrize("name", ["yolo_mish", "diffusion_unet", "lstm_unrolled"])
def test_those_written_here_give_finite_outputs_that_depend_on_the_input(name: str) -> None:
    torch.manual_seed(0)
    module, inputs = architectures.BUILDERS[name]()
    calibrate.calibrate(module, inputs, 0)
    with torch.no_grad():
        first, second = module(*inputs), module(inputs[0] * 1.5, *inputs[1:])
    assert bool(torch.isfinite(first).all())
    assert float((first - second).abs().max()) > 1e-3
