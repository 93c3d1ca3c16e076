"""Where the result will run: a runtime and its provider here, or a device behind a command."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlflow.errors import UsageError
from rlflow.specs import name_of, options_of

if TYPE_CHECKING:
    from rlflow.price.command import DeviceCommand
    from rlflow.runtime import Worker

#: What stands for the best runtime of this machine's GPU where a runtime is named.
ON_GPU = "gpu"
#: ONNX Runtime whose nodes our kernels do where they are faster: a runtime, and the cost model of that name.
WITH_KERNELS = "onnxruntime+kernels"


def open_worker(threads: int) -> Worker:
    from rlflow.runtime import RuntimeOptions, Worker

    return Worker(RuntimeOptions(threads=threads))


@dataclass(frozen=True)
class Deployment:
    """Where the result will run: a runtime and its provider here, or a device behind a command.

    ``with_kernels``: whether our kernels work in it; then the result needs a plan that says where.
    """

    threads: int
    runtime: str
    provider: str
    command: DeviceCommand | None = None
    with_kernels: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "with_kernels", self.runtime == WITH_KERNELS)

    @classmethod
    def of(cls, threads: int, runtime: str, provider: str | None, command: str | DeviceCommand | None) -> Deployment:
        """Raises :class:`UsageError` for a combination that makes no sense."""
        from rlflow.runtime import CPU_PROVIDER, DEFAULT_RUNTIME, RuntimeOptions, provider_name

        if runtime == ON_GPU:
            runtime, provider = gpu_runtime()
        if command is not None and (runtime != DEFAULT_RUNTIME or provider is not None):
            raise UsageError(
                "The measuring command already says where the model runs; leave out the runtime and the provider."
            )
        chosen = CPU_PROVIDER if provider is None else provider_name(provider)
        RuntimeOptions(runtime=runtime, provider=chosen)  # refuses what does not go together
        if command is not None:
            from rlflow.price.command import DeviceCommand

            if not isinstance(command, (str, DeviceCommand)):
                raise UsageError(
                    f"The measuring command is {command!r}; expected text, such as 'ssh board run.sh {{model}}'."
                )
            command = DeviceCommand(command) if isinstance(command, str) else command
        return cls(threads, runtime, chosen, command)

    @classmethod
    def priced_by(
        cls, cost: Any, threads: int, runtime: str, provider: str | None, command: str | DeviceCommand | None
    ) -> Deployment:
        """As :meth:`of`; what was priced on the GPU, or with our kernels, is deployed so unless the user says where."""
        from rlflow.price import COSTS
        from rlflow.runtime import DEFAULT_RUNTIME

        unsaid = runtime == DEFAULT_RUNTIME and provider is None and command is None
        if unsaid and isinstance(cost, str):
            on_gpu = COSTS.declared(name_of(cost))["on_gpu"]
            runtime = ON_GPU if on_gpu else name_of(cost) if name_of(cost) == WITH_KERNELS else runtime
        return cls.of(threads, runtime, provider, command)

    @property
    def is_default(self) -> bool:
        """Whether it is ONNX Runtime on this processor, which then also computes what outputs are compared with."""
        from rlflow.runtime import CPU_PROVIDER, DEFAULT_RUNTIME

        return self.runtime == DEFAULT_RUNTIME and self.provider == CPU_PROVIDER

    def worker(self) -> Worker:
        from rlflow.runtime import RuntimeOptions, Worker

        options = RuntimeOptions(runtime=self.runtime, provider=self.provider, threads=self.threads)
        worker = Worker(options)
        if not self.is_default:
            worker.require_provider()
        return worker

    def fits(self, worker: Any) -> bool:
        """Whether a worker that is there already is just what :meth:`worker` would make."""
        from rlflow.runtime import RuntimeOptions, Worker

        options = RuntimeOptions(runtime=self.runtime, provider=self.provider, threads=self.threads)
        return isinstance(worker, Worker) and worker.options == options

    def cost_options(self, cost: str, measure: str) -> dict[str, Any]:
        """What the cost model ``cost`` has to be told about all this; what it cannot use is left to the gate."""
        if measure not in ("eager", "lazy"):
            raise UsageError(f"Regions are measured 'eager' or 'lazy', not {measure!r}.")
        from rlflow.price import COSTS
        from rlflow.runtime import CPU_PROVIDER

        maker = COSTS.get(name_of(cost))
        own, options = options_of(maker), {}
        if "runtime" in own:
            options = {"runtime": self.runtime, "provider": self.provider, "measure_cmd": self.command}
        elif self.provider != CPU_PROVIDER and not getattr(maker, "on_gpu", False):
            options = {"provider": self.provider}
        options = {name: value for name, value in options.items() if name in own}
        return {**options, "measure": measure} if measure != "eager" else options

    def runtime_name(self, runtime: str) -> str:
        from rlflow.runtime import CPU_PROVIDER

        return runtime if self.provider == CPU_PROVIDER else f"{runtime} ({self.provider})"


def gpu_runtime() -> tuple[str, str | None]:
    """The runtime, and its provider, that whole models are timed in on this machine's GPU: the first that can run there
    (ONNX Runtime where it has the CUDA provider, else torch where that sees the GPU, else our own back end).

    Raises :class:`RuntimeUnavailable` with what the last one lacks where none can run.
    """
    from rlflow.errors import CostError, RuntimeUnavailable
    from rlflow.runtime import CPU_PROVIDER, RUNTIMES, RuntimeOptions, Worker

    ranked = sorted(
        (kind.gpu_rank, name, kind.gpu_provider) for name, kind in RUNTIMES.usable() if kind.gpu_rank is not None
    )
    lacks: Exception = RuntimeUnavailable("No runtime computes on a GPU.")
    for _, name, provider in ranked:
        try:
            with Worker(RuntimeOptions(runtime=name, provider=provider or CPU_PROVIDER)) as worker:
                worker.require_provider()
            return name, provider
        except (CostError, RuntimeUnavailable) as error:
            lacks = error
    raise lacks
