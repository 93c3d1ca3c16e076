"""Segment operations against loops, and the two backends against each other."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
from policies import needs_torch

pytestmark = needs_torch
torch = pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")

COUNT = 5
SEGMENT = [0, 0, 2, 2, 2, 4]  # groups 1 and 3 are empty


@pytest.fixture(autouse=True)
def torch_scatter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package where it is installed, else a stand-in with its signatures."""
    if importlib.util.find_spec("torch_scatter") is None:
        import scatter_stand_in

        monkeypatch.setitem(sys.modules, "torch_scatter", scatter_stand_in)


def backends() -> list:
    from rlflow.nn import segment

    found = [pytest.param(segment.TorchBackend, id="torch")]
    return [*found, pytest.param(segment.ScatterBackend, id="torch-scatter")]


def loop(values: np.ndarray, reduce) -> np.ndarray:
    groups = [values[[i for i, s in enumerate(SEGMENT) if s == g]] for g in range(COUNT)]
    return np.stack([reduce(group, axis=0) if len(group) else np.zeros(values.shape[1:]) for group in groups])


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize(("name", "reduce"), [("sum", np.sum), ("mean", np.mean), ("max", np.max)])
@pytest.mark.parametrize("backend", backends())
def test_reductions_agree_with_a_loop(backend, name: str, reduce, shape: tuple[int, ...]) -> None:
    from rlflow.nn import segment

    values = np.random.default_rng(1).normal(size=(len(SEGMENT), *shape)) - 5  # all below 0: a maximum from 0 shows
    with segment.using(backend()):
        found = getattr(segment, f"segment_{name}")(torch.tensor(values), torch.tensor(SEGMENT), COUNT)
    np.testing.assert_allclose(found.numpy(), loop(values, reduce))


@pytest.mark.parametrize("backend", backends())
def test_a_softmax_is_one_of_each_group(backend) -> None:
    from rlflow.nn import segment

    logits = torch.tensor([1000.0, 1001.0, -3.0, 0.0, 2.0, -1e4], dtype=torch.float64, requires_grad=True)
    with segment.using(backend()):
        found = segment.segment_softmax(logits, torch.tensor(SEGMENT), COUNT)
        found[1].backward()
    expected = [torch.softmax(logits[part], 0) for part in (slice(0, 2), slice(2, 5), slice(5, 6))]
    np.testing.assert_allclose(found.detach().numpy(), torch.cat(expected).detach().numpy())
    p = found.detach()[:2]
    np.testing.assert_allclose(logits.grad.numpy(), [-(p[0] * p[1]), p[0] * p[1], 0, 0, 0, 0])


def test_gradients_agree_between_backends() -> None:
    from rlflow.nn import segment

    gradients = []
    for backend in (segment.TorchBackend(), segment.ScatterBackend()):
        values = torch.linspace(-1, 1, 12, dtype=torch.float64).view(6, 2).requires_grad_()
        with segment.using(backend):
            for name in ("sum", "mean", "max"):
                found = getattr(segment, f"segment_{name}")(values, torch.tensor(SEGMENT), COUNT)
                (found * torch.arange(10).view(5, 2)).sum().backward()
        gradients.append(values.grad)
    torch.testing.assert_close(*gradients)


def test_the_choice_is_told() -> None:
    from rlflow import nn

    assert nn.segment_backend().split()[0] in ("torch", "torch-scatter")
