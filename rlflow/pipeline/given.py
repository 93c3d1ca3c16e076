"""Before the work starts: are the files that the user names there, and what the strategy needs?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlflow.errors import ModelError, UsageError
from rlflow.files import check_readable
from rlflow.rulesets import named_files
from rlflow.search import require_ready

if TYPE_CHECKING:
    from rlflow.options import Options

__all__ = ["check_given"]


def check_given(model: Any, options: Options) -> None:
    """Raises a :class:`rlflow.errors.RlflowError` of the kind that the work itself would end with."""
    if isinstance(model, (str, os.PathLike)):
        check_readable(model, "The model", ModelError)
    for path in named_files(options.rules):
        check_readable(path, "The rule file", UsageError)
    if options.input_data is not None and not isinstance(options.input_data, Mapping):
        from rlflow.equivalence import load_input_data

        data = options.input_data
        load_input_data([data] if isinstance(data, (str, os.PathLike)) else data)
    options.limits.require_end(options.clocked)
    require_ready(options.strategy)
