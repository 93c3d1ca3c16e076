"""Parts of learned searches: observations, graph encoders, ragged distributions, advantages, an evolution strategy;
checkpoints, and in ``checkpoints/`` those that ship.

``observation``, ``token_vocabulary``, ``policy_config``, ``draws``, ``advantages``, ``cma``, ``checkpoint`` and
``fields`` need numpy only, and ``native_policy`` runs a trained policy in the core; the others open torch (``pip
install 'rlflow[rl]'``) when they are imported.
"""

from __future__ import annotations

from rlflow.registry import not_installed


def available() -> str | None:
    """``None``, or why nothing can be learned here."""
    return not_installed("torch", "torch", "[rl]")


def segment_backend() -> str:
    """What the segment operations run on, in words, for ``rlflow info``."""
    reason = available()
    if reason is not None:
        return f"unavailable: {reason}"
    from rlflow.nn import segment

    return segment.describe()
