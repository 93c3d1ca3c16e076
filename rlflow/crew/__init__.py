"""Who does tasks that do not depend on each other: this process, other processes of this machine, or a Ray cluster.

>>> from functools import partial
>>> from rlflow.crew import Workers
>>> with Workers.parse("4").crew(partial(make_worker, model)) as crew:
...     results = crew.in_order(tasks)

``make()`` runs once where the work is done and returns the function that does a task; both are sent there, so they are
a module's own functions or classes, or :class:`functools.partial` of one. If a worker is lost, another one does again
what it was doing. So results depend on the tasks alone, not on who did them or who died.
"""

from __future__ import annotations

from rlflow.crew.task_list import Crew, Make
from rlflow.crew.workers import Workers

__all__ = ["Crew", "Make", "Workers"]
