"""Trains every agent that ships, from nothing, and says which files are those that ship, byte for byte.

    python reproduce/ship.py --out build/agents              an hour of one core; goes on where it was stopped
    python reproduce/ship.py --out build/agents levin go     only these
    python reproduce/ship.py --out build/agents --install    and puts the files into the package

Each agent is trained by a command of its own, which is printed. Cards of files that ship hold no seconds, which differ
from run to run: what a training took is in FOLDER/seconds.json and in docs/agents.md. Libraries choose their loops by
the processor, and each loop rounds in its own way. So they are told to take those of AVX2, which every x86 processor
has that is not ten years old (:data:`ANYWHERE`). Another torch or NumPy may still make other files; `xrlflow` needs a
processor of AMD's, and `go` one with AVX-512 (:func:`environment`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlflow.errors import RlflowError
from rlflow.files import replacing
from rlflow.nn.checkpoint import read_arrays, shipped, write_arrays

SAME, OTHER = "the file that ships, byte for byte", "another file than the one that ships"
ROOT = Path(__file__).resolve().parents[1]
#: With AVX2, one thread, and sums in an order that does not depend on the processor.
ANYWHERE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "MKL_NUM_THREADS": "1",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
    "OMP_NUM_THREADS": "1",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
#: Of each agent that ships: what trains it, what of ``rlflow train`` makes such files, and their kind.
AGENTS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "levin": (("reproduce/learning/chains.py", "--resume"), "levin", "policy of chains"),
    "go": (("-m", "rlflow", "train", "go", "--held-out", "gnmt", "--resume"), "go", "go"),
    "xrlflow": (("reproduce/xrlflow/ship.py",), "xrlflow", "policy"),
    "rlflow-graph": (("reproduce/rlflow/ship.py", "--form", "graph"), "worldmodel", "worldmodel"),
    "rlflow-latent": (("reproduce/rlflow/ship.py", "--form", "latent"), "worldmodel", "worldmodel"),
}


def environment(agent: str) -> dict[str, str]:
    """What a training is told. In the order of sums that all processors have, ``xrlflow`` and ``go`` learn less, and
    what they learnt elsewhere ships: ``xrlflow`` leaves MKL its order, which is another one for each maker of
    processors, and ``go`` leaves the libraries all choices.
    """
    free = {"xrlflow": {"MKL_CBWR"}, "go": set(ANYWHERE)}.get(agent, set())
    return {name: value for name, value in ANYWHERE.items() if name not in free}


def command(agent: str, out: Path) -> list[str]:
    """What trains an agent into ``out``; it resumes only where there is something to go on from."""
    begun = out.with_name(out.name + ".last").exists()
    words = [word for word in AGENTS[agent][0] if word != "--resume" or begun]
    return [sys.executable, *words, "--out", os.fspath(out)]


def without_seconds(plain: Any) -> Any:
    """A card without what a clock said."""
    if isinstance(plain, dict):
        return {name: without_seconds(value) for name, value in plain.items() if name != "seconds"}
    return plain


def finish(agent: str, trained: Path, out: Path) -> None:
    """The file as it ships."""
    meta, arrays = read_arrays(trained, *AGENTS[agent][1:])
    write_arrays(out, meta | {"card": without_seconds(meta["card"])}, arrays)


def trained(agents: list[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """Each agent's file, trained where it is not there yet."""
    took = folder / "seconds.json"
    for agent in agents:
        out, begun = folder / f"{agent}.npz", time.monotonic()
        if not out.exists():
            work = folder / "work" / f"{agent}.npz"
            words = command(agent, work)
            print(" ".join(["python", *words[1:]]), file=sys.stderr, flush=True)
            work.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(words, cwd=ROOT, check=True, env=os.environ | environment(agent))
            seconds = json.loads(took.read_text(encoding="utf-8")) if took.exists() else {}
            seconds[agent] = round(seconds.get(agent, 0.0) + time.monotonic() - begun, 1)
            took.write_text(json.dumps(seconds) + "\n", encoding="utf-8")
            finish(agent, work, out)
        yield agent, out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agents", nargs="*", metavar="AGENT", help=f"of {', '.join(AGENTS)} (default: all)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--install", action="store_true", help="put the files into the package")
    options = parser.parse_args()
    unknown = [agent for agent in options.agents if agent not in AGENTS]
    if unknown:
        parser.error(f"no agent {unknown[0]!r} ships; there are {', '.join(AGENTS)}")
    try:
        for agent, out in trained(options.agents or list(AGENTS), options.out.resolve()):
            kept = shipped(agent)
            same = kept.exists() and kept.read_bytes() == out.read_bytes()
            print(f"{agent}: {SAME if same else OTHER}")
            if options.install and not same:
                with replacing(kept) as stream:
                    stream.write(out.read_bytes())
    except (RlflowError, subprocess.CalledProcessError) as error:
        print(f"ship.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ship.py: interrupted; the same command goes on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
