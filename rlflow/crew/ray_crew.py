"""Tasks done by the workers of a Ray cluster (extra ``[ray]``).

Each worker is an actor in a place of its own: a placement group of Ray, which holds what the worker needs. An actor
that dies, with its process or with its machine, is lost for good; its task goes to another, and a new actor starts in
its place. One whose place is not to be had yet (its machine is full, or gone) waits for it and keeps nobody waiting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import rlflow
from rlflow.crew.task_list import TRIES, Crew, Hand, Make, TaskList, result_of
from rlflow.errors import RlflowError, UsageError

#: So many seconds without a place for any worker, and the cluster is given up.
PATIENCE = 120.0
#: So many seconds for a worker that has a place to start there. A busy machine takes minutes.
STARTING = 900.0
#: How often a crew without a working worker looks at its places, in seconds.
_LOOK = 5.0
#: What a machine that joined under a name has, as Ray's resource of that name with this before it.
RESOURCE = "rlflow-device-"
#: Environment of every process of Ray. It reports nothing, and takes up its coming default without a warning. A busy
#: machine needs longer than Ray's 30 s to start what works for a sender, and than its 60 s to start a worker's process,
#: which it would else end and begin again, in vain.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120", "RAY_worker_register_timeout_seconds": "600",
}  # fmt: skip


class _Worker(NamedTuple):
    """An actor, and the placement group that it runs in."""

    hand: Any
    place: Any


class RayCrew(Crew):
    """One worker for each core of the cluster ``address``, or for each machine that joined as ``device``.

    ``count``: at most so many. Raises :class:`RlflowError` where the cluster cannot be reached, and
    :class:`UsageError` where nobody joined as that device.
    """

    def __init__(self, make: Make, address: str = "ray", device: str | None = None, count: int | None = None) -> None:
        self._ray, self._mine = connected(address)
        self._make, self._device = make, device
        self._idle: list[_Worker] = []
        self._joining: dict[Any, _Worker] = {}  # by what it answers first
        self._reserved: list[Any] = []
        self._failed = 0
        try:
            places = self._places()
            self.count = places if count is None else min(count, places)
            for _ in range(self.count):
                self._reserved.append(self._ray.util.placement_group([self._needs]))
                self._hire(self._reserved[-1])
        except BaseException:
            self.close()
            raise

    def as_done(
        self, tasks: Sequence[Any], begun: Callable[[int], None] | None = None
    ) -> Generator[tuple[int, Any], None, None]:
        """As a crew does."""
        waiting = TaskList(len(tasks))
        busy: dict[Any, tuple[_Worker, int]] = {}  # by what it will answer: the worker, and its task
        try:
            while waiting.left:
                while self._idle and (number := waiting.take()) is not None:
                    worker = self._idle.pop(0)
                    busy[worker.hand.answer.remote(tasks[number])] = (worker, number)
                    if begun is not None:
                        begun(number)
                for answered in self._wait(busy):
                    if answered in self._joining:
                        self._join(answered)
                        continue
                    worker, number = busy.pop(answered)
                    answer, why = self._get(answered)
                    if answer is None:
                        self._hire(worker.place)
                        waiting.lost(number, why)
                        continue
                    self._idle.append(worker)
                    waiting.done()
                    yield number, result_of(answer)
        finally:
            for worker, _ in busy.values():
                self._ray.kill(worker.hand)
                self._hire(worker.place)

    def close(self) -> None:
        """End the workers; the cluster stays, but for one that was started here."""
        if self._ray.is_initialized():
            for worker in (*self._idle, *self._joining.values()):
                self._ray.kill(worker.hand)
            for place in self._reserved:
                self._ray.util.remove_placement_group(place)
        self._idle.clear()
        self._joining.clear()
        self._reserved.clear()
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

    @property
    def _needs(self) -> dict[str, float]:
        """Of Ray's resources, what one worker needs."""
        return {"CPU": 1.0} if self._device is None else {"CPU": 1.0, RESOURCE + self._device: 1.0}

    def _hire(self, place: Any) -> None:
        """Ask for one more worker, in ``place``."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        needs = {name: amount for name, amount in self._needs.items() if name != "CPU"}
        there = PlacementGroupSchedulingStrategy(placement_group=place)
        kind = self._ray.remote(num_cpus=1, max_restarts=0, resources=needs, scheduling_strategy=there)(RayHand)
        worker = _Worker(kind.remote(self._make, rlflow.__version__), place)
        self._joining[worker.hand.ready.remote()] = worker

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
        self._hire(worker.place)

    def _wait(self, busy: dict[Any, Any]) -> list[Any]:
        """The answers that are there next. A worker at a task may take as long as it likes; without one, somebody has
        to get a place, and to start there. Raises :class:`RlflowError` where neither happens for long.
        """
        since, placed = time.monotonic(), 0
        while True:
            ready, _ = self._ray.wait([*busy, *self._joining], num_returns=1, timeout=min(_LOOK, PATIENCE, STARTING))
            if ready or busy:
                return list(ready)
            if (now := self._placed()) != placed:
                since, placed = time.monotonic(), now
            if not placed and time.monotonic() - since >= PATIENCE:
                raise RlflowError(
                    f"The Ray cluster had no place for a worker for {PATIENCE:g} s: others use it, or its machines "
                    "are gone. `ray status` shows what it waits for."
                )
            if placed and time.monotonic() - since >= STARTING:
                raise RlflowError(
                    f"No worker of the Ray cluster started within {STARTING:g} s in the place that it had; the logs "
                    "of Ray on its machine say why (/tmp/ray/session_latest/logs)."
                )

    def _placed(self) -> int:
        """How many workers that have not answered yet have their places."""
        states = (self._ray.util.placement_group_table(worker.place)["state"] for worker in self._joining.values())
        return sum(state == "CREATED" for state in states)

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
