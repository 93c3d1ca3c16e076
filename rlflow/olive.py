"""rlflow as a pass of Olive, Microsoft's tool for model pipelines.

>>> from olive import run
>>> import rlflow.olive
>>> config["passes"] = {"faster": {"type": "RlflowOptimization", "budget": "60s"}}
>>> run(config, package_config=rlflow.olive.package_config())

On the command line: ``python -m rlflow.olive > passes.json``, and ``olive run --package-config passes.json …``.
Needs ``pip install 'rlflow[olive]'``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rlflow.errors import RuntimeUnavailable
from rlflow.optimizer import optimize
from rlflow.runtime import CPU_PROVIDER

try:
    from olive.model import ONNXModelHandler
    from olive.package_config import OlivePackageConfig
    from olive.passes import Pass
    from olive.passes.pass_config import PassConfigParam
except ImportError as error:
    raise RuntimeUnavailable(f"Olive cannot be opened ({error}): pip install 'rlflow[olive]'") from error

__all__ = ["RlflowOptimization", "package_config"]


class RlflowOptimization(Pass):
    """Search for an equivalent faster ONNX model, confirm it by the clock and by its outputs.

    Where nothing is faster, the model stays as it is. ``options``: any of :class:`rlflow.Options`, by name.
    """

    @classmethod
    def _default_config(cls, accelerator_spec: Any) -> dict[str, PassConfigParam]:
        rows: tuple[tuple[str, type, Any, str], ...] = (
            ("budget", str, "60s", "What the search may take: 60s, 5m, 500c."),
            ("threads", int, 1, "Threads that the model will have where it runs."),
            ("cost", str, "onnxruntime", "What is cheap; analytic needs no clock."),
            ("options", dict, None, "More options of rlflow.optimize, by name."),
        )
        return {
            name: PassConfigParam(type_=kind, default_value=default, description=text)
            for name, kind, default, text in rows
        }

    def _run_for_config(self, model: Any, config: Any, output_model_path: str) -> Any:
        place = Path(output_model_path)
        if place.suffix != ".onnx":
            place = place / "model.onnx"
        place.parent.mkdir(parents=True, exist_ok=True)
        optimize(model.model_path, output=place, quiet=True, **self._keywords(config))
        if any(one != place for one in place.parent.glob(f"{place.name}*")):  # its weights are beside it
            return ONNXModelHandler(model_path=str(place.parent), onnx_file_name=place.name)
        return ONNXModelHandler(model_path=str(place))

    def _keywords(self, config: Any) -> dict[str, Any]:
        provider = self.accelerator_spec.execution_provider
        given: dict[str, Any] = {"budget": config.budget, "threads": config.threads, "cost": config.cost}
        given |= {} if provider in (None, CPU_PROVIDER) else {"provider": str(provider)}
        return given | (config.options or {})


def package_config() -> dict[str, Any]:
    """Olive's own list of passes, and ours."""
    found = json.loads(Path(OlivePackageConfig.get_default_config_path()).read_text(encoding="utf-8"))
    ours = {
        "module_path": f"rlflow.olive.{RlflowOptimization.__name__}",
        "supported_providers": ["*"],
        "supported_accelerators": ["*"],
        "supported_precisions": ["*"],
        "supported_algorithms": [],
        "supported_quantization_encodings": [],
        "module_dependencies": ["rlflow"],
    }
    found["passes"][RlflowOptimization.__name__] = ours
    return dict(found)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(package_config(), indent=2) + "\n")
