"""Tasks done by the workers of a Ray cluster (extra ``[ray]``).

Each worker is an actor. An actor that dies, with its process or with its machine, is lost for good; its task goes to
another, and a new actor is asked for. One that cannot be placed yet (its machine is full, or gone) waits for its place
and keeps nobody waiting.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import rlflow
from rlflow.crew.task_list import TRIES, Crew, Hand, Make, TaskList, result_of
from rlflow.errors import RlflowError, UsageError

#: So many seconds without a worker, and the cluster is given up.
PATIENCE = 120.0
#: What a machine that joined under a name has, as Ray's resource of that name with this before it.
RESOURCE = "rlflow-device-"
#: Environment of every process of Ray. It reports nothing, and takes up its coming default without a warning. A busy
#: machine needs longer than Ray's 30 s to start what works for a sender.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120",
}  # fmt: skip


class RayCrew(Crew):
    """One worker for each core of the cluster ``address``, or for each machine that joined as ``device``.

    ``count``: at most so many. Raises :class:`RlflowError` where the cluster cannot be reached, and
    :class:`UsageError` where nobody joined as that device.
    """

    def __init__(self, make: Make, address: str = "ray", device: str | None = None, count: int | None = None) -> None:
        self._ray, self._mine = connected(address)
        self._make, self._device = make, device
        try:
            places = self._places()
            self.count = places if count is None else min(count, places)
            self._idle: list[Any] = []
            self._joining: dict[Any, Any] = {}  # by what it answers first: the worker
            self._failed = 0
            for _ in range(self.count):
                self._hire()
        except BaseException:
            self._leave()
            raise

    def as_done(
        self, tasks: Sequence[Any], begun: Callable[[int], None] | None = None
    ) -> Generator[tuple[int, Any], None, None]:
        """As a crew does."""
        waiting = TaskList(len(tasks))
        busy: dict[Any, tuple[Any, int]] = {}  # by what it will answer: the worker, and its task
        try:
            while waiting.left:
                while self._idle and (number := waiting.take()) is not None:
                    worker = self._idle.pop(0)
                    busy[worker.answer.remote(tasks[number])] = (worker, number)
                    if begun is not None:
                        begun(number)
                for answered in self._wait(busy):
                    if answered in self._joining:
                        self._join(answered)
                        continue
                    worker, number = busy.pop(answered)
                    answer, why = self._get(answered)
                    if answer is None:
                        self._hire()
                        waiting.lost(number, why)
                        continue
                    self._idle.append(worker)
                    waiting.done()
                    yield number, result_of(answer)
        finally:
            for worker, _ in busy.values():
                self._ray.kill(worker)
                self._hire()

    def close(self) -> None:
        """End the workers; the cluster stays, but for one that was started here."""
        if self._ray.is_initialized():
            for worker in (*self._idle, *self._joining.values()):
                self._ray.kill(worker)
        self._idle.clear()
        self._joining.clear()
        self._leave()

    def _leave(self) -> None:
        if self._mine:
            self._ray.shutdown()

    # --- workers ----------------------------------------------------------------------------------------------------

    def _places(self) -> int:
        """How many workers there is room for."""
        has = self._ray.cluster_resources()
        if self._device is None:
            return max(1, int(has.get("CPU", 1)))
        places = int(has.get(RESOURCE + self._device, 0))
        if places < 1:
            others = sorted(name.removeprefix(RESOURCE) for name in has if name.startswith(RESOURCE))
            raise UsageError(
                f"No worker of the Ray cluster joined as the device {self._device!r}; it has "
                f"{', '.join(map(repr, others)) or 'none'}. On that machine: rlflow worker --device {self._device} "
                "--join HOST:PORT."
            )
        return places

    def _hire(self) -> None:
        """Ask for one more worker."""
        needs = {} if self._device is None else {RESOURCE + self._device: 1}
        kind = self._ray.remote(num_cpus=1, max_restarts=0, resources=needs)(RayHand)
        worker = kind.remote(self._make, rlflow.__version__)
        self._joining[worker.ready.remote()] = worker

    def _join(self, first: Any) -> None:
        """A worker has answered for the first time, or never will."""
        worker = self._joining.pop(first)
        answer, why = self._get(first)
        if answer is not None:
            result_of(answer)
            self._failed = 0
            self._idle.append(worker)
            return
        self._failed += 1
        if self._failed >= TRIES:
            raise RlflowError(f"No worker of the Ray cluster can be started: {why}.")
        self._hire()

    def _wait(self, busy: dict[Any, Any]) -> list[Any]:
        ready, _ = self._ray.wait([*busy, *self._joining], num_returns=1, timeout=PATIENCE)
        if not ready and not busy:
            raise RlflowError(
                f"No worker of the Ray cluster was free for {PATIENCE:.0f} s; `ray status` shows what it waits for."
            )
        return list(ready)

    def _get(self, answered: Any) -> tuple[Any, str]:
        """The answer; ``None`` where the worker was lost, and why."""
        from ray import exceptions

        try:
            return self._ray.get(answered), ""
        except exceptions.RayTaskError as error:  # not a task's own error, which is an answer
            return (False, RlflowError(f"A worker of the Ray cluster failed: {_last_line(error)}")), ""
        except exceptions.RayError as error:
            return None, _last_line(error)


class RayHand:
    """What a worker of a Ray cluster is. ``version``: of the rlflow that sends tasks."""

    def __init__(self, make: Make, version: str) -> None:
        self._hand, self._version = Hand(make), version

    def ready(self) -> tuple[bool, Any]:
        """That it is there, and of the same version."""
        if rlflow.__version__ != self._version:
            return False, UsageError(
                f"A worker of the Ray cluster has rlflow {rlflow.__version__}, and this is {self._version}: they could "
                "find other results. Install the same version everywhere."
            )
        return True, None

    def answer(self, task: Any) -> tuple[bool, Any]:
        """As :class:`Hand` does."""
        return self._hand.answer(task)


def connected(address: str) -> tuple[Any, bool]:
    """Ray, connected to the cluster ``address`` (``ray``: this machine's, which is started where there is none), and
    whether it was this call that connected it.
    """
    os.environ.update(SETTINGS)
    if address != "ray":
        send_token()
    import ray

    if ray.is_initialized():
        return ray, False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address != "ray":
            ray.init(address=address, **quiet)
        else:
            try:
                ray.init(address="auto", **quiet)
            except ConnectionError:
                begin(address="local", include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise RlflowError(
            f"The Ray cluster {address!r} cannot be reached: {_last_line(error)}. Is its port open, are the "
            "versions of Ray and Python the same there, and has this machine its token (~/.ray/auth_token), if it asks "
            "for one?"
        ) from error
    return ray, True


def send_token() -> None:
    """Let Ray's client send the token of this machine, if it has one, from here on.

    A cluster that begins on a machine with a token asks for it; a client sends it only where it is told to.
    """
    kept = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if "RAY_AUTH_TOKEN" in os.environ or kept.is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


#: What Ray says where its parts did not find each other within its 30 s, as on a busy machine.
LATE = "timed out during startup"


def begin(**options: Any) -> None:
    """``ray.init`` for a cluster of this machine, tried again where Ray was too late. Raises ConnectionError."""
    import ray

    for attempt in range(TRIES):
        try:
            ray.init(**options)
            return
        except Exception as error:  # Ray has no kind of its own for this
            if LATE not in str(error):
                raise
            ray.shutdown()
            if attempt == TRIES - 1:
                raise ConnectionError(_last_line(error)) from error


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300].rstrip(".")
