"""How far a verb is, on stderr: what :mod:`rlflow.report.live` shows."""

from __future__ import annotations

from rlflow.report.live import reporter

__all__ = ["reporter"]
