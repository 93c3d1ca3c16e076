"""A model cut into parts of equal time, each a model of its own: ``rlflow split``."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.deployment import Inputs, as_source, open_worker, verified
from rlflow.equivalence.sizes import require_open
from rlflow.errors import OutputError, RuntimeCrashed, RuntimeRefused, UsageError, VerificationFailed
from rlflow.files import unfinished, write_atomically
from rlflow.placement.contiguous import Chain, best_cuts
from rlflow.specs import check_whole
from rlflow.splitting.chain import ChainWorker, chain_runner
from rlflow.splitting.manifest import NAME, Manifest, Part, digest_of_file
from rlflow.splitting.node_costs import analytic_costs, learn_types, profiled_costs

if TYPE_CHECKING:
    from rlflow.equivalence import Verification
    from rlflow.frontends.dissection import Dissection, Piece
    from rlflow.runtime import Worker

__all__ = ["SplitResult", "split"]

#: What handing values over costs on one machine: bytes a second through the loopback, both ways, and a wake-up.
BANDWIDTH, LATENCY = 2e9, 1e-4
COSTS = ("measured", "analytic")
_ROUNDS, _SECONDS = 4, 1.5
_PROFILE_RUNS = 5
#: Seconds for trying cuts until outputs are those of the whole to the last bit, and how much longer a part may take.
_TRYING, _NEARLY = 30.0, 1.1
_ROUNDED = (
    "ONNX Runtime fuses or lays out the parts otherwise than the whole, so roundings move; no cut was found that moves "
    f"none and is at most {_NEARLY - 1:.0%} slower."
)


@dataclass(frozen=True)
class SplitResult:
    """What was written: the ``manifest`` in ``folder``. ``nodes``: working nodes of each part; ``handed``: bytes that
    each part gives to later ones; ``times``: seconds of one run of each part, by estimate where nothing was timed.
    """

    folder: Path
    manifest: Manifest
    nodes: tuple[int, ...]
    handed: tuple[int, ...]
    times: tuple[float, ...]
    verification: Verification | None
    notes: tuple[str, ...]


def split(
    model: Any,
    output: str | os.PathLike[str],
    parts: int = 2,
    *,
    cost: str = "measured",
    memory: int | None = None,
    bandwidth: float = BANDWIDTH,
    dims: Mapping[str, int] | None = None,
    input_data: Any = None,
    seed: int = 0,
    check: bool = True,
) -> SplitResult:
    """Cut ``model`` (a path, bytes or a ModelProto) into ``parts`` consecutive ones and write them to a new folder.

    The cut makes the slowest part as quick as can be: the exact optimum over all cuts of the file's topological order,
    by what nodes take here (``cost="measured"``: a profile, then the parts themselves, timed and cut again) or by their
    operations and bytes (``"analytic"``: nothing is run for it). ``memory``: bytes of weights and values that a part
    may need. ``bandwidth``: bytes a second between parts. ``dims``, ``input_data``, ``seed``: of the inputs on which
    the chain of parts is compared with the whole, unless ``check`` is off.

    Raises :class:`UsageError`, :class:`ModelError`, :class:`OutputError`, and :class:`VerificationFailed`, after which
    nothing is written.
    """
    from rlflow.frontends import load_model
    from rlflow.frontends.dissection import Dissection

    if cost not in COSTS:
        raise UsageError(f"The cost {cost!r} is unknown; choose one of {', '.join(COSTS)}.")
    check_whole(parts, "The number of parts", 1)
    target = _free_folder(output)
    imported = load_model(model)
    require_open(dims or {}, [imported])
    taken = Dissection(model)
    _drop_plan(taken)
    source = as_source(model)
    with open_worker(1) as worker, _new_folder(target) as folder:
        learn_types(worker, source, taken)
        inputs = None
        if check or cost == "measured":
            inputs = Inputs.of(worker, source, imported.graph, dict(dims or {}), input_data, seed)
        how = (_name(model), _ranges(imported), dict(dims or {}), bandwidth, cost == "measured")
        work = _Cutting(taken, worker, inputs, source, *how)
        chosen = work.measured(folder, parts, memory) if cost == "measured" else work.once(folder, parts, memory)
        chosen = work.to_the_last_bit(folder, chosen, memory)
        found = None
        if check and inputs is not None:
            runs = chain_runner(worker, os.fspath(folder), chosen.manifest)
            found = verified(runs, inputs, source, os.fspath(folder), seed)
            if not found.passed:
                raise VerificationFailed(
                    f"The parts do not compute what the whole computes, and nothing was written. {found.failure()}"
                )
    notes = (*taken.notes, *(inputs.notes if inputs else ()), *chosen.notes)
    return replace(chosen, folder=target, verification=found, notes=notes)


class _Cutting:
    """A model that is being cut: what its nodes cost, and the parts as they were written last."""

    def __init__(
        self,
        taken: Dissection,
        worker: Worker,
        inputs: Inputs | None,
        source: bytes | str,
        name: str,
        ranges: dict[str, tuple[float, float]],
        dims: dict[str, int],
        bandwidth: float,
        measures: bool,
    ) -> None:
        self.taken, self.worker, self.inputs, self.source, self.name = taken, worker, inputs, source, name
        self.ranges = ranges
        self.sizes = dict(inputs.sizes.values) if inputs else dims
        self.bytes = taken.value_bytes(self.sizes)
        self.chain = chain_of(taken, self.bytes, self._costs(measures), bandwidth)

    def _costs(self, measures: bool) -> np.ndarray:
        found = None
        if measures and self.inputs is not None:
            found = profiled_costs(self.worker, self.source, self.taken, self.inputs.feeds[0], _PROFILE_RUNS)
        return analytic_costs(self.taken, self.bytes, self.sizes) if found is None else found

    def once(self, folder: Path, parts: int, memory: int | None) -> SplitResult:
        """The best cut by the costs as they are."""
        cuts = best_cuts(self.chain, parts, memory=memory)
        return self._written(folder, cuts, self.chain.times(cuts))

    def measured(self, folder: Path, parts: int, memory: int | None) -> SplitResult:
        """The best cut whose parts were timed. What they take corrects the costs of their nodes, which a profile sees
        without the runtime's optimisations, and the next cut goes by that.
        """
        best: tuple[float, list[int], list[float]] | None = None
        seen: list[list[int]] = []
        while len(seen) < _ROUNDS:
            cuts = best_cuts(self.chain, parts, memory=memory)
            if cuts in seen:
                break
            seen.append(cuts)
            written = self._written(folder, cuts, [])
            times = self._timed(folder, written.manifest)
            if times is None:
                return replace(written, times=tuple(self.chain.times(cuts)))
            slowest = max(self._correct(cuts, times))
            if best is None or slowest < best[0]:
                best = slowest, cuts, times
        assert best is not None
        return self._written(folder, best[1], best[2])

    def to_the_last_bit(self, folder: Path, chosen: SplitResult, memory: int | None) -> SplitResult:
        """``chosen`` or, where it moves roundings, another that moves none, if there is one: the same cut with images
        handed over in the runtime's own layout, then other cuts of nearly the same time, which do not go through what
        the runtime fuses. The parts in ``folder`` are those of the answer.
        """
        if self.inputs is None or len(chosen.nodes) == 1:
            return chosen
        whole, cuts = self._whole(), [int(one) for one in np.cumsum(chosen.nodes)[:-1]]
        first, limit, times = cuts, _NEARLY * max(self.chain.times(cuts)), chosen.times
        end = time.monotonic() + _TRYING
        while time.monotonic() < end:
            found = self._exact(folder, cuts, times, whole)
            if found is not None:
                return found
            rounding = [one for one in cuts if self._exact(folder, [one], [], whole) is None] if len(cuts) > 1 else cuts
            handed = self.chain.handed.copy()
            handed[rounding or cuts] = np.inf
            self.chain = replace(self.chain, handed=handed)
            try:
                cuts = best_cuts(self.chain, len(chosen.nodes), memory=memory)
            except UsageError:
                break
            times = tuple(self.chain.times(cuts))
            if max(times) > limit:
                break
        return replace(self._written(folder, first, chosen.times), notes=(_ROUNDED,))

    def _exact(
        self, folder: Path, cuts: Sequence[int], times: Sequence[float], whole: Mapping[str, Any]
    ) -> SplitResult | None:
        """The parts of these cuts, plainly or with pools, if they give what the whole gives to the last bit."""
        for pooled in (False, True):
            written = self._written(folder, cuts, times, pooled)
            if self._same(folder, written.manifest, whole):
                return written
        return None

    def _whole(self) -> Mapping[str, Any]:
        """What the whole gives for the first input, as deployed."""
        assert self.inputs is not None
        handle = self.worker.load(self.source)
        try:
            return self.worker.run(handle, self.inputs.feeds[0])
        finally:
            self.worker.unload(handle)

    def _same(self, folder: Path, manifest: Manifest, whole: Mapping[str, Any]) -> bool:
        """Whether the parts give what the whole gives, bit by bit."""
        assert self.inputs is not None
        chain = ChainWorker(self.worker, os.fspath(folder), manifest)
        try:
            loaded = chain.load(os.fspath(folder))
            try:
                found = chain.run(loaded, self.inputs.feeds[0])
            finally:
                chain.unload(loaded)
        except (RuntimeRefused, RuntimeCrashed):
            return False
        return all(np.asarray(found[name]).tobytes() == np.asarray(value).tobytes() for name, value in whole.items())

    def _correct(self, cuts: Sequence[int], times: Sequence[float]) -> list[float]:
        """Scales the costs of each part's nodes to what the part took; the times with what is handed over."""
        cost, chain = self.chain.cost.copy(), self.chain
        ends = [0, *cuts, chain.nodes]
        whole = []
        for begin, end, took in zip(ends, ends[1:], times, strict=False):
            cost[begin:end] *= took / max(float(cost[begin:end].sum()), 1e-12)
            whole.append(took + float(chain.handed[begin] + chain.handed[end]))
        self.chain = replace(chain, cost=cost)
        return whole

    def _timed(self, folder: Path, manifest: Manifest) -> list[float] | None:
        """Seconds of one run of each part, side by side; ``None`` where they do not run."""
        assert self.inputs is not None
        chain = ChainWorker(self.worker, os.fspath(folder), manifest)
        try:
            loaded = chain.load(os.fspath(folder))
            try:
                known = chain.values(loaded, self.inputs.feeds[0])
                feeds = [{info.name: known[info.name] for info in part.inputs} for part in manifest.parts]
                samples = self.worker.time_interleaved(
                    loaded.handles, feeds, rounds=200, seconds=_SECONDS, min_rounds=3
                )
            finally:
                chain.unload(loaded)
        except (RuntimeRefused, RuntimeCrashed):
            return None
        clock = samples.by(self.worker.options.effective_clock)
        return [float(one) / 1e3 for one in np.median(clock, axis=0)]

    def _written(self, folder: Path, cuts: Sequence[int], times: Sequence[float], pooled: bool = False) -> SplitResult:
        """Writes the parts, in place of those that are there; ``pooled``: see :meth:`Dissection.piece`."""
        for old in folder.iterdir():
            old.unlink()
        ends = [0, *cuts, self.chain.nodes]
        ranges = [range(begin, end) for begin, end in pairwise(ends)]
        last = len(ranges) - 1
        pieces = [self.taken.piece(one, f"part_{k}", last=k == last, pooled=pooled) for k, one in enumerate(ranges)]
        share = np.asarray(times if times else self.chain.times(cuts))
        share = share / max(float(share.sum()), 1e-30)
        written = tuple(self._part(folder, k, piece, float(share[k])) for k, piece in enumerate(pieces))
        manifest = Manifest(
            self.name,
            tuple(map(self._info, self.taken.inputs)),
            tuple(map(self._info, self.taken.outputs)),
            written,
            self.ranges,
            {name: int(size) for name, size in self.sizes.items()},
        )
        write_atomically(folder / NAME, manifest.text())
        later = [{name for piece in pieces[k + 1 :] for name in piece.inputs} for k in range(len(pieces))]
        handed = tuple(
            sum(self.bytes[name] for name in piece.outputs if name in names)
            for piece, names in zip(pieces, later, strict=True)
        )
        return SplitResult(folder, manifest, tuple(map(len, ranges)), handed, tuple(times), None, ())

    def _part(self, folder: Path, number: int, piece: Piece, share: float) -> Part:
        path = folder / f"part-{number}.onnx"
        self.taken.write(piece, path)
        data = sorted(one for one in folder.iterdir() if one.name.startswith(f"{path.name}.data"))
        weights = {tensor.name for tensor in piece.model.graph.initializer}
        return Part(
            path.name,
            digest_of_file(path),
            {one.name: digest_of_file(one) for one in data},
            tuple(map(self._info, piece.inputs)),
            tuple(map(self._info, piece.outputs)),
            share,
            sum(size for name, size in self.taken.weight_bytes.items() if name in weights),
        )

    def _info(self, name: str) -> Any:
        from rlflow.runtime import TensorInfo

        tensor = self.taken.tensor(name)
        return TensorInfo(name, tensor.dtype or "other", tensor.shape or (), tensor.dtype is not None)


