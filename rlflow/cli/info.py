"""``rlflow info``."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import sys
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import console, show_rows
from rlflow.cli.json_option import emit_json, in_json, json_option

if TYPE_CHECKING:
    from rlflow.registry import Registry

_LIBRARIES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "click", "rich", "torch", "gymnasium", "z3-solver", "highspy")


_KINDS = ("strategies", "costs", "runtimes", "decoders", "importers")
#: What prints the JSON schema of ``optimize --json`` instead of a registry.
_SCHEMA = "report-schema"


@click.command()
@click.argument("kind", metavar="[KIND]", type=click.Choice([*_KINDS, _SCHEMA]), required=False)
@json_option()
def info(kind: str | None, json_file: str | None) -> None:
    """Show versions, runtimes, cost models and where prices are kept; or everything of one KIND, with what each can do
    and its options: strategies, costs, runtimes, decoders or importers. report-schema is the JSON schema of what
    optimize --json writes.
    """
    if kind == _SCHEMA:
        from rlflow.report import schema

        emit_json(schema(), json_file or "-")
        return
    if kind is not None:
        show_rows(registries()[kind].rows(), json_file)
        return
    found = collect()
    if in_json(json_file, lambda: found):
        return
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
    for key, value in _lines(found):
        table.add_row(escape(key), escape(value))  # rlflow[openvino] is no style
    console().print(table)


def registries() -> dict[str, Registry[Any]]:
    """What is known by name, by kind."""
    from rlflow.price import COSTS
    from rlflow.runtime import RUNTIMES
    from rlflow.search.eqsat import DECODERS
    from rlflow.search.strategies import STRATEGIES
    from rlflow.synthesis.importers import FORMATS

    return dict(zip(_KINDS, (STRATEGIES, COSTS, RUNTIMES, DECODERS, FORMATS), strict=True))


def collect() -> dict[str, Any]:
    """What ``info`` shows, as plain values."""
    import rlflow
    from rlflow import search
    from rlflow.kernels.shared_library import library_path, unavailable
    from rlflow.nn import segment_backend
    from rlflow.ops import op_names
    from rlflow.price.database import default_path
    from rlflow.rulesets import load_library

    library, known = load_library(None), registries()
    return {
        "rlflow": rlflow.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "executable": sys.executable,
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "providers": _providers(),
        "runtimes": {name: _state(kind().missing()) for name, kind in known["runtimes"].usable()},
        "cost_models": {name: _availability(maker) for name, maker in known["costs"].usable()},
        "strategies": {
            name: {key: default for key, _, default in search.option_table(kind)}
            for name, kind in known["strategies"].usable()
        },
        "decoders": known["decoders"].names(),
        "importers": known["importers"].names(),
        "operators": len(op_names()),
        "rules": _families(library),
        "price_database": str(default_path()),
        "segment_operations": segment_backend(),
        "kernels": unavailable() or f"available: {library_path()}",
    }


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _providers() -> list[str]:
    if importlib.util.find_spec("onnxruntime") is None:
        return []
    from rlflow.errors import RlflowError
    from rlflow.runtime import Worker

    try:
        with Worker() as worker:
            return list(worker.describe()["providers"])
    except RlflowError as error:
        return [f"unavailable: {error}"]


def _availability(maker: Any) -> str:
    try:
        with contextlib.closing(maker()) as model:
            return _state(model.available())
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything, and the others are still shown
        return _state(" ".join(str(error).split()))


def _state(reason: str | None) -> str:
    return "available" if reason is None else f"unavailable: {reason}"


def _families(library: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for rule in library.values():
        counts[rule.family] = counts.get(rule.family, 0) + 1
    return counts


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    rules = ", ".join(f"{family} {count}" for family, count in found["rules"].items())
    lines = [
        ("rlflow", found["rlflow"]),
        ("Python", f"{found['python']} on {found['platform']}, {found['cores']} cores"),
        (
            "libraries",
            ", ".join(f"{name} {version}" for name, version in found["libraries"].items() if version is not None),
        ),
        ("not installed", ", ".join(name for name, version in found["libraries"].items() if version is None) or "-"),
        ("providers", ", ".join(found["providers"]) or "-"),
    ]
    lines += [(f"runtime {name}", state) for name, state in found["runtimes"].items()]
    lines += [(f"cost model {name}", state) for name, state in found["cost_models"].items()]
    for name, options in found["strategies"].items():
        lines.append((f"search {name}", " ".join(f"{key}={value}" for key, value in options.items()) or "no options"))
    lines += [
        ("decoders", ", ".join(found["decoders"])),
        ("importers", ", ".join(found["importers"])),
        ("operators", f"{found['operators']} in the table"),
        ("rules", f"{sum(found['rules'].values())} ({rules})" if found["rules"] else "0"),
        ("prices", found["price_database"]),
        ("segment ops", found["segment_operations"]),
        ("kernels", found["kernels"]),
    ]
    return lines
