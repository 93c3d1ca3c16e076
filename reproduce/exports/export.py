"""Writes one architecture as torch exports it: a process of its own, because torch keeps what it compiled.

    python reproduce/exports/export.py NAME FILE [--older] [--seed 0]

Weights are drawn (see calibrate.py), nothing is downloaded. ``--older``: the exporter that traces, opset 17.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any

# the packages may not look for weights or newer versions of themselves
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

OLDER_OPSET = 17
#: What is declared stays so as long as torch's object of it lives.
_DECLARED: list[Any] = []


def declare_vision_operators() -> None:
    """Lets torchvision be imported where its operators cannot be loaded: built for CUDA, beside a torch for CPUs.

    It describes them to torch as it is imported, so that they have to be declared. No architecture here runs one.
    """
    import torch

    found = importlib.util.find_spec("torchvision")
    libraries = list(Path(found.origin).parent.glob("_C.*")) if found and found.origin else []
    try:
        for library in libraries:
            torch.ops.load_library(os.fspath(library))
    except OSError:
        kept = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            kept.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARED.append(kept)


def export(name: str, path: Path, *, older: bool, seed: int) -> None:
    """Raises what torch raises where it cannot export the model; nothing is left behind then."""
    import torch

    declare_vision_operators()
    from architectures import BUILDERS
    from calibrate import calibrate

    torch.manual_seed(seed)
    module, inputs = BUILDERS[name]()
    calibrate(module, inputs, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.onnx")
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            if older:
                torch.onnx.export(module, inputs, os.fspath(partial), dynamo=False, opset_version=OLDER_OPSET)
            else:
                torch.onnx.export(module, inputs, os.fspath(partial), dynamo=True, external_data=False, verbose=False)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("file", type=Path)
    parser.add_argument("--older", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    export(options.name, options.file, older=options.older, seed=options.seed)