def chain_of(taken: Dissection, value_bytes: Mapping[str, int], cost: np.ndarray, bandwidth: float) -> Chain:
    """The working nodes in order, as the programme takes them; ``cost`` [n] in seconds."""
    n = len(taken.nodes)
    last = {name: index for index, names in enumerate(taken.reads) for name in names}
    crossing, blocked, alive = np.zeros(n + 2), np.zeros(n + 2), np.zeros(n + 1)
    outputs = set(taken.outputs)
    for name in (*taken.inputs, *(name for names in taken.makes for name in names)):
        made, size = taken.maker(name), value_bytes[name]
        end = n - 1 if name in outputs else last.get(name, -1)
        begin = 0 if made is None else made
        alive[begin : end + 1] += size
        if made is not None and last.get(name, made) > made:
            crossing[made + 1] += size
            crossing[last[name] + 1] -= size
            if not taken.tensor(name).carried:
                blocked[made + 1] += 1
                blocked[last[name] + 1] -= 1
    handed = np.cumsum(crossing)[: n + 1] / bandwidth + LATENCY
    handed[np.cumsum(blocked)[: n + 1] > 0] = np.inf
    handed[[0, n]] = 0.0
    return Chain(np.asarray(cost, np.float64), handed, alive[:n], taken.weights, taken.weight_bytes)


