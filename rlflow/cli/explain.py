"""``rlflow explain``: another door to ``rlflow rules explain``."""

from __future__ import annotations

from rlflow.cli.rules.explain import explain_model as explain

__all__ = ["explain"]
