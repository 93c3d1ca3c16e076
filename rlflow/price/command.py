"""Your own device as the clock: a shell command that takes a model and prints milliseconds.

    --measure-cmd 'ssh board run.sh {model}'

The command decides what a run is: it may copy the file, warm up, repeat and take a median. What is here starts it,
keeps others from the device meanwhile, ends it when it takes too long, reads the figure, and says in a sentence what
went wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlflow.errors import CostError, RuntimeCrashed, RuntimeRefused, RuntimeUnavailable, UsageError
from rlflow.files import ScratchFolder
from rlflow.frontends.storage import data_files
from rlflow.processes import started
from rlflow.runtime import ModelSource, Samples
from rlflow.specs import check_seconds

try:
    import fcntl
except ImportError:  # not a POSIX system: only this process's own threads keep apart
    fcntl = None  # type: ignore[assignment]

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE
)
_KEYS = ("ms", "median_ms", "latency_ms", "mean_ms")
_SHOWN = 200
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*")
MAX_ROUNDS = 200


@dataclass(frozen=True)
class DeviceCommand:
    """A command line with ``{model}`` where the path of an ONNX file goes; ``{slot}``, if present, becomes a number
    from 0 to ``jobs - 1``.

    The path is made of letters, digits and ``/._-`` only, so that it means the same to every shell on the way (``ssh``
    starts a second one): a file of another name is linked or copied, with its data files, under a name of ours.

    The last number on its standard output is the time of one run in milliseconds; or the last line is JSON: a number,
    a list of numbers (their median counts), or an object with one of the keys ``ms``, ``median_ms``, ``latency_ms``,
    ``mean_ms``. At most ``jobs`` commands run at a time, over all of this user's processes; each may take
    ``time_limit`` seconds.
    """

    command: str
    time_limit: float = 300.0
    jobs: int = 1

    def __post_init__(self) -> None:
        if "{model}" not in self.command:
            raise UsageError(
                f"The measuring command {self.command!r} does not say where the model goes; "
                "write {model} in its place, as in 'ssh board run.sh {model}'."
            )
        check_seconds(self.time_limit, "The time limit of the measuring command")
        if self.jobs < 1:
            raise UsageError(f"The measuring command may run {self.jobs} times at once; expected at least 1.")

    @property
    def name(self) -> str:
        """The command, cut to what a table can hold."""
        return self.command if len(self.command) <= 60 else self.command[:59] + "…"

    def milliseconds(self, path: str | os.PathLike[str]) -> float:
        """One answer of the command for the model in ``path``.

        Raises :class:`RuntimeCrashed` where it takes too long, :class:`RuntimeRefused` where it fails or prints no
        usable figure, :class:`RuntimeUnavailable` where the shell does not find it.
        """
        with self._slot() as slot, contextlib.ExitStack() as stack:
            code, output, errors = self._run(plain_path(os.fspath(path), stack), slot)
        if code == 127:
            raise RuntimeUnavailable(f"The measuring command was not found: {_last_line(errors) or self.command}")
        if code != 0:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
            said = _last_line(errors) or _last_line(output)
            raise RuntimeRefused(f"The measuring command {how}." + (f" Its last words: {said}" if said else ""))
        return _figure(output)

    def _run(self, path: str, slot: int) -> tuple[int, str, str]:
        line = self.command.replace("{model}", shlex.quote(path)).replace("{slot}", str(slot))
        # In a session of its own, so that a time-out ends what the shell has started, too; Ctrl-C is ours to handle.
        child = subprocess.Popen(
            line, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        started(child)
        try:
            output, errors = child.communicate(timeout=self.time_limit)
        except subprocess.TimeoutExpired as error:
            _end(child)
            raise RuntimeCrashed(
                f"The measuring command did not end within {self.time_limit:g} s; it was stopped.", timed_out=True
            ) from error
        except BaseException:
            _end(child)
            raise
        return child.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")

    @contextlib.contextmanager
    def _slot(self) -> Iterator[int]:
        """One of ``jobs`` places at the device; waits for one."""
        key = hashlib.blake2b(self.command.encode(), digest_size=8).hexdigest()
        while True:
            for slot in range(self.jobs):
                with _locked(f"{key}-{slot}") as mine:
                    if mine:
                        yield slot
                        return
            time.sleep(0.02)


def plain_path(path: str, stack: contextlib.ExitStack) -> str:
    """``path`` where no shell can misread it; else that of a stand-in, which is there until ``stack`` closes.

    Raises :class:`UsageError` where the temporary folder has such a name itself.
    """
    if _PLAIN.fullmatch(path):
        return path
    folder = stack.enter_context(ScratchFolder("rlflow-device-"))
    stand_in = os.path.join(folder, "model.onnx")
    if not _PLAIN.fullmatch(stand_in):
        raise UsageError(
            f"The temporary folder {folder!r} has a name that a shell could misread, so the measuring command cannot "
            "be given a file there; point TMPDIR to one of letters, digits and /._- only."
        )
    here = os.path.dirname(path)
    _stand_in(path, stand_in)
    for name in data_files(path):
        if os.path.isfile(os.path.join(here, name)):
            place = os.path.normpath(os.path.join(folder, name))
            if place.startswith(folder + os.sep):  # the model was admitted; still, nothing is written elsewhere
                os.makedirs(os.path.dirname(place), exist_ok=True)
                _stand_in(os.path.join(here, name), place)
    return stand_in


def _stand_in(path: str, place: str) -> None:
    if not os.path.exists(path):
        return  # the command says it better
    try:
        os.link(path, place)
    except OSError:  # another file system
        shutil.copyfile(path, place)


_held: dict[str, threading.Lock] = {}
_guard = threading.Lock()


@contextlib.contextmanager
def _locked(name: str) -> Iterator[bool]:
    """Whether the lock was free; held until the end of the block. Ends with the process, however that ends."""
    with _guard:
        mine = _held.setdefault(name, threading.Lock())
    if not mine.acquire(blocking=False):
        yield False
        return
    try:
        with contextlib.ExitStack() as stack:
            yield _lock_file(name, stack)
    finally:
        mine.release()


def _lock_file(name: str, stack: contextlib.ExitStack) -> bool:
    if fcntl is None:
        return True  # type: ignore[unreachable]
    user = os.getuid() if hasattr(os, "getuid") else 0
    path = os.path.join(tempfile.gettempdir(), f"rlflow-device-{user}-{name}.lock")
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    stack.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        kill_group = getattr(os, "killpg", None)  # absent outside POSIX
        if kill_group is None:
            child.kill()
        else:
            kill_group(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.communicate(timeout=5.0)


def _figure(output: str) -> float:
    """Milliseconds from what a command printed."""
    found = _from_json(output)
    if found is None:
        numbers = _NUMBER.findall(output)
        if not numbers:
            raise RuntimeRefused(
                f"The measuring command printed no number of milliseconds; {_shown(output)} "
                "The last number on its standard output counts."
            )
        found = float(numbers[-1])
    if not (math.isfinite(found) and found > 0):
        raise RuntimeRefused(f"The measuring command answered {found:g} milliseconds, which is no duration.")
    return found


def _from_json(output: str) -> float | None:
    """A figure where the whole output, or its last line, is JSON; ``None`` where it is plain text."""
    lines = [line for line in output.splitlines() if line.strip()]
    for text in (output, lines[-1] if lines else ""):
        try:
            value = json.loads(text)
        except ValueError:
            continue
        return _from_value(value, text)
    return None


def _from_value(value: Any, text: str) -> float:
    if isinstance(value, dict):
        key = next((key for key in _KEYS if key in value), None)
        value = value[key] if key is not None else None
    if isinstance(value, list) and value and all(map(_is_number, value)):
        return float(np.median(value))
    if _is_number(value):
        return float(value)
    raise RuntimeRefused(
        f"The measuring command printed JSON without a figure; {_shown(text)} Expected a number, a list of numbers, or "
        f"an object with one of the keys {', '.join(_KEYS)}."
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(output: str) -> str:
    last = _last_line(output)
    return f"its output ends with {last!r}." if last else "it printed nothing."


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_SHOWN] if lines else ""


class CommandSampler:
    """Times models by a :class:`DeviceCommand`: every answer is a process of its own on the device, so a block may be
    as short as one round. It ends with the round at hand when ``stop`` says so.
    """

    clock = "wall"
    afford_selection = True

    def __init__(
        self,
        device: DeviceCommand,
        models: Mapping[str, ModelSource] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.device = device
        self._stop = stop or (lambda: False)
        self._models = dict(models or {})
        self._folder = ScratchFolder("rlflow-device-")
        self._stack = contextlib.ExitStack()
        self._paths: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(device.jobs) if device.jobs > 1 else None

    def __enter__(self) -> CommandSampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._stack.close()
        self._folder.cleanup()

    @property
    def names(self) -> list[str]:
        return list(self._models)

    def screen(
        self, baseline: str, affordable: Callable[[float, float], bool] | None = None, seed: int = 0
    ) -> dict[str, str]:
        """Run the command once for every model; the sentences of those that fail. Raises :class:`CostError` where the
        baseline is one of them. Nothing is loaded here, so all candidates can be afforded.
        """
        dropped = {}
        for name in [baseline, *(name for name in self._models if name != baseline)]:
            try:
                self.add(name, self._models[name])
            except (RuntimeCrashed, RuntimeRefused) as error:
                if name == baseline:
                    raise CostError(f"The model to compare with cannot be timed: {error}") from error
                dropped[name] = str(error)
        return dropped

    def add(self, name: str, source: ModelSource) -> None:
        """Make a model known and time it once, which is not counted."""
        path = self._path(name, source)
        self.device.milliseconds(path)
        self._models[name], self._paths[name] = source, path

    def drop(self, name: str) -> None:
        """Forget a model and its file."""
        self._models.pop(name, None)
        path = self._paths.pop(name, None)
        if path is not None and os.path.dirname(path) == self._folder.name:
            Path(path).unlink(missing_ok=True)

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        """Rounds over the named models in random order until ``seconds`` are over or it is to stop, at least one."""
        rng = np.random.default_rng(seed)
        deadline = time.perf_counter() + seconds
        rows: list[np.ndarray] = []
        while not rows or (time.perf_counter() < deadline and len(rows) < MAX_ROUNDS and not self._stop()):
            order = rng.permutation(len(names))
            paths = [self._paths[names[index]] for index in order]
            times = (self._pool.map if self._pool else map)(self.device.milliseconds, paths)
            row = np.empty(len(names))
            row[order] = list(times)
            rows.append(row)
        matrix = np.array(rows)
        return Samples(matrix, matrix, (1,) * len(names))

    def _path(self, name: str, source: ModelSource) -> str:
        if not isinstance(source, (bytes, bytearray, memoryview)):
            return plain_path(os.path.abspath(os.fspath(source)), self._stack)
        plain = re.sub(r"[^A-Za-z0-9_.]+", "-", name)
        digest = hashlib.blake2b(bytes(source), digest_size=6).hexdigest()
        path = os.path.join(self._folder.name, f"{plain}-{digest}.onnx")
        Path(path).write_bytes(bytes(source))
        return path