def _ranges(imported: Any) -> dict[str, tuple[float, float]]:
    from rlflow.graph.ranges import input_ranges

    return {name: (float(low), float(high)) for name, (low, high) in input_ranges(imported.graph).items()}


def _drop_plan(taken: Dissection) -> None:
    """A plan of kernels names convolutions of the whole."""
    from rlflow.kernels.plan import KEY

    kept = [entry for entry in taken.model.metadata_props if entry.key != KEY]
    del taken.model.metadata_props[:]
    taken.model.metadata_props.extend(kept)


def _name(model: Any) -> str:
    return os.path.basename(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else "a model in memory"


# -- the folder


def _free_folder(output: str | os.PathLike[str]) -> Path:
    """The output folder, once it is clear that it can be made; raises OutputError."""
    path = Path(os.path.abspath(output))
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        what = "is not empty" if path.is_dir() else "is a file"
        raise OutputError(f"The output {output} {what}; parts go to a new folder. Give another name, or remove it.")
    if not path.parent.is_dir():
        raise OutputError(f"The output {output} cannot be written: there is no directory {path.parent}; make it first.")
    return path


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder beside ``target`` that becomes it where the block ends well, and is removed where it does not."""
    import shutil

    try:
        folder = tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise OutputError(f"The output {target} cannot be written: {error.strerror or error}.") from error
    with unfinished(folder):
        try:
            yield Path(folder)
            os.chmod(folder, 0o755)
            if target.exists():
                target.rmdir()
            os.rename(folder, target)
        except OSError as error:
            raise OutputError(f"The output {target} cannot be written: {error.strerror or error}.") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
