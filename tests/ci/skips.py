"""Which tests were skipped, and whether they had to be: ``--skips FILE`` writes the list, this file judges it.

    python tests/ci/skips.py build/skips-base.json --in base --again build/again.txt
    python tests/ci/skips.py build/skips-extras.json --in extras

Every reason for a skip is in ``REASONS``, with the environments that may have it; any other fails. ``--again`` writes
the tests that were skipped for want of an extra, one a line, as pytest takes them behind ``@``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Reason:
    """One kind of reason: how its sentence reads, and where it may stand.

    ``base``: the environment of ``make test``; ``extras``: that of ``make test-extras``, which has all but the
    large ones.
    """

    name: str
    pattern: str
    base: bool = True
    extras: bool = True


REASONS = (
    Reason("an extra", r"(torch|onnxscript) is not installed|could not import '(torch|gymnasium|tensorboard)'|"
           r"rlflow\[(rl|torch|tuner|ray)\]|"
           r"[Gg]ymnasium is not installed|needs? (PyTorch|torch|gymnasium)", extras=False),
    Reason("GPU", r"no GPU|needs a GPU|CUDA"),
    Reason("OpenVINO", r"[Oo]pen[Vv][Ii][Nn][Oo]"),
    Reason("outside data", r"the outside data|\.\./shared"),  # files of other projects, not part of a clone
    Reason("runtime", r"the runtime has no kernel for the source"),  # a rule on a type that ONNX Runtime lacks
    Reason("processor", r"this processor's ONNX Runtime has no blocked layout"),
)  # fmt: skip
EXTRA = REASONS[0].name


@dataclass(eq=False)
class Skips:
    """What a run of pytest did, as it happens: the controller of a parallel run hears of every report."""

    path: Path
    ran: int = 0
    skipped: dict[str, str] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped:
            self.skipped[report.nodeid] = _why(report.longrepr)
        elif report.when == "call":
            self.ran += 1

    def pytest_collectreport(self, report: Any) -> None:
        if report.skipped:
            self.skipped[report.nodeid] = _why(report.longrepr)

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"ran": self.ran, "skipped": self.skipped}, indent=1), encoding="utf-8")


def _why(longrepr: Any) -> str:
    text = longrepr[2] if isinstance(longrepr, (tuple, list)) else str(longrepr)
    return str(text).removeprefix("Skipped: ")


def reason_of(why: str) -> Reason | None:
    """The kind that a sentence belongs to."""
    return next((reason for reason in REASONS if re.search(reason.pattern, why)), None)


def judged(skipped: dict[str, str], environment: str) -> tuple[Counter[str], list[str], list[str]]:
    """How often each reason was given; the tests that another environment can run; what had to run here."""
    counts: Counter[str] = Counter()
    again, wrong = [], []
    for test, why in skipped.items():
        reason = reason_of(why)
        counts["no known reason" if reason is None else reason.name] += 1
        if reason is None or not getattr(reason, environment):
            wrong.append(f"{test}: {why}")
        elif not reason.extras:
            again.append(test)
    return counts, again, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--in", dest="environment", choices=("base", "extras"), required=True)
    parser.add_argument("--again", type=Path)
    options = parser.parse_args()
    found = json.loads(options.file.read_text(encoding="utf-8"))
    counts, again, wrong = judged(found["skipped"], options.environment)
    if options.again is not None:
        options.again.write_text("".join(f"{test}\n" for test in again), encoding="utf-8")
    why = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    print(f"{options.environment}: {found['ran']} run, {sum(counts.values())} skipped{f' ({why})' if why else ''}")
    for line in wrong:
        print(f"{options.environment}: must not be skipped here: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
