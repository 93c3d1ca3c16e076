"""Where a training's figures go: JSON lines, and TensorBoard where it is installed. docs/metrics.md defines them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import TracebackType
from typing import Any


class TrainingLog:
    """Writes ``log.jsonl`` and TensorBoard's files into ``folder`` (``None``: nowhere). A resumed training appends."""

    def __init__(self, folder: Path | None) -> None:
        self._lines: Any = None
        self._board: Any = None
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        self._lines = (folder / "log.jsonl").open("a", encoding="utf-8")
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder))

    def write(self, kind: str, step: int, figures: dict[str, Any]) -> None:
        """One line, and a point of each number at ``step`` (environment steps so far)."""
        if self._lines is not None:
            self._lines.write(json.dumps({"kind": kind, "steps": step, **figures}) + "\n")
            self._lines.flush()
        if self._board is not None:
            for name, value in figures.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lines is not None:
            self._lines.close()
        if self._board is not None:
            self._board.close()
