"""Builds the native core, one extension ``rlflow._core``, and the library of kernels that ONNX Runtime loads,
``rlflow/_kernels.so``; everything else about the package is in ``pyproject.toml``.

Three hooks do what the declarative form cannot say: the C++ files are compiled side by side, the rule library is copied
into the wheel, and the type stub that lives beside the Cython file is put where type checkers look for it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError, ExecError, LinkError

ROOT = Path(__file__).resolve().parent
CYTHON = "cext/cython"
STUB = f"{CYTHON}/_core.pyi"
SAYS_HEADERS = "-MMD"  # the compiler writes beside each object which headers it read
KERNELS = "_kernels.so"  # beside the core; no Python in it, and the package works without
RULES = "substitutions"
PACKAGED_RULES = "_substitutions"  # rlflow/_substitutions in a wheel; an editable install reads substitutions/ itself


def core_extension() -> Extension:
    """The extension, with paths relative to this file, as setuptools wants them."""
    native = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "cext" / "src").rglob("*.cc"))
    if sys.platform == "win32":
        flags = ["/std:c++20", "/O2", "/EHsc", "/utf-8"]
    else:
        flags = ["-std=c++20", "-O3", "-g0", "-fvisibility=hidden", "-fvisibility-inlines-hidden", SAYS_HEADERS]
        if sys.platform == "linux":
            flags.append("-fno-plt")
    return Extension(
        "rlflow._core",
        sources=[f"{CYTHON}/_core.pyx", *native],
        include_dirs=["cext/include", CYTHON],
        depends=[path.relative_to(ROOT).as_posix() for path in header_files()],
        language="c++",
        extra_compile_args=flags,
        libraries=["dl"] if sys.platform == "linux" else [],  # the GPU's libraries are opened while the program runs
    )


def kernel_flags() -> list[str]:
    """The kernels choose their instruction set while they run, so no flag names one."""
    hidden = ["-fvisibility=hidden", "-fvisibility-inlines-hidden"]
    return ["-std=c++20", "-O3", "-g0", "-ffp-contract=fast", *hidden, SAYS_HEADERS]


def header_files() -> list[Path]:
    """All that our C++ and Cython files may include."""
    cext = ROOT / "cext"
    return sorted([*cext.rglob("*.h"), *cext.rglob("*.pxd"), *cext.rglob("*.pxi")])


def made_from(target: Path, source: str) -> list[Path]:
    """What an object hangs on: its source, this file, and the headers that the compiler listed beside it, or all
    headers where it lists none."""
    listing = target.with_suffix(".d")
    if not listing.exists():
        return [Path(source), Path(__file__), *header_files()]
    _, _, names = listing.read_text().replace("\\\n", " ").partition(":")
    return [Path(source), Path(__file__), *(ROOT / name for name in names.split())]


def is_newest(target: Path, sources: list[Path]) -> bool:
    """Whether ``target`` exists and is newer than all of ``sources``, none of which is gone."""
    made = target.stat().st_mtime if target.exists() else 0.0
    return all(path.exists() and path.stat().st_mtime < made for path in sources)


def job_count() -> int:
    """Compilers to run at once: RLFLOW_BUILD_JOBS, else the cores this process may use."""
    asked = os.environ.get("RLFLOW_BUILD_JOBS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile_side_by_side(compiler: Any) -> Callable[..., list[str]]:
    """The compiler's ``compile``, once a file, in threads; an object newer than all it is made from is left alone."""
    compile_files = compiler.compile

    def compile_all(sources: list[str], output_dir: str | None = None, **options: Any) -> list[str]:
        def one(source: str) -> list[str]:
            target = Path(compiler.object_filenames([source], output_dir=output_dir or "")[0])
            if is_newest(target, made_from(target, source)):
                return [os.fspath(target)]
            target.parent.mkdir(parents=True, exist_ok=True)  # here, because threads would race for it
            return compile_files([source], output_dir=output_dir, **options)

        with ThreadPoolExecutor(job_count()) as pool:
            return [built for objects in pool.map(one, sources) for built in objects]

    return compile_all


