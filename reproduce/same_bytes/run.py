"""Does another checkout write the same bytes? Zoo models optimised by both, with a formula for prices and a fixed seed.

    python reproduce/same_bytes/run.py --other CHECKOUT [--models NAME ...] [--out FILE] [--resume]

CHECKOUT has its core built (`make install` there). Both read the same exported file, with `--cost analytic --seed 7
--budget 500c --threads 1`, so that nothing depends on a clock. Models may be written as for every verb
(`bert-base?seq=64`). Exit status 1 where a pair of files differs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "common"))

import machine  # from the folder "common"
import results
import sweep

MODELS = (
    "squeezenet1.1", "resnet-18", "resnet-50", "resnext-50", "inception-v3", "nasnet-a", "densenet-121", "mobilenet-v2",
    "shufflenet-v2", "repvgg-a0", "unet", "fpn-resnet18", "nasrnn", "bert6-classifier", "vit-base",
    "llama-decoder-step", "transducer", "dalle-decoder", "taso/nasrnn", "taso/resnet50",
)  # fmt: skip
OPTIONS = ("--cost", "analytic", "--seed", "7", "--budget", "500c", "--threads", "1", "--quiet", "--fresh")
Row = dict[str, Any]


def main() -> int:
    options = arguments()
    command = ["python", "reproduce/same_bytes/run.py", "--other", "CHECKOUT"]
    kept = results.Results(options.out, command, resume=options.resume, dirty=options.dirty)
    for name in options.models:
        if not kept.have(name):
            kept.add({"kind": "pair", "key": name, "other": commit_of(options.other), **pair(name, options.other)})
    print(kept.about())
    print("\n".join(table(kept.rows)))
    return 0 if all(same(row) for row in kept.rows) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, metavar="CHECKOUT", help="its core is built")
    parser.add_argument("--models", nargs="*", default=list(MODELS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "latest.jsonl")
    parser.add_argument("--resume", action="store_true", help="keep the models that the file already has")
    results.add_options(parser)
    found = parser.parse_args()
    if not (found.other / "rlflow" / "__init__.py").is_file():
        parser.error(f"{found.other} is no checkout of rlflow: there is no rlflow/__init__.py in it")
    found.other = found.other.resolve()
    return found


def pair(name: str, other: Path) -> Row:
    """Both files' digests, and the seconds they took."""
    with tempfile.TemporaryDirectory(prefix="rlflow-same-bytes-") as folder:
        source = Path(folder) / "model.onnx"
        sweep.run([*sweep.CLI, "zoo", "export", name, "-o", os.fspath(source)])
        here, there = (optimised(checkout, source) for checkout in (machine.ROOT, other))
    return {"here": here, "there": there}


def optimised(checkout: Path, source: Path) -> Row:
    """What a checkout's command writes; its modules come before the installed ones."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        target = Path(folder) / "out.onnx"
        found = {**os.environ, "PYTHONPATH": os.fspath(checkout), "RLFLOW_CACHE": os.fspath(Path(folder) / "cache")}
        command = [*sweep.CLI, "optimize", os.fspath(source), "-o", os.fspath(target), *OPTIONS]
        started = time.perf_counter()
        status = subprocess.run(command, env=found, cwd=checkout, stdout=sys.stderr).returncode
        seconds = round(time.perf_counter() - started, 1)
        digest = hashlib.sha256(target.read_bytes()).hexdigest() if target.exists() else None
    return {"sha256": digest, "exit_status": status, "seconds": seconds}


def commit_of(checkout: Path) -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=checkout, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def same(row: Row) -> bool:
    return row["here"]["sha256"] is not None and row["here"]["sha256"] == row["there"]["sha256"]


def table(rows: list[Row]) -> Iterator[str]:
    yield from results.heading("model", "the other", "its SHA-256", "here", "the same")
    for row in rows:
        digests = [(row[place]["sha256"] or "none")[:16] for place in ("there", "here")]
        yield f"| {row['key']} | {row['other']} | {digests[0]} | {digests[1]} | {'yes' if same(row) else 'NO'} |"
    yield ""
    yield f"{sum(map(same, rows))} of {len(rows)} the same."


if __name__ == "__main__":
    sys.exit(main())
