"""Parts that learned searches are made of: observations, graph encoders, ragged distributions, advantages.

``observation`` and ``advantages`` need numpy only; the others open torch (``pip install 'rlflow[rl]'``) when they are
imported.
"""

from __future__ import annotations

import importlib.util


def available() -> str | None:
    """``None``, or why nothing can be learned here."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed; pip install 'rlflow[rl]'"
    return None


def segment_backend() -> str:
    """What the segment operations run on, in words, for ``rlflow info``."""
    reason = available()
    if reason is not None:
        return f"unavailable: {reason}"
    from rlflow.nn import segment

    return segment.describe()
