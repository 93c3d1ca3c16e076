"""Everything that reads a file, given files that nobody would write: no crash, no hang, no exception but ours.

    python tests/fuzz/driver.py [TARGET ...] [--seconds 60] [--seed 0] [--findings build/fuzz] [--corpus FOLDER]

A target's seeds are mutated, in structure where they have one and by bytes, and read in a child process under limits of
memory and time; a child serves many inputs, so that starting it costs little. A finding (the input that the child died
of, was too long with, or raised something else than :class:`RlflowError` for) is saved as a file and printed, one for
each place in the code. Exit status 1 where there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))
from targets import TARGETS, Target

from rlflow.errors import RlflowError

#: What an input may take: seconds of the clock, and bytes beyond those of the interpreter.
INPUT_SECONDS, MEMORY = 5.0, 1 << 30
#: On a busy machine the clock runs ahead of the processor.
_PATIENCE = 4
_PER_CHILD = 200
_PARENTS = 64


def mutated(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """A few random changes: bits, bytes, runs repeated or cut, numbers at their limits, pieces of other seeds."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        at = random.randrange(len(out) + 1)
        length = random.choice((1, 2, 4, 16, 64, random.randrange(len(out) + 1)))
        kind = random.randrange(8)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << random.randrange(8)
        elif kind == 1 and out:
            out[at % len(out)] = random.randrange(256)
        elif kind == 2:
            del out[at : at + length]
        elif kind == 3:
            out[at:at] = out[at : at + length] * random.choice((1, 2, 50))
        elif kind == 4:
            out[at:at] = random.choice(_WORDS)
        elif kind == 5:
            out[at : at + length] = random.choice(_WORDS)
        elif kind == 6 and others:
            other = random.choice(others)
            start = random.randrange(len(other) + 1)
            out[at:at] = other[start : start + length]
        else:
            del out[at:]
    return bytes(out[: 1 << 20])


_WORDS = [
    b"\x00", b"\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x08", b"-1", b"0", b"1e999",
    b"NaN", b"null", b"true", b"[]", b"{}", b'""', b"9" * 30, b"9" * 5000, b"\\ud800", b"\xed\xa0\x80", b"(" * 300,
    b"[" * 3000, b"not " * 300, b"../../etc/passwd", b"a\x00b", b"?x", b"?x...", b":99999999999",
]  # fmt: skip


def inputs(target: Target, random: Random, seeds: Sequence[bytes]) -> Iterator[bytes]:
    """The seeds themselves, then mutants without end."""
    yield from seeds
    pool = list(seeds)
    while True:
        seed = random.choice(pool)
        change = target.structured if target.structured is not None and random.random() < 0.5 else None
        made = None
        if change is not None:
            with contextlib.suppress(Exception):  # the seed is itself a mutant, and no longer has a structure
                made = change(seed, random)
        made = mutated(seed, pool, random) if made is None else made
        if random.random() < 0.02:  # mutants of mutants
            pool = [*seeds, *pool[-_PARENTS:], made]
        yield made


# -- the child


def serve(target: Target, requests: int, answers: int) -> None:
    """Reads inputs (4 bytes of length, then the data) and answers each with a line: empty, or what it raised."""
    warnings.simplefilter("ignore")
    warm = target.warm()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(requests, "rb") as stream:
        os.write(answers, b"ready\n")
        while len(head := stream.read(4)) == 4:
            data = stream.read(int.from_bytes(head, "big"))
            os.write(answers, _outcome(target, data, warm).encode() + b"\n")


def _outcome(target: Target, data: bytes, warm: object) -> str:
    try:
        target.read(data, warm)
    except RlflowError as error:
        text = str(error)
        return "refused" if len(text) < 20_000 else f"a sentence of {len(text)} characters"
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "rlflow" in frame.filename]
        last = frames[-1] if frames else None
        place = "" if last is None else f" at {Path(last.filename).name}:{last.lineno} ({last.name})"
        return f"{type(error).__name__}{place}: {' '.join(repr(str(error)).split())[:160]}"
    return "read"


