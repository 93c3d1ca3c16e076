"""Kernels of our own inside a stock ONNX Runtime.

A model that ``rlflow optimize --kernels`` wrote is plain ONNX and runs anywhere. Its metadata holds a plan: which of
its nodes a kernel does faster. :func:`session` makes a session that uses it on this machine, :func:`prepare` a file for
other languages, and :func:`add_provider` lets a session of yours use it. :func:`spaces` says what a tuner may choose.

>>> import rlflow.kernels
>>> session = rlflow.kernels.session("out.onnx")
"""

from __future__ import annotations

from rlflow.kernels.algorithms import ALGORITHMS, Algorithm, spaces
from rlflow.kernels.plan import KEY, Choice, KernelPlan
from rlflow.kernels.preparing import prepare
from rlflow.kernels.provider import add_provider
from rlflow.kernels.sessions import KernelsNotUsed, session
from rlflow.kernels.shared_library import library_path, unavailable

__all__ = [
    "ALGORITHMS",
    "KEY",
    "Algorithm",
    "Choice",
    "KernelPlan",
    "KernelsNotUsed",
    "add_provider",
    "library_path",
    "prepare",
    "session",
    "spaces",
    "unavailable",
]
