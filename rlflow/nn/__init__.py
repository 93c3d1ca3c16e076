"""Parts that learned searches are made of: observations, graph encoders, ragged distributions, advantages.

``observation`` needs numpy only; everything else opens torch (``pip install 'rlflow[rl]'``) when it is imported.
"""

from __future__ import annotations