class Child:
    """A process that reads inputs until it dies."""

    def __init__(self, target: Target) -> None:
        ours, theirs = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _in_child(target, ours, theirs)
        os.close(ours[0])
        os.close(theirs[1])
        self._to, self._from, self._left = ours[1], theirs[0], b""
        self.served = 0
        self._line(60.0)

    def ask(self, data: bytes) -> str:
        """What came of an input: ``read``, ``refused``, or a finding in a line."""
        self.served += 1
        try:
            _write_all(self._to, len(data).to_bytes(4, "big") + data)
            return self._line(INPUT_SECONDS * _PATIENCE)
        except TimeoutError:
            return f"no answer within {INPUT_SECONDS * _PATIENCE:g} s"
        except (EOFError, BrokenPipeError):
            _, status = os.waitpid(self.pid, 0)
            self.pid = -1
            code = os.waitstatus_to_exitcode(status)
            return f"the process died ({signal.Signals(-code).name if code < 0 else f'status {code}'})"

    def _line(self, seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._left:
            if not select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError
            part = os.read(self._from, 1 << 16)
            if not part:
                raise EOFError
            self._left += part
        line, self._left = self._left.split(b"\n", 1)
        return line.decode("utf-8", "replace")

    def close(self) -> None:
        for handle in (self._to, self._from):
            os.close(handle)
        if self.pid > 0:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _in_child(target: Target, ours: tuple[int, int], theirs: tuple[int, int]) -> None:
    os.close(ours[1])
    os.close(theirs[0])
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    try:
        serve(target, ours[0], theirs[1])
    finally:
        os._exit(0)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


# -- the run


def fuzz(
    target: Target,
    seconds: float,
    seed: int,
    corpus: Path | None,
    found: Callable[[str, bytes], None],
    most: int | None = None,
) -> Counter[str]:
    """Reads inputs for so long, ``most`` at most; how many were read, refused, and found wanting."""
    random = Random(f"{target.name} {seed}")
    counts: Counter[str] = Counter()
    seeds = [*target.seeds(), *target.outside(corpus)] if corpus is not None else target.seeds()
    places: set[str] = set()
    with contextlib.suppress(Exception):
        target.read(seeds[0], target.warm())  # imports what the children then have
    deadline = time.monotonic() + seconds
    child: Child | None = None
    for data in inputs(target, random, seeds):
        if time.monotonic() > deadline or (most is not None and counts.total() >= most):
            break
        if child is None or child.served >= _PER_CHILD or child.pid < 0:
            if child is not None:
                child.close()
            child = Child(target)
        outcome = child.ask(data)
        if outcome in ("read", "refused"):
            counts[outcome] += 1
            continue
        counts["findings"] += 1
        if outcome.startswith("no answer"):
            child.close()
            child = None
        place = outcome.split(": ")[0]
        if place not in places:
            places.add(place)
            found(outcome, data)
    if child is not None:
        child.close()
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target (default: 60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--corpus", type=Path, default=Path("../shared/data"), help="more seeds, where it is there")
    given = parser.parse_args(arguments)
    unknown = set(given.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; they are {', '.join(TARGETS)}")
    bad = 0
    with tempfile.TemporaryDirectory(prefix="rlflow-fuzz-") as folder:
        tempfile.tempdir = folder  # what the children make goes with it
        for name in given.targets or TARGETS:
            target = TARGETS[name]
            reason = target.missing()
            if reason is not None:
                print(f"{name}: skipped, {reason}")
                continue
            bad += _run(target, given)
    return 1 if bad else 0


def _run(target: Target, given: argparse.Namespace) -> int:
    number = 0

    def found(outcome: str, data: bytes) -> None:
        nonlocal number
        number += 1
        given.findings.mkdir(parents=True, exist_ok=True)
        path = given.findings / f"{target.name}-{given.seed}-{number}"
        path.write_bytes(data)
        print(f"{target.name}: {outcome}\n    saved as {path}", flush=True)

    began = time.monotonic()
    corpus = given.corpus if given.corpus.is_dir() else None
    counts = fuzz(target, given.seconds, given.seed, corpus, found)
    print(
        f"{target.name}: {sum(counts.values())} inputs in {time.monotonic() - began:.0f} s: {counts['read']} read, "
        f"{counts['refused']} refused, {counts['findings']} findings in {number} places",
        flush=True,
    )
    return number


if __name__ == "__main__":
    sys.exit(main())
