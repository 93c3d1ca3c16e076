"""The one exception family of the library.

Every error carries one sentence: what was being done, where, what was found, what was expected, and, where it helps,
what to try. ``exit_code`` is what the command line returns for it: 1 failure, 2 usage, 3 verification failed.
"""

from __future__ import annotations

import os


class RlflowError(Exception):
    """Base of every error that the library raises on purpose; ``str(error)`` is its sentence."""

    exit_code: int = 1


class UsageError(RlflowError):
    """The caller asked for something that makes no sense: an unknown name, an impossible option, an open dimension."""

    exit_code = 2


class BudgetError(UsageError):
    """A budget could not be read, or is zero or negative."""


class ModelError(RlflowError):
    """A model file cannot be used: missing, truncated, not ONNX, cyclic, or without the weights that it refers to."""


class GraphError(RlflowError):
    """A graph value would be ill-formed: an unknown value, a wrong arity, types that do not agree, a cycle."""


class RuleError(RlflowError):
    """A rewrite rule was refused.

    ``file`` and ``line`` say where it was written (``None`` where unknown), ``reason`` why it was refused.
    """

    def __init__(self, reason: str, file: str | os.PathLike[str] | None = None, line: int | None = None) -> None:
        self.reason = reason
        self.file = None if file is None else os.fspath(file)
        self.line = line
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        if self.file is None:
            return self.reason
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.reason}"

    def __reduce__(self) -> tuple[type[RuleError], tuple[str, str | None, int | None]]:
        return type(self), (self.reason, self.file, self.line)


class ProofError(RlflowError):
    """A rule's statement could not be proved, or its stored proof is absent, stale or false."""


class CostError(RlflowError):
    """A graph cannot be priced: no price for a region, an unusable cost model, or a measurement that makes no sense."""


class RuntimeUnavailable(CostError):  # noqa: N818 - the names say what happened, not that it is an error
    """The inference runtime that was asked for is not installed here or lacks what was asked of it."""


class RuntimeRefused(CostError):  # noqa: N818
    """The runtime answered with an error: it cannot load or run this model, or these inputs."""


class RuntimeCrashed(CostError):  # noqa: N818
    """The runtime's process died, or did not answer in time (``timed_out``); the next request gets a new process."""

    def __init__(self, message: str, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class VerificationFailed(RlflowError):  # noqa: N818
    """The optimised model does not compute what the original computes; nothing was written."""

    exit_code = 3


class OutputError(RlflowError):
    """A result cannot be written: the path is missing, read-only, a directory, or the input itself."""


def brief(what: object, most: int = 200) -> str:
    """What a sentence may quote of a text that somebody else wrote: one line of at most ``most`` characters."""
    text = " ".join(str(what).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
