"""What the runtime is handed when whole models are timed and compared: sources, inputs, graphs written as ONNX."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.errors import RuntimeCrashed, RuntimeRefused, UsageError
from rlflow.files import write_atomically
from rlflow.specs import name_of, options_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.equivalence import Plan
    from rlflow.equivalence.sizes import Sizes
    from rlflow.frontends.storage import SharedWeights
    from rlflow.price.command import DeviceCommand
    from rlflow.runtime import Worker

#: Models larger than this go to the runtime as files, because a protobuf message may not exceed 2 GB.
_FILE_BYTES = 1_500_000_000
_VERIFY_INPUTS = 2
#: A guess at the size of an open dimension that makes a run take longer is not used.
_GUESS_SECONDS = 20.0
#: Models with more weights than this share them in a file when they are timed and compared.
_SHARED_BYTES = 16 << 20
#: What stands for the best runtime of this machine's GPU where a runtime is named.
ON_GPU = "gpu"


def open_worker(threads: int) -> Worker:
    from rlflow.runtime import RuntimeOptions, Worker

    return Worker(RuntimeOptions(threads=threads))


@dataclass(frozen=True)
class Deployment:
    """Where the result will run: a runtime and its provider here, or a device behind a command."""

    threads: int
    runtime: str
    provider: str
    command: DeviceCommand | None = None

    @classmethod
    def of(cls, threads: int, runtime: str, provider: str | None, command: str | DeviceCommand | None) -> Deployment:
        """Raises :class:`UsageError` for a combination that makes no sense."""
        from rlflow.price.command import DeviceCommand
        from rlflow.runtime import CPU_PROVIDER, DEFAULT_RUNTIME, RuntimeOptions, provider_name

        if runtime == ON_GPU:
            runtime, provider = gpu_runtime()
        if command is not None and (runtime != DEFAULT_RUNTIME or provider is not None):
            raise UsageError(
                "The measuring command already says where the model runs; leave out the runtime and the provider."
            )
        chosen = CPU_PROVIDER if provider is None else provider_name(provider)
        RuntimeOptions(runtime=runtime, provider=chosen)  # refuses what does not go together
        device = DeviceCommand(command) if isinstance(command, str) else command
        return cls(threads, runtime, chosen, device)

    @classmethod
    def priced_by(
        cls, cost: Any, threads: int, runtime: str, provider: str | None, command: str | DeviceCommand | None
    ) -> Deployment:
        """As :meth:`of`; what was priced on the GPU is deployed there, unless the user says where."""
        from rlflow.price import COSTS
        from rlflow.runtime import DEFAULT_RUNTIME

        unsaid = runtime == DEFAULT_RUNTIME and provider is None and command is None
        on_gpu = unsaid and isinstance(cost, str) and COSTS.declared(name_of(cost))["on_gpu"]
        return cls.of(threads, ON_GPU if on_gpu else runtime, provider, command)

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


def runner(reference: Worker, deployed: Worker) -> Any:
    """Runs models to compare their outputs: as deployed where they are deployed, and tightly in the reference, whose
    optimisations can be switched off.
    """
    from rlflow import equivalence

    if reference is deployed:
        return equivalence.WorkerRunner(reference)
    tight, loose = equivalence.WorkerRunner(reference), equivalence.WorkerRunner(deployed)

    def run(model: Any, feeds: Any, level: str) -> Any:
        return (tight if level == "disable" else loose)(model, feeds, level)

    return run


def with_known_outputs(
    runs: Any, feeds: Sequence[Mapping[str, np.ndarray]], known: Mapping[Any, list[dict[str, Any]] | None]
) -> Any:
    """``runs``, but for models of which it is known what they compute on ``feeds`` as deployed."""

    def run(model: Any, wanted: Any, level: str) -> Any:
        outputs = known.get(model) if level == "all" and wanted is feeds else None
        return runs(model, wanted, level) if outputs is None else outputs

    return run


def shared_weights(imported: Any, place: Deployment, folder: Callable[[], Path]) -> SharedWeights | None:
    """A file for the weights of a model and its rewrites; ``None`` where they are few, or where the model runs in
    something else than ONNX Runtime here, which maps such files.
    """
    from rlflow.frontends import storage
    from rlflow.runtime import runtime

    if not runtime(place.runtime).maps_weights or place.command is not None:
        return None
    if storage.weight_bytes(imported.origin.model) < _SHARED_BYTES:
        return None
    return storage.SharedWeights(folder(), imported.origin.base_dir)


def as_source(model: Any) -> bytes | str:
    """What the runtime can load: a path, or serialized ONNX."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    return bytes(model.SerializeToString())


