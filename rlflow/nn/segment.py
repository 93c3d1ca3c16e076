"""Reductions over ragged groups: rows that belong together carry the same number.

``values`` [n, ...] float, ``segment`` [n] int64 in [0, count); results have shape [count, ...]. An empty group is 0
(for the maximum too). Two backends compute the same: torch's own ``index_add`` and ``scatter_reduce``, and
torch-scatter where it is installed (extra ``[scatter]``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor


class Backend(Protocol):
    """The three reductions, and a name."""

    name: str

    def sum(self, values: Tensor, segment: Tensor, count: int) -> Tensor: ...

    def mean(self, values: Tensor, segment: Tensor, count: int) -> Tensor: ...

    def max(self, values: Tensor, segment: Tensor, count: int) -> Tensor: ...


class TorchBackend:
    """torch's own operations."""

    name = "torch"

    def sum(self, values: Tensor, segment: Tensor, count: int) -> Tensor:
        return values.new_zeros((count, *values.shape[1:])).index_add(0, segment, values)

    def mean(self, values: Tensor, segment: Tensor, count: int) -> Tensor:
        sizes = torch.bincount(segment, minlength=count).clamp(min=1).to(values.dtype)
        return self.sum(values, segment, count) / sizes.view(-1, *[1] * (values.dim() - 1))

    def max(self, values: Tensor, segment: Tensor, count: int) -> Tensor:
        index = segment.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
        out = values.new_zeros((count, *values.shape[1:]))
        return out.scatter_reduce(0, index, values, "amax", include_self=False)


class ScatterBackend:
    """The torch-scatter package."""

    name = "torch-scatter"

    def __init__(self) -> None:
        import torch_scatter

        self._library: Any = torch_scatter

    def sum(self, values: Tensor, segment: Tensor, count: int) -> Tensor:
        return self._library.scatter_add(values, segment, 0, dim_size=count)

    def mean(self, values: Tensor, segment: Tensor, count: int) -> Tensor:
        return self._library.scatter_mean(values, segment, 0, dim_size=count)

    def max(self, values: Tensor, segment: Tensor, count: int) -> Tensor:
        return self._library.scatter_max(values, segment, 0, dim_size=count)[0]


def _installed() -> Backend:
    try:
        return ScatterBackend()
    except (ImportError, OSError):  # absent, or built for another torch
        return TorchBackend()


_backend: Backend = _installed()


def describe() -> str:
    """The backend's name and version."""
    from importlib import metadata

    package = {"torch": "torch", "torch-scatter": "torch-scatter"}[_backend.name]
    return f"{_backend.name} {metadata.version(package)}"


@contextmanager
def using(backend: Backend) -> Iterator[None]:
    """Compute with ``backend`` inside."""
    global _backend
    before, _backend = _backend, backend
    try:
        yield
    finally:
        _backend = before


def segment_sum(values: Tensor, segment: Tensor, count: int) -> Tensor:
    return _backend.sum(values, segment, count)


def segment_mean(values: Tensor, segment: Tensor, count: int) -> Tensor:
    return _backend.mean(values, segment, count)


def segment_max(values: Tensor, segment: Tensor, count: int) -> Tensor:
    return _backend.max(values, segment, count)


def segment_log_softmax(logits: Tensor, segment: Tensor, count: int) -> Tensor:
    """Logarithms of the softmax within each group; shaped as ``logits``."""
    highest = segment_max(logits.detach(), segment, count)  # cancels out; keeps the exponentials small
    shifted = logits - highest[segment]
    return shifted - segment_sum(shifted.exp(), segment, count).log()[segment]


def segment_softmax(logits: Tensor, segment: Tensor, count: int) -> Tensor:
    """The softmax within each group; shaped as ``logits``."""
    return segment_log_softmax(logits, segment, count).exp()
