"""What rlflow uses of torch-scatter, by its documentation: for machines where that is not built.

``scatter_*(src, index, dim, out, dim_size)``; empty groups are 0, and ``scatter_max`` returns the places beside the
values. Written with loops over groups, so that it shares nothing with torch's own backend.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = Any


def _groups(src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None) -> list[Tensor]:
    if dim != 0 or out is not None or dim_size is None:
        raise NotImplementedError("the stand-in knows dim=0 and a given dim_size only")
    return [src[index == group] for group in range(dim_size)]


def _stacked(parts: list[Tensor], src: Tensor) -> Tensor:
    return torch.stack(parts) if parts else src.new_zeros((0, *src.shape[1:]))


def scatter_add(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    return _stacked([group.sum(0) for group in _groups(src, index, dim, out, dim_size)], src)


def scatter_mean(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    return _stacked([group.sum(0) / max(len(group), 1) for group in _groups(src, index, dim, out, dim_size)], src)


def scatter_max(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> tuple[Tensor, Tensor]:
    groups = _groups(src, index, dim, out, dim_size)
    values = [group.max(0).values if len(group) else src.new_zeros(src.shape[1:]) for group in groups]
    places = [group.max(0).indices if len(group) else torch.full(src.shape[1:], len(src)) for group in groups]
    return _stacked(values, src), torch.stack(places)
