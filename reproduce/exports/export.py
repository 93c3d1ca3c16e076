"""Writes one architecture as torch exports it: a process of its own, because torch keeps what it compiled.

    python reproduce/exports/export.py NAME FILE [--older] [--seed 0]

Weights are drawn (see calibrate.py), nothing is downloaded. ``--older``: the exporter that traces, opset 17.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

# the packages may not look for weights or newer versions of themselves
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

OLDER_OPSET = 17


def export(name: str, path: Path, *, older: bool, seed: int) -> None:
    """Raises what torch raises where it cannot export the model; nothing is left behind then."""
    import torch
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
