"""What rlflow knows about this machine apart from prices, found out once in a run of the tests.

To learn it takes as long as ten tests. Tests of the learning itself begin with an empty database; tests of what comes
after it begin with a copy of this one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

#: The workers of a parallel run inherit the name of their first process's folder.
_FOLDER = "RLFLOW_TEST_LEARNT"


def share() -> None:
    """Make the folder of this run, if no process above has made one."""
    if _FOLDER not in os.environ:
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="rlflow-test-learnt-")
        atexit.register(shutil.rmtree, os.environ[_FOLDER], ignore_errors=True)


def learnt(database: Path) -> Path:
    """``database``, made as a price database without a price on a machine that is known."""
    database.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_kept(Path(os.environ[_FOLDER])), database)
    return database


def _kept(folder: Path) -> Path:
    """The database that is copied. One process makes it, and the others wait."""
    import fcntl

    from rlflow.price.measured import OnnxRuntimeCost

    kept, partial = folder / "prices.sqlite", folder / "partial.sqlite"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with OnnxRuntimeCost(database=partial) as cost:
                cost._machine.calibrated()
            partial.rename(kept)
    return kept
