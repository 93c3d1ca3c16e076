"""TASO's Python interface, by rlflow: this is rlflow's own build, not the original (see rlflow's docs/compat-taso.md).

Everything is handed on from ``rlflow.compat.taso``, so that a class is one and the same however it was imported.
"""

from __future__ import annotations

from rlflow.compat.taso import *  # noqa: F403
from rlflow.compat.taso import __all__, __version__, _check_output  # noqa: F401
from taso import core  # noqa: F401 - `import taso; taso.core` works, as there
