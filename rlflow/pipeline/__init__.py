"""The stages between a model and a faster one: load → search → race → check → write.

Each stage is a function from the values of the earlier ones to a value of its own; what they open is in one
:class:`Context`, what the user chose in one :class:`rlflow.Options`. Every stage may end the run with one typed
exception; the model that was passed in is never changed, and nothing is written unless all stages agree.
"""

from __future__ import annotations

from typing import Any

from rlflow.pipeline.account import report
from rlflow.pipeline.checking import check
from rlflow.pipeline.context import Context
from rlflow.pipeline.ends import check_at_ends, race_at_ends
from rlflow.pipeline.kernels import with_kernels
from rlflow.pipeline.loading import load
from rlflow.pipeline.racing import Raced, race
from rlflow.pipeline.searching import search
from rlflow.pipeline.writing import OptimizeResult, write

__all__ = ["Context", "OptimizeResult", "run"]


def run(model: Any, context: Context) -> OptimizeResult:
    """All stages in order."""
    context.preflight(model)
    loaded = load(model, context)
    if loaded.library is None:
        found, raced = None, Raced(f"the model is carried through as it came: {loaded.imported.passthrough}")
    else:
        context.settle_sizes(loaded)
        with context.blaming_guesses():
            found = search(loaded, context)
            raced = race_at_ends(loaded, race(loaded, found, context), context)
    with context.blaming_guesses():
        checked = check(loaded, raced, context)
        check_at_ends(loaded, raced, context)
    written = with_kernels(loaded, raced, write(loaded, raced, context), context)
    return OptimizeResult(report(loaded, found, raced, checked, written, context), written.make)
