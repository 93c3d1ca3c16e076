"""``rlflow.torch.optimize``: from a module to a faster callable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

import rlflow.torch  # noqa: E402
from rlflow.errors import ModelError, RuntimeUnavailable, UsageError  # noqa: E402

QUICK = {"cost": "analytic", "budget": "60x", "search": "greedy"}


class TwoHeads(torch.nn.Module):
    """Two products of one input that are added, which is one product; outputs in a dictionary with a tuple in it."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = (torch.nn.Parameter(torch.randn(64, 64)) for _ in range(2))
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, object]:
        both = x @ self.left + x @ self.right
        return {"sum": self.drop(both) * scale, "both": (both.relu(), both.tanh())}


@pytest.fixture(scope="module")
def module() -> TwoHeads:
    torch.manual_seed(0)
    return TwoHeads()


def test_a_module_becomes_a_faster_callable_of_the_same_form(module: TwoHeads, tmp_path: Path) -> None:
    module.train()
    module.drop.eval()
    x, scale = torch.randn(8, 64), torch.tensor([2.0])
    fast = rlflow.torch.optimize(module, (x, scale), quiet=True, **QUICK)
    assert module.training and not module.drop.training  # its own mode stays
    assert fast.result.improved and fast.result.report.verified is not None
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(8, 64)
        with torch.no_grad():
            expected = TwoHeads.forward(module.eval(), x, scale)
        found = fast(x, scale)
        assert list(found) == ["sum", "both"] and isinstance(found["both"], tuple)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    fast.save(tmp_path / "fast.onnx")
    assert (tmp_path / "fast.onnx").stat().st_size > 0 and "OptimizedModule" in repr(fast)


def test_a_tensor_alone_and_open_sizes(module: TwoHeads) -> None:
    linear = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    batch = torch.export.Dim("batch", min=1, max=64)
    fast = rlflow.torch.optimize(linear, torch.randn(2, 8), dynamic_shapes=({0: batch},), **QUICK)
    for rows in (1, 2, 9):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(fast(x), linear(x).detach())


def test_what_torch_cannot_export_is_said_in_a_sentence() -> None:
    class Asks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum().item() > 0 else -x

    with pytest.raises(ModelError, match=r"torch\.onnx\.export cannot export Asks: "):
        rlflow.torch.optimize(Asks(), torch.randn(3), **QUICK)


@pytest.mark.parametrize("module", [None, "model.onnx", lambda x: x], ids=["None", "path", "function"])
def test_what_is_no_module_is_refused(module: object) -> None:
    with pytest.raises(UsageError, match=r"What is optimised is a torch\.nn\.Module; \w+ is none"):
        rlflow.torch.optimize(module, torch.randn(3), **QUICK)


def test_without_onnxscript_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None if name == "onnxscript" else object())
    with pytest.raises(RuntimeUnavailable, match=r"onnxscript, .* is not installed: pip install 'rlflow\[torch\]'"):
        rlflow.torch.optimize(torch.nn.Linear(2, 2), torch.randn(2, 2))


def test_importing_it_opens_no_torch() -> None:
    script = "import sys, rlflow.torch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])