class BuildCore(build_ext):
    """Translates the Cython file into the build folder, compiles in parallel, and hands the stub to in-place builds."""

    def build_extensions(self) -> None:
        if self.editable_mode:  # keep the objects: the next change compiles what it touched
            self.build_temp = os.path.join("build", f"editable-{self.plat_name}-{sys.implementation.cache_tag}")
        for extension in self.extensions:
            extension.sources = self.translated(extension)
        self.compiler.compile = compile_side_by_side(self.compiler)
        super().build_extensions()
        self.build_kernels()

    def translated(self, extension: Extension) -> list[str]:
        """The sources with C++ in place of Cython. The C++ of an earlier build stays where the same Cython made it of
        the same files; Cython itself would translate again for each new environment, whose own files are newer."""
        import Cython  # only here: an sdist is made without translating anything
        from Cython.Build import cythonize

        folder = os.path.join(self.build_temp, "cython")
        source, *native = extension.sources
        cpp = Path(folder, source).with_suffix(".cpp")
        inputs = [path for path in (ROOT / CYTHON).iterdir() if path.suffix in {".pyx", ".pxd", ".pxi"}]
        if is_newest(cpp, [Path(__file__), *inputs]):
            with cpp.open(encoding="utf-8") as lines:
                if next(lines, "").strip() == f"/* Generated by Cython {Cython.__version__} */":
                    return [cpp.as_posix(), *native]
        directives = {"language_level": 3, "embedsignature": True}
        (made,) = cythonize(
            [extension], build_dir=folder, include_path=[CYTHON], compiler_directives=directives, quiet=True, force=True
        )
        return list(made.sources)

    @property
    def kernels(self) -> Path:
        """Where the library of kernels is built."""
        return Path(self.build_lib, "rlflow", KERNELS)

    def build_kernels(self) -> None:
        """The library of kernels; a compiler that lacks the vector types of GCC and Clang is no reason to fail."""
        self.kernels.unlink(missing_ok=True)  # a session may have it open, so it is never written over
        self.kernels.parent.mkdir(parents=True, exist_ok=True)
        files = (path.relative_to(ROOT).as_posix() for path in (ROOT / "cext" / "kernels").glob("*.cc"))
        sources = sorted(files, reverse=True, key=lambda name: ("stages" in name, name))  # what takes longest first
        try:
            objects = self.compiler.compile(sources, output_dir=self.build_temp, extra_postargs=kernel_flags())
            loader = ["dl"] if sys.platform == "linux" else []  # opens generated code, where a user names some
            self.compiler.link_shared_object(objects, os.fspath(self.kernels), libraries=loader, target_lang="c++")
        except (CompileError, LinkError, ExecError) as error:
            self.warn(f"the kernels for ONNX Runtime were not built, and rlflow works without them: {error}")

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        installed = ROOT / "rlflow" / KERNELS
        installed.unlink(missing_ok=True)
        if self.kernels.exists():
            shutil.copyfile(self.kernels, installed)
        if (ROOT / STUB).exists():
            shutil.copyfile(ROOT / STUB, ROOT / "rlflow" / "_core.pyi")

    def get_outputs(self) -> list[str]:
        return [*super().get_outputs(), *([os.fspath(self.kernels)] if self.kernels.exists() else [])]


class BuildPackage(build_py):
    """Adds the rule library and the type stub to the built package."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, target in self.extra_files():
                os.makedirs(os.path.dirname(target), exist_ok=True)
                self.copy_file(os.fspath(source), target)

    def extra_files(self) -> list[tuple[Path, str]]:
        """(source, target) pairs of what lies outside the package but ships inside it."""
        package = os.path.join(self.build_lib, "rlflow")
        rules = [
            path for path in sorted((ROOT / RULES).rglob("*")) if path.is_file() and path.suffix in {".json", ".md"}
        ]
        pairs = [(path, os.path.join(package, PACKAGED_RULES, *path.relative_to(ROOT / RULES).parts)) for path in rules]
        if (ROOT / STUB).exists():
            pairs.append((ROOT / STUB, os.path.join(package, "_core.pyi")))
        return pairs

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else outputs + [target for _, target in self.extra_files()]


if __name__ == "__main__":  # the C++ unit tests ask for what is above
    setup(ext_modules=[core_extension()], cmdclass={"build_ext": BuildCore, "build_py": BuildPackage})