def source_of(imported: Any, model: Any) -> bytes | str:
    return as_source(model) if imported.source_path is None else os.fspath(imported.source_path)


@dataclass
class Inputs:
    """Feeds to time and to verify with, the ``sizes`` that the open dimensions have in them, and the ``plan`` of
    further ones to verify with.
    """

    feeds: list[dict[str, np.ndarray]]
    sizes: Sizes
    plan: Plan | None = None

    @property
    def notes(self) -> list[str]:
        """What had to be assumed."""
        return [self.sizes.note] if self.sizes.note is not None else []

    @classmethod
    def of(
        cls,
        worker: Worker,
        source: bytes | str,
        graph: Any,
        dims: Mapping[str, int],
        data: Any,
        seed: int,
        fixed: Collection[str] = (),
    ) -> Inputs:
        """Random inputs (integers in the range that the graph implies), the user's first where given. Open dimensions
        in ``fixed`` have one size for ever; the others are verified at another size as well.

        Those that neither ``dims`` nor the data bind are guessed, and the guess is one that the runtime accepts.
        Raises :class:`RuntimeRefused` where it accepts none.
        """
        from rlflow.equivalence import for_single_input, load_input_data, make_inputs, plan_for, sizes
        from rlflow.graph.ranges import input_ranges

        infos = worker.interface(source).inputs
        if isinstance(data, (str, os.PathLike)):
            data = load_input_data([data])
        elif data is not None and not isinstance(data, Mapping):
            data = load_input_data(data)
        given = for_single_input(data, infos) if data else {}
        names = {info.name for info in infos}
        ranges = {name: pair for name, pair in input_ranges(graph).items() if name in names}

        def feeds_of(values: Mapping[str, int]) -> list[dict[str, np.ndarray]]:
            feeds = []
            if set(given) != names:
                feeds = [make_inputs(infos, seed + number, ranges, None, values) for number in range(_VERIFY_INPUTS)]
            if given:
                feeds.insert(0, make_inputs(infos, seed, ranges, given, values))
            return feeds

        candidates = list(sizes.guesses(infos, sizes.shown(infos, given, dims)))
        chosen, plan = candidates[0], None
        if chosen.guessed:
            feeds, chosen = _accepted(worker, source, candidates, feeds_of)
        else:
            feeds = feeds_of(chosen.values)
        if set(given) != names:
            plan = plan_for(source, infos, chosen.values, ranges, seed=seed, fixed=fixed, given=given)
        return cls(feeds, chosen, plan)


def _accepted(
    worker: Worker,
    source: bytes | str,
    candidates: Sequence[Sizes],
    feeds_of: Callable[[Mapping[str, int]], list[dict[str, np.ndarray]]],
) -> tuple[list[dict[str, np.ndarray]], Sizes]:
    """The first of the guessed sizes that the model runs at, with its inputs."""
    handle = worker.load(source)
    refusal = ""
    try:
        for one in candidates:
            feeds = feeds_of(one.values)
            try:
                worker.run(handle, feeds[0], time_limit=_GUESS_SECONDS)
            except (RuntimeRefused, RuntimeCrashed) as error:
                refusal = refusal or str(error)
                continue
            return feeds, one
    finally:
        worker.unload(handle)
    raise RuntimeRefused(
        f"None of {len(candidates)} guesses at the sizes of the open dimensions runs: {refusal} {candidates[0].blame}"
    )


