"""The plan in a model's metadata: which nodes of the runtime's graph a kernel does faster, as it was measured.

A plan is data that anybody may have edited, so nothing in it is believed: every field is checked, and unknown ones are
refused. The worst that a false plan can do is to name a slower algorithm.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rlflow.errors import ModelError, UsageError
from rlflow.files import parse_json
from rlflow.kernels.algorithms import ALGORITHMS, Tuning

#: The entry of metadata_props that holds a plan, and the version of its form.
KEY, VERSION = "rlflow.kernels", 2
_MOST_BYTES, _MOST_CHOICES, _MOST_NAME, _MOST_SIZE, _MOST_SIZES = 1 << 20, 4096, 1024, 1 << 30, 8
#: Channels of blocked tensors are compared padded to this, the largest block of any processor.
_WIDEST = 16


@dataclass(frozen=True)
class Choice:
    """An algorithm for one node. ``node``: its name in ONNX Runtime's optimised graph. ``sizes``: as its site has them
    (:class:`rlflow.frontends.kernel_sites.Site`). ``ratio``: the runtime's time over the kernel's. ``tuning``: a point
    of the algorithm's parameter space; what it leaves out has its default.
    """

    node: str
    sizes: tuple[int, ...]
    algorithm: str
    ratio: float
    tuning: Tuning = field(default_factory=dict)

    @property
    def attributes(self) -> dict[str, int]:
        """Those of the kernel's node."""
        return ALGORITHMS[self.algorithm].attributes(self.tuning)

    def fits(self, kind: str, sizes: Sequence[int]) -> bool:
        """Whether a site of this kind and these sizes may be meant; blocks of another size pad channels otherwise."""
        if kind != ALGORITHMS[self.algorithm].kind or len(sizes) != len(self.sizes):
            return False
        channels = 2 if kind.startswith("convolution") else 0
        return all(mine == its or (place < channels and _padded(mine) == _padded(its))
                   for place, (mine, its) in enumerate(zip(self.sizes, sizes, strict=True)))  # fmt: skip


@dataclass(frozen=True)
class KernelPlan:
    """What was measured: with which version of ONNX Runtime, channels in a block (0: no blocked tensors) and threads;
    how many times as fast the whole model was; and the choices.
    """

    runtime: str
    block: int
    threads: int
    speedup: float
    choices: tuple[Choice, ...]

    def text(self) -> str:
        """As it stands in the metadata."""
        named = {"version": VERSION, **asdict(self), "choices": [asdict(choice) for choice in self.choices]}
        return json.dumps(named, sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> KernelPlan:
        """Raises ModelError with the reason for everything that :meth:`text` would not write."""
        if len(text) > _MOST_BYTES:
            raise _refused(f"it has {len(text)} characters; expected at most {_MOST_BYTES}")
        try:
            given = parse_json(text)
        except ValueError as error:
            raise _refused(f"it is no JSON: {error}") from error
        fields = _fields(given, ("version", "runtime", "block", "threads", "speedup", "choices"), "the plan")
        if fields["version"] != VERSION or isinstance(fields["version"], bool):
            raise _refused(f"its version is {fields['version']!r}; this rlflow reads {VERSION}")
        choices = fields["choices"]
        if not isinstance(choices, list) or not 0 < len(choices) <= _MOST_CHOICES:
            raise _refused(f"its choices are not a list of 1 to {_MOST_CHOICES}")
        found = tuple(_choice(one) for one in choices)
        if len({one.node for one in found}) != len(found):
            raise _refused("two of its choices are for one node")
        return cls(
            _text(fields["runtime"], "runtime"),
            _integer(fields["block"], "block", (0, 8, 16)),
            _integer(fields["threads"], "threads", range(1, 4097)),
            _ratio(fields["speedup"], "speedup"),
            found,
        )


def _choice(given: Any) -> Choice:
    fields = _fields(given, ("node", "sizes", "algorithm", "ratio", "tuning"), "a choice")
    sizes, algorithm, tuning = fields["sizes"], fields["algorithm"], fields["tuning"]
    if not isinstance(sizes, list) or not 0 < len(sizes) <= _MOST_SIZES:
        raise _refused(f"the sizes of a choice are not 1 to {_MOST_SIZES} numbers")
    checked = tuple(_integer(one, "sizes", range(_MOST_SIZE)) for one in sizes)
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise _refused(f"it names the algorithm {algorithm!r}; known are {', '.join(ALGORITHMS)}")
    if not isinstance(tuning, dict):
        raise _refused("the field 'tuning' is no object")
    try:
        ALGORITHMS[algorithm].attributes(tuning)
    except UsageError as error:
        raise _refused(str(error).rstrip(".")) from error
    return Choice(_text(fields["node"], "node"), checked, algorithm, _ratio(fields["ratio"], "ratio"), tuning)


def _fields(given: Any, names: Sequence[str], what: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _refused(f"{what} is no object")
    for name in names:
        if name not in given:
            raise _refused(f"{what} has no field {name!r}")
    for name in given:
        if name not in names:
            raise _refused(f"{what} has an unknown field {str(name)[:60]!r}")
    return given


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_NAME:
        raise _refused(f"the field {name!r} is no text of 1 to {_MOST_NAME} characters")
    return value


def _integer(value: Any, name: str, allowed: Sequence[int]) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        raise _refused(f"the field {name!r} is {str(value)[:40]}, which it may not be")
    return value


def _ratio(value: Any, name: str) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0.0 < value <= 1000.0:
        raise _refused(f"the field {name!r} is {str(value)[:40]}; expected a number above 0")
    return float(value)


def _refused(why: str) -> ModelError:
    return ModelError(f"The plan of kernels in the model's metadata is refused: {why}.")


def _padded(channels: int) -> int:
    return -(-channels // _WIDEST) * _WIDEST
