"""``$TASO_HOME/graph_subst.pb``: the rules that TASO read there, used beside ours once they are proved."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from rlflow.errors import RlflowError

FILE = "graph_subst.pb"


def home_file() -> Path | None:
    """The rule file that TASO would read, if TASO_HOME is set and holds one."""
    home = os.environ.get("TASO_HOME")
    path = Path(home) / FILE if home else None
    return path if path is not None and path.is_file() else None


def home_rules(stacklevel: int = 4) -> Any:
    """Our rules, with those of the file in TASO_HOME that are true; ``None`` (ours alone) without such a file.

    Each rule of the file is judged once and remembered. False ones are left out, with a warning that names them; a
    file that cannot be read is a warning too, never an error: nothing here needs TASO_HOME.
    """
    path = home_file()
    if path is None:
        return None
    try:
        return _together(path, stacklevel)
    except RlflowError as error:
        warnings.warn(f"taso: the rules in {path} are not used: {error}", stacklevel=stacklevel)
        return None


def _together(path: Path, stacklevel: int) -> Any:
    from rlflow.rewrite import RuleLibrary
    from rlflow.synthesis import load_rules
    from rlflow.synthesis.importers import ForeignRulesWarning, read_foreign, use_foreign

    found = use_foreign(read_foreign(path, "taso-pb"), path)
    if found.remark is not None:
        warnings.warn(
            f"taso: {found.remark} `rlflow rules import` lists them all; unset TASO_HOME to be rid of this notice.",
            ForeignRulesWarning,
            stacklevel=stacklevel,
        )
    ours = load_rules()
    return RuleLibrary([*ours.values(), *(rule for rule in found.known if rule.name not in ours), *found.new])