def kept_comparisons(
    database: Any,
    worker: Worker,
    feeds: Mapping[str, np.ndarray],
    models: Mapping[str, tuple[Any, Callable[[], Any]]],
    fresh: bool = False,
) -> Any:
    """Earlier final comparisons of these models in this place: a :class:`rlflow.race.evidence.Archive`.

    ``models``: by name, with that of the original as "baseline", the graph and what makes the model as it is timed. A
    comparison counts for the same contents only: graphs (which cover the weights), files, inputs, and options.
    ``fresh``: none is recalled.
    """
    from rlflow.price.database import PriceContext
    from rlflow.race.evidence import PROTOCOL, Archive

    def identity(name: str) -> str:
        found = hashlib.blake2b(digest_size=16)
        for part in (str(PROTOCOL), repr(worker.options), worker.options.effective_clock):
            found.update(part.encode() + b"\0")
        for input_name, array in sorted(feeds.items()):
            found.update(f"{input_name} {array.dtype} {array.shape}\0".encode())
            found.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
        for one in ("baseline", name):
            graph, source = models[one]
            found.update(str(graph.digest).encode() + b"\0")
            _hash_model(found, source())
        return found.hexdigest()

    return Archive(database, PriceContext.of(worker.describe(), worker.options.level), identity, fresh)


def _hash_model(found: Any, source: bytes | str | os.PathLike[str]) -> None:
    """The message, or the file; weights that are in a file beside it are the graph's digest's to cover."""
    if isinstance(source, bytes):
        found.update(source)
        return
    with open(source, "rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)


def verified(
    runs: Any,
    inputs: Inputs,
    original: bytes | str,
    optimised: bytes | str,
    seed: int,
    noise: Any = None,
    seconds: float | None = None,
) -> Any:
    """The comparison of two models' outputs; the probes beyond ``inputs.feeds`` take ``seconds`` at most."""
    from rlflow import equivalence

    return equivalence.verify(
        runs, original, optimised, inputs.feeds, noise=noise, seed=seed, plan=inputs.plan, seconds=seconds
    )


class Export:
    """A graph written as ONNX: the message, and what the runtime loads.

    ``build`` makes the message when it is first needed, without the large weights where ``weights`` holds them; then
    the runtime maps them from there, and ``write`` writes these same bytes. Else ``save`` writes the model to a path,
    of use where the message is too large for one piece. ``external``: the weights of the original were in another
    file.
    """

    def __init__(
        self,
        build: Callable[[], ModelProto],
        folder: Callable[[], Path],
        save: Callable[[str], Any],
        external: bool,
        weights: SharedWeights | None = None,
    ) -> None:
        self._build, self._weights = build, weights
        self._folder, self._save, self._external = folder, save, external
        self._source: bytes | str | None = None
        self._whole: ModelProto | None = None
        self._size: int | None = None

    @functools.cached_property
    def model(self) -> ModelProto:
        """The message. Raises :class:`GraphError` where the model's opset cannot express the graph."""
        return self._build()

    @functools.cached_property
    def _in_file(self) -> bool:
        return self._weights is None and (self._external or self.model.ByteSize() >= _FILE_BYTES)

    @property
    def source(self) -> bytes | str:
        """Serialized ONNX or the path of a temporary file."""
        if self._source is None:
            if self._weights is not None:
                self._source = self._weights.write(self.model, f"{uuid.uuid4().hex}.onnx")
            elif self._in_file:
                self._source = os.path.join(tempfile.mkdtemp(dir=self._folder()), "model.onnx")
                self._save(self._source)
            else:
                self._source = self.model.SerializeToString(deterministic=True)
        return self._source

    def whole(self) -> ModelProto:
        """The message with all weights inside."""
        if self._weights is None:
            return self.model
        if self._whole is None:
            self._whole = self._weights.whole(self.model)
        return self._whole

    @property
    def in_one_file(self) -> bool:
        """Whether the model is written with all of its weights inside."""
        from rlflow.frontends import storage

        if self._weights is not None:
            return not storage.needs_data_file(self.model, self._external)
        return not self._in_file

    def size(self) -> int:
        """Bytes of the message with all weights inside."""
        return self.whole().ByteSize() if self._size is None else self._size

    def write(self, path: Path) -> None:
        """Write the model, with its weights beside it where they were outside the original's file or are too large for
        one.
        """
        from rlflow.frontends import storage

        if self._weights is not None and storage.needs_data_file(self.model, self._external):
            storage.write(self.model, path, self._weights.folder, self._external)
        elif self._weights is not None:
            self._size = self._weights.write_whole(self.model, path)
        elif self._in_file:
            self._save(os.fspath(path))
        else:
            write_atomically(path, self.whole().SerializeToString(deterministic=True))
