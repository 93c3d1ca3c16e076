"""``make gpu-compile``: everything of the cudnn back end that can be checked without a GPU, against NVIDIA's own files.

1. NVIDIA's headers and NVRTC are installed into ``build/gpu-headers`` (about 1 GB, once).
2. Our declarations of their interfaces are compared with theirs by the compiler (``cext/gpu_check/headers.cc``).
3. cuDNN itself is asked for plans of our convolutions, for a GPU that is described to it (``described_gpu.json``).
4. Every kernel of our own is compiled by NVRTC, for every element type, and by nvcc where that is on the path.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
PACKAGES = (
    "nvidia-cudnn-cu13",
    "nvidia-cublas",
    "nvidia-cuda-runtime",
    "nvidia-cuda-crt",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-cccl",
)
#: Of the hundreds of dumped kernels nvcc sees one of each kind and type: it starts anew for each.
NVCC_KERNELS = (
    "Pointwise-every-operation-*",
    "Pointwise-lanes-1",
    "Transposition-4",
    "Reducing-0-block-*",
    "Reducing-0-warp-1",
    "Reducing-10-1",
    "Softening-*",
    "Normalising-*",
    "Gathering-4",
    "Joining-apart-16",
    "Remapping-1",
    "Pooling-maximum-*",
)


def main() -> int:
    """The exit status: 0 where all agrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, default=BUILD / "gpu-headers", help="NVIDIA's packages")
    parser.add_argument("--architecture", default="sm_90")
    options = parser.parse_args()
    compiler = os.environ.get("CXX") or next((name for name in ("g++", "c++", "clang++") if shutil.which(name)), None)
    if compiler is None:
        print("gpu-compile: no C++ compiler was found ($CXX, g++, c++, clang++).", file=sys.stderr)
        return 1
    install(options.packages)
    check_headers(compiler, options.packages)
    check_plans(compiler, options.packages)
    folder = check_kernels(compiler, options.packages, options.architecture)
    check_with_nvcc(folder, options.architecture)
    return 0


def install(target: Path) -> None:
    """NVIDIA's packages in a folder of their own, beside no others."""
    if (target / "nvidia").is_dir():
        return
    print(f"Installing {', '.join(PACKAGES)} into {target} (about 1 GB).", flush=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", os.fspath(target), *PACKAGES]
    subprocess.run(command, check=True)


def check_headers(compiler: str, packages: Path) -> None:
    """Signatures, constants and structures as NVIDIA declares them."""
    folders = [path.parent for name in ("cuda.h", "cudnn.h", "cublasLt.h", "nvrtc.h") for path in packages.rglob(name)]
    own = f"-I{ROOT / 'cext' / 'src'}"
    includes = [own, *(f"-I{folder}" for folder in dict.fromkeys(folders))]
    source = ROOT / "cext" / "gpu_check" / "headers.cc"
    subprocess.run([compiler, "-std=c++20", "-fsyntax-only", *includes, os.fspath(source)], check=True)
    print("Our declarations are those of NVIDIA's headers.", flush=True)


def check_plans(compiler: str, packages: Path) -> None:
    """cuDNN takes every operation graph of ours and has a plan for it. The driver that it wants refuses everything."""
    folder = BUILD / "gpu-plans"
    folder.mkdir(parents=True, exist_ok=True)
    header = next(packages.rglob("cuda.h")).read_text(encoding="utf-8", errors="replace")
    names = {*re.findall(r"CUDAAPI\s+(cu\w+)\s*\(", header), *re.findall(r"#\s*define (?:cu\w+) +(cu\w+)\b", header)}
    driver = folder / "driver.c"
    driver.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(names)), encoding="utf-8")
    library = os.fspath(folder / "libcuda.so.1")
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", "-w", os.fspath(driver), "-o", library], check=True)
    program = folder / "plans"
    back_end = ROOT / "cext" / "src" / "cudnn"
    sources = [ROOT / "cext" / "gpu_check" / "plans.cc", back_end / "operation_graph.cc", back_end / "libraries.cc"]
    command = [compiler, "-std=c++20", "-O1", f"-I{ROOT / 'cext' / 'src'}", f"-I{ROOT / 'cext' / 'include'}"]
    subprocess.run([*command, *map(os.fspath, sources), "-o", os.fspath(program), "-ldl"], check=True)
    folders = [path.parent for name in ("libcudnn.so.9", "libcublasLt.so.*") for path in packages.rglob(name)]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(map(os.fspath, [*folders, folder]))}
    description = Path(__file__).with_name("described_gpu.json")
    arguments = [os.fspath(program), os.fspath(folders[0]), os.fspath(description)]
    subprocess.run(arguments, check=True, env=environment)


def check_kernels(compiler: str, packages: Path, architecture: str) -> Path:
    """The folder with the sources, after NVRTC has compiled all of them."""
    library = next(packages.rglob("libnvrtc.so.*"), None)
    if library is None:
        raise SystemExit(f"gpu-compile: there is no libnvrtc under {packages}.")
    folder = BUILD / "gpu-kernels"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    program = folder / "kernels"
    back_end = ROOT / "cext" / "src" / "cudnn"
    sources = [ROOT / "cext" / "gpu_check" / "kernels.cc", back_end / "kernels.cc", back_end / "libraries.cc"]
    command = [compiler, "-std=c++20", "-O1", f"-I{ROOT / 'cext' / 'src'}", f"-I{ROOT / 'cext' / 'include'}"]
    subprocess.run([*command, *map(os.fspath, sources), "-o", os.fspath(program), "-ldl"], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": os.fspath(library.parent)}
    arguments = [os.fspath(program), os.fspath(library.parent), architecture, os.fspath(folder)]
    subprocess.run(arguments, check=True, env=environment)
    return folder


def check_with_nvcc(folder: Path, architecture: str) -> None:
    """One kernel of each kind and type, as a CUDA compiler sees it."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("nvcc is not on the path: skipped.")
        return
    sources = sorted({path for pattern in NVCC_KERNELS for path in folder.glob(f"{pattern}.cu")})
    for source in sources:
        target = source.with_suffix(".cubin")
        command = [nvcc, "-std=c++17", f"-arch={architecture}", "-cubin", os.fspath(source), "-o", os.fspath(target)]
        subprocess.run(command, check=True)
    print(f"nvcc, {architecture}: {len(sources)} of {len(sources)} kernels compile.")


if __name__ == "__main__":
    sys.exit(main())
