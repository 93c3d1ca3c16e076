"""Tasks, who does them, and what happens to those whose worker was lost."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any

from rlflow.errors import RlflowError

#: Makes the function that does a task; called once by each worker.
Make = Callable[[], Callable[[Any], Any]]
#: How often a task is begun: one that ends its worker each time would else never end.
TRIES = 3


class TaskList:
    """Which of ``count`` tasks wait, by number, and which were lost."""

    def __init__(self, count: int) -> None:
        #: Tasks without a result.
        self.left = count
        self._waiting = deque(range(count))
        self._lost: Counter[int] = Counter()

    def take(self) -> int | None:
        """The next task that nobody has; ``None`` where there is none."""
        return self._waiting.popleft() if self._waiting else None

    def done(self) -> None:
        """A task has its result."""
        self.left -= 1

    def lost(self, task: int, why: str) -> None:
        """A task waits again, before all others. Raises :class:`RlflowError` for one that was lost ``TRIES`` times."""
        self._lost[task] += 1
        if self._lost[task] >= TRIES:
            raise RlflowError(
                f"Task {task + 1} ended its worker {TRIES} times ({why}); use fewer workers if memory ran out."
            )
        self._waiting.appendleft(task)


class Crew(ABC):
    """Does tasks, ``count`` at a time. Use it as a context manager, or ``close`` it."""

    count: int

    @abstractmethod
    def as_done(
        self, tasks: Sequence[Any], begun: Callable[[int], None] | None = None
    ) -> Generator[tuple[int, Any], None, None]:
        """The number and the result of each task, in the order in which they end; ``begun`` hears of each beginning.

        Raises what a task raised, as :class:`RlflowError` where it was none. Whoever leaves before the end gives up
        what is under way.
        """

    def in_order(self, tasks: Sequence[Any]) -> list[Any]:
        """The results, in the order of the tasks."""
        found: dict[int, Any] = {}
        with closing(self.as_done(tasks)) as ended:
            found.update(ended)
        return [found[number] for number in range(len(tasks))]

    def close(self) -> None:
        """End the workers."""
        return

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Hand:
    """Does tasks where it was sent; ``make`` is called at the first one, so that its errors are answers too."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._do: Callable[[Any], Any] | None = None

    def answer(self, task: Any) -> tuple[bool, Any]:
        """Whether it went well, and the result or the error."""
        try:
            if self._do is None:
                self._do = self._make()
            return True, self._do(task)
        except RlflowError as error:
            return False, error
        except Exception as error:  # noqa: BLE001 - whatever it is, the sender has to hear of it
            last = traceback.extract_tb(error.__traceback__)[-1]
            return False, RlflowError(f"A worker failed: {type(error).__name__} in {last.name}: {error}")


def result_of(answer: tuple[bool, Any]) -> Any:
    """The result in an answer; raises the error in it."""
    good, found = answer
    if not good:
        raise found
    return found
