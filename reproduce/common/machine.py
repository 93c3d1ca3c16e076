"""The machine header: with it, a figure can be judged by where it was taken (see results.py)."""

from __future__ import annotations

import datetime
import os
import platform
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: What Linux calls instructions, and what people do; the widest first.
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sve": "SVE", "asimd": "NEON"}
#: Height and width of the product that is timed: its operands stay in the second-level cache.
_PRODUCT = 256
PACKAGES = ("rlflow", "numpy", "onnx", "onnx-ir", "onnxruntime")


def header(command: list[str]) -> dict[str, Any]:
    """What ran where and when; ``command`` is the one that makes the file again. Of an absolute path it keeps the last
    name: where a folder lies is this machine's own.
    """
    return {
        "kind": "machine",
        "command": " ".join(os.path.basename(word) if os.path.isabs(word) else word for word in command),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "cpu": _cpu_info("model name") or platform.processor() or platform.machine(),
        "vectors": _vectors(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def describe(machine: dict[str, Any]) -> str:
    """One line for people."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    commit, changed, _ = (machine["commit"] or "unknown").partition("-dirty")
    of = f"commit {commit}" + (" with uncommitted changes" if changed else "")
    cores = f"{machine['cores']} core{'s' * (machine['cores'] > 1)}"
    return f"{place(machine)}, {cores}, Python {machine['python']}, {packages}, {machine['date'][:10]}, {of}"


def place(machine: dict[str, Any]) -> str:
    """The processor, and the widest vectors that the runtime computes with on it, where the header says so."""
    return ", ".join(part for part in (machine["cpu"], machine.get("vectors")) if part)


def peak_bytes() -> int:
    """The largest resident size of this process so far.

    On Linux from its own memory map: what getrusage says begins with the size of the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def cores_at_once(threads: int, seconds: float = 0.3) -> float:
    """As much arithmetic as so many cores do alone, ``threads`` threads do at once: ``threads`` on a quiet machine, and
    1 while a virtual machine's cores are the two halves of one.
    """
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [_PRODUCT, _PRODUCT]) for name in "ay"]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "a"], ["y"])], "product", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = [ort.InferenceSession(model, options) for _ in range(threads)]
    feeds = {"a": np.ones((_PRODUCT, _PRODUCT), np.float32)}

    def products(session: Any) -> float:
        """In a second."""
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            session.run(None, feeds)
            count += 1
        return count / (time.perf_counter() - begin)

    alone = products(sessions[0])
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(products, sessions)) / alone


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None  # running from a checkout that is not installed: the commit says which


def _commit() -> str | None:
    """The commit, with ``-dirty`` behind it where a tracked file other than results differs; ``None`` where there is no
    repository, or no git, as in the container.
    """
    commit = _git("describe", "--always", "--abbrev=12", "--exclude=*")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)reproduce/*/results/*")
    return f"{commit}-dirty" if commit and changed else commit or None


def is_ancestor(commit: str | None) -> bool:
    """Whether a row's commit is one of this branch's."""
    name = (commit or "none").removesuffix("-dirty")
    command = ["git", "-C", os.fspath(ROOT), "merge-base", "--is-ancestor", name, "HEAD"]
    return subprocess.run(command, capture_output=True).returncode == 0


def _git(*arguments: str) -> str:
    command = ["git", "-C", os.fspath(ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def _vectors() -> str:
    """The widest vectors of the processor; empty where nothing says so."""
    flags = (_cpu_info("flags") or _cpu_info("Features")).split()
    return next((title for flag, title in VECTORS.items() if flag in flags), "")


def _cpu_info(wanted: str) -> str:
    """What Linux says of the first processor; empty where it does not."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return next((value.strip() for name, value in pairs if name.strip() == wanted), "")
