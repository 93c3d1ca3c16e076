"""Tasks done on this machine."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import wait
from typing import Any

from rlflow.crew.task_list import Crew, Hand, Make, TaskList, result_of
from rlflow.spawning import safe_context


class HereCrew(Crew):
    """This process, one task after the other."""

    count = 1

    def __init__(self, make: Make) -> None:
        self._make = make
        self._do: Callable[[Any], Any] | None = None

    def as_done(
        self, tasks: Sequence[Any], begun: Callable[[int], None] | None = None
    ) -> Generator[tuple[int, Any], None, None]:
        """As a crew does."""
        self._do = self._do or self._make()
        for number, task in enumerate(tasks):
            if begun is not None:
                begun(number)
            yield number, self._do(task)


class ProcessCrew(Crew):
    """``count`` processes of this machine. One that dies is replaced."""

    def __init__(self, make: Make, count: int) -> None:
        self.count, self._make = count, make
        self._context = safe_context()
        self._idle = [self._started() for _ in range(count)]

    def as_done(
        self, tasks: Sequence[Any], begun: Callable[[int], None] | None = None
    ) -> Generator[tuple[int, Any], None, None]:
        """As a crew does."""
        waiting = TaskList(len(tasks))
        busy: dict[Any, tuple[Any, int]] = {}  # by pipe: the process, and its task
        try:
            while waiting.left:
                self._hand_out(tasks, waiting, busy, begun)
                ready: list[Any] = wait(list(busy))
                for pipe in ready:
                    process, number = busy.pop(pipe)
                    try:
                        answer = pipe.recv()
                    except (EOFError, OSError):
                        self._idle.append(self._replaced(process, pipe))
                        waiting.lost(number, f"exit code {process.exitcode}")
                        continue
                    self._idle.append((process, pipe))
                    waiting.done()
                    yield number, result_of(answer)
        finally:
            self._idle += [self._replaced(process, pipe) for pipe, (process, _) in busy.items()]

    def close(self) -> None:
        """End the processes."""
        for process, pipe in self._idle:
            _end(process, pipe)
        self._idle.clear()

    def _hand_out(
        self,
        tasks: Sequence[Any],
        waiting: TaskList,
        busy: dict[Any, tuple[Any, int]],
        begun: Callable[[int], None] | None,
    ) -> None:
        while self._idle and (number := waiting.take()) is not None:
            process, pipe = self._idle.pop(0)
            busy[pipe] = (process, number)
            try:
                pipe.send(tasks[number])
            except OSError:  # it died while it had nothing to do
                busy.pop(pipe)
                self._idle.append(self._replaced(process, pipe))
                waiting.lost(number, f"exit code {process.exitcode}")
                continue
            if begun is not None:
                begun(number)

    def _started(self) -> tuple[Any, Any]:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(there, self._make), daemon=True)
        process.start()
        there.close()
        return process, here

    def _replaced(self, process: Any, pipe: Any) -> tuple[Any, Any]:
        _end(process, pipe, at_once=True)
        return self._started()


def _end(process: Any, pipe: Any, at_once: bool = False) -> None:
    pipe.close()
    if at_once:
        process.kill()
    process.join(5)
    if process.is_alive():
        process.kill()
        process.join(5)


def _serve(pipe: Any, make: Make) -> None:
    """A worker's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the sender's to handle
    hand = Hand(make)
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(hand.answer(task))
