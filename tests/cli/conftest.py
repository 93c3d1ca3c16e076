"""Prices and proofs that these tests make go to a folder of their own; a model to optimise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import merge_model


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLFLOW_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(merge_model().SerializeToString())
    return path
