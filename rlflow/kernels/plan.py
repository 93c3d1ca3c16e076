"""The plan in a model's metadata: which nodes of the runtime's graph a kernel does faster, as it was measured.

A plan is data that anybody may have edited, so nothing in it is believed: every field is checked, and unknown ones are
refused. The worst that a false plan can do is to name a slower algorithm. It names no file: generated code is used
only where the user names a library, and where that is the one that the plan describes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rlflow.errors import UsageError
from rlflow.files import parse_json
from rlflow.kernels.algorithms import ALGORITHMS, Tuning
from rlflow.kernels.generated_code import GeneratedCode
from rlflow.kernels.plan_fields import fields_of, integer_of, ratio_of, refused, text_of

#: The entry of metadata_props that holds a plan, and the version of its form; that of one with generated code.
KEY, VERSION, CODE_VERSION = "rlflow.kernels", 2, 3
_MOST_BYTES, _MOST_CHOICES, _MOST_SIZE, _MOST_SIZES = 1 << 20, 4096, 1 << 30, 8
_FIELDS = ("version", "runtime", "block", "threads", "speedup", "choices")
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
        algorithm = ALGORITHMS[self.algorithm]
        if not algorithm.does(kind) or len(sizes) != len(self.sizes) or not algorithm.takes(sizes):
            return False
        channels = 2 if kind.startswith("convolution") else 0
        return all(mine == its or (place < channels and _padded(mine) == _padded(its))
                   for place, (mine, its) in enumerate(zip(self.sizes, sizes, strict=True)))  # fmt: skip


@dataclass(frozen=True)
class KernelPlan:
    """What was measured: with which version of ONNX Runtime, channels in a block (0: no blocked tensors) and threads;
    how many times as fast the whole model was; and the choices. ``generated``: the nodes that generated code does.
    """

    runtime: str
    block: int
    threads: int
    speedup: float
    choices: tuple[Choice, ...]
    generated: GeneratedCode | None = None

    def text(self) -> str:
        """As it stands in the metadata."""
        named = {"version": VERSION, **asdict(self), "choices": [asdict(choice) for choice in self.choices]}
        if self.generated is None:
            del named["generated"]
        else:
            named["version"] = CODE_VERSION
        return json.dumps(named, sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> KernelPlan:
        """Raises ModelError with the reason for everything that :meth:`text` would not write."""
        if len(text) > _MOST_BYTES:
            raise refused(f"it has {len(text)} characters; expected at most {_MOST_BYTES}")
        try:
            given = parse_json(text)
        except ValueError as error:
            raise refused(f"it is no JSON: {error}") from error
        version = given.get("version") if isinstance(given, dict) else None
        with_code = version == CODE_VERSION
        fields = fields_of(given, (*_FIELDS, "generated") if with_code else _FIELDS, "the plan")
        if version not in (VERSION, CODE_VERSION) or isinstance(version, bool):
            raise refused(f"its version is {version!r}; this rlflow reads {VERSION} and {CODE_VERSION}")
        choices = fields["choices"]
        if not isinstance(choices, list) or not (not with_code) <= len(choices) <= _MOST_CHOICES:
            raise refused(f"its choices are not a list of 1 to {_MOST_CHOICES}")
        found = tuple(_choice(one) for one in choices)
        generated = GeneratedCode.parse(fields["generated"]) if with_code else None
        nodes = [one.node for one in found] + [one.node for one in (generated.choices if generated else ())]
        if len(set(nodes)) != len(nodes):
            raise refused("two of its choices are for one node")
        return cls(
            text_of(fields["runtime"], "runtime"),
            integer_of(fields["block"], "block", (0, 8, 16)),
            integer_of(fields["threads"], "threads", range(1, 4097)),
            ratio_of(fields["speedup"], "speedup"),
            found,
            generated,
        )


def _choice(given: Any) -> Choice:
    fields = fields_of(given, ("node", "sizes", "algorithm", "ratio", "tuning"), "a choice")
    sizes, algorithm, tuning = fields["sizes"], fields["algorithm"], fields["tuning"]
    if not isinstance(sizes, list) or not 0 < len(sizes) <= _MOST_SIZES:
        raise refused(f"the sizes of a choice are not 1 to {_MOST_SIZES} numbers")
    checked = tuple(integer_of(one, "sizes", range(_MOST_SIZE)) for one in sizes)
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise refused(f"it names the algorithm {algorithm!r}; known are {', '.join(ALGORITHMS)}")
    if not isinstance(tuning, dict):
        raise refused("the field 'tuning' is no object")
    try:
        ALGORITHMS[algorithm].attributes(tuning)
    except UsageError as error:
        raise refused(str(error).rstrip(".")) from error
    return Choice(text_of(fields["node"], "node"), checked, algorithm, ratio_of(fields["ratio"], "ratio"), tuning)


def _padded(channels: int) -> int:
    return -(-channels // _WIDEST) * _WIDEST
