"""What a user may choose about an optimisation: one value, from the command line or the façade to the last stage.

Opens nothing before it is asked what an option means, because the command line is made from it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from rlflow.errors import UsageError
from rlflow.specs import check_names, check_number, check_seconds, check_whole

if TYPE_CHECKING:
    from rlflow.deployment import Deployment
    from rlflow.equivalence.sizes import Extent
    from rlflow.price.command import DeviceCommand
    from rlflow.search import Budget, Patience, Strategy

__all__ = ["Options", "with_keywords"]

_F = TypeVar("_F", bound=Callable[..., Any])


def _click(text: str, **more: Any) -> dict[str, Any]:
    """A field's metadata: the help of its option on the command line, and what else that needs. ``flags``: its name
    where the field's is not it. ``least``: the smallest number it may be. ``type``: its words, or a function that
    lists them when they are asked for.
    """
    return {"click": {"help": text, **more}}


def check_race_seconds(seconds: float | None) -> None:
    """Raises :class:`UsageError` where a final comparison cannot take so long; ``None`` leaves it to the budget."""
    if seconds is not None:
        check_seconds(seconds, "The time for the final comparison")


def runtime_names() -> list[str]:
    """What may be said where a runtime is named; opens none."""
    from rlflow.deployment import ON_GPU
    from rlflow.runtime import RUNTIMES

    return [*RUNTIMES.names(), ON_GPU]


class _Meanings:
    """What the fields of :class:`Options` stand for; each is read when it is first asked for."""

    allow_domain: Any
    allow_opset: Any
    alpha: Any
    budget: Any
    cost: Any
    dims: Any
    freeze: Any
    kernels: Any
    measure_cmd: Any
    numerics: Any
    only_rules: Any
    patience: Any
    provider: Any
    rules: Any
    runtime: Any
    search: Any
    skip_rules: Any
    threads: Any
    tolerance: Any
    train_budget: Any

    @functools.cached_property
    def strategy(self) -> Strategy:
        """The strategy with its options."""
        from rlflow.search import make

        try:
            made = make(self.search, alpha=self.alpha, train=self.train_budget)
            if self.alpha is not None:
                make("backtracking", alpha=self.alpha)  # one below 1 is refused; `mixed` takes 0 for none
            return made
        except UsageError as error:
            for name, option, given in (
                ("alpha", "--alpha", self.alpha),
                ("train", "--train-budget", self.train_budget),
            ):
                if given is not None and f"has no option {name!r}" in str(error):
                    raise UsageError(f"{error} Leave out {option} for this strategy.") from error
            raise

    @functools.cached_property
    def limits(self) -> Budget:
        """What may be spent."""
        from rlflow.search import Budget

        return Budget.parse(self.budget)

    @functools.cached_property
    def chosen_patience(self) -> Patience | None:
        """When the search ends before its budget does."""
        from rlflow.search import patience_of

        by_default = getattr(self.strategy, "patience_by_default", None)
        return patience_of(self.patience, self.limits, by_default)

    @functools.cached_property
    def chosen_rules(self) -> Any:
        """The rules, narrowed to the class of rounding and to those that are wanted; by default, where a clock prices
        them, with the operators that stand for many, and with the algorithms where the tolerance allows some.
        """
        from rlflow.rulesets import ALGORITHMS, TARGETS, narrowed, with_algorithms, within

        rules = self.rules
        if rules is None and self.clocked:
            rules = with_algorithms(*TARGETS, *(ALGORITHMS if self.tolerated > 1.0 else ()))
        return narrowed(within(rules, self.numerics), self.only_rules, self.skip_rules)

    @property
    def leaves_to_kernels(self) -> bool:
        """Whether the search leaves to the kernels what they do better: they are planned after it, and it does not know
        them. Rules that a caller names stay.
        """
        by_default = self.rules is None and not self.only_rules
        return self.kernels and by_default and self.clocked and not self.place.with_kernels

    @property
    def clocked(self) -> bool:
        """Whether prices are measured."""
        if not isinstance(self.cost, str):
            return bool(self.cost.measures)
        from rlflow.specs import name_of

        return name_of(self.cost) != "analytic"

    @functools.cached_property
    def tolerated(self) -> float:
        """How many times the model's own rounding error the result may have."""
        from rlflow.rewrite.tolerance import read_tolerance

        return read_tolerance(self.tolerance)

    @functools.cached_property
    def place(self) -> Deployment:
        """Where the result will run."""
        from rlflow.deployment import Deployment

        return Deployment.priced_by(self.cost, self.threads, self.runtime, self.provider, self.measure_cmd)

    @functools.cached_property
    def extents(self) -> dict[str, Extent]:
        """The least, usual and most sizes of the dimensions in ``dims``."""
        from rlflow.equivalence.sizes import Extent

        return {name: Extent.of(value, f"The size of the dimension {name!r}") for name, value in self.dims.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """Usual sizes of open dimensions by name, for measuring or for good."""
        return {**{name: extent.usual for name, extent in self.extents.items()}, **self.freeze}


@dataclass(frozen=True)
class Options(_Meanings):
    """The options of :func:`rlflow.optimize`, with their defaults.

    ``search`` and ``cost`` are names with options (``"backtracking:alpha=1.1"``) or objects. ``budget``: what pricing,
    search, final comparison and check may take together (``"60s"``, ``"5m"``, ``"1h"``), or how far the search goes,
    whatever that takes: ``"500c"`` candidates, ``"50x"`` expansions, ``"20meas"`` measurements. ``patience``:
    expansions without a worthwhile gain after which the search ends although there is budget left, ``"off"``, or
    ``"auto"``: the strategy's own (3000 for mixed and backtracking) where the budget is one of seconds. ``fresh``:
    search again, and compare in full, whatever earlier runs of the same found and kept beside the prices.
    ``train_budget``: steps (``"2000"``) or seconds (``"60s"``) for which a learned strategy is first trained on the
    model, beside the budget. ``dims`` binds open dimensions for measuring only, to one size (``8``) or to the least,
    the usual and the most (``"1..8..64"``): the model is priced and timed at the usual sizes, and checked at all three.
    One without a name is called by its place, such as ``image.0``. ``shapes`` says the same by input: ``{"x":
    "1x16,4x128,8x512"}``. ``only_usual``: write also what is slower than the original at the least or the most.
    ``freeze`` binds for good. ``input_data``: arrays by input name, or the path of a ``.npz`` file, to verify on
    besides random inputs. ``rules``: a rule library, or files and family names (default: everything that ships, and
    where prices are measured Winograd's algorithm and operators that stand for many).
    ``allow_opset``, ``allow_domain``: what the result may need beyond the model itself, an opset of ONNX up to this
    one (``keep_opset``: never an older one), and operators of these domains (``"com.microsoft"``).
    ``skip_rules``, ``only_rules``: rules to leave out of these, or to use alone, by name, by family, or by a pattern
    with ``*``. ``max_growth``: how large the weights may become by folding, in times the model's own. ``tolerance``:
    how many times the model's own rounding error the result may have, a number from 1 on, ``"strict"`` (1) or
    ``"normal"`` (10); see :mod:`rlflow.rewrite.tolerance`.
    ``numerics``: the loosest class of rounding that a rule may have, "exact" (results the same bit for bit),
    "reassociates" or "unstable" (default: no limit).
    ``runtime`` (``onnxruntime``, ``openvino``, ``cudnn``, ``torch``, another that a package
    adds, or ``gpu`` for the best on a GPU),
    ``provider`` (of ONNX Runtime) or ``measure_cmd`` (a command that prints milliseconds, see
    :class:`rlflow.price.command.DeviceCommand`) say where the model will run: the final comparison and the costs that
    use a clock are timed there. ``measure="lazy"``: regions like measured ones are priced by interpolation during the
    search. ``profile_rules``: the report says what each rule took. ``kernels``: measure our kernels for
    the result's nodes, and write a plan of those that are faster into its metadata (see :mod:`rlflow.kernels`).
    """

    search: str | Strategy = field(
        default="mixed",
        metadata=_click("Strategy, with options: backtracking:alpha=1.1,queue=500.", show_default=True),
    )
    cost: str | Any = field(
        default="onnxruntime",
        metadata=_click(
            "Cost model: onnxruntime, openvino or cudnn (measure regions), end-to-end (times whole graphs), analytic "
            "(no clock).",
            show_default=True,
        ),
    )
    budget: str | Budget = field(
        default="60s",
        metadata=_click(
            "What the run may take: 60s, 5m, 1h. Or how far the search goes: 500c (candidates), 50x (expansions), "
            "20meas (measurements).",
            show_default=True,
        ),
    )
    patience: str | int | None = field(
        default="auto",
        metadata=_click(
            "End the search after N expansions without a worthwhile gain; auto: the strategy's own, if seconds limit "
            "it.",
            show_default=True,
            metavar="N|off|auto",
        ),
    )
    fresh: bool = field(
        default=False, metadata=_click("Search again and compare in full; ignore what earlier runs kept.")
    )
    alpha: float | None = field(
        default=None, metadata=_click("Follow graphs that cost up to so many times the best one.", type=float)
    )
    train_budget: str | None = field(
        default=None,
        metadata=_click(
            "Train xrlflow's agent on the model first, for so many steps or seconds beside the budget.",
            metavar="STEPS|60s",
        ),
    )
    seed: int = field(default=0, metadata=_click("Seed of everything random.", show_default=True, least=0))
    threads: int = field(default=1, metadata=_click("Threads of the runtime.", show_default=True, least=1))
    dims: Mapping[str, int | str | tuple[int, int, int]] = field(
        default_factory=dict,
        metadata=_click(
            "Size of an open dimension (x.0: the first of x, where it has no name), for measuring only; or the least, "
            "the usual and the most: N=1..8..64.",
            flags="--dim",
            multiple=True,
            metavar="N=1",
        ),
    )
    shapes: Mapping[str, str] = field(
        default_factory=dict,
        metadata=_click(
            "Shape of an input, for measuring only; or the least, the usual and the most: x:1x16,4x128,8x512.",
            flags="--shape",
            multiple=True,
            metavar="X:4x128",
        ),
    )
    only_usual: bool = field(
        default=False,
        metadata=_click("Also write a result that is slower than the original at the least or the most size."),
    )
    freeze: Mapping[str, int] = field(
        default_factory=dict,
        metadata=_click("Size of an open dimension, for good.", multiple=True, metavar="N=1"),
    )
    input_data: Any = field(
        default=None,
        metadata=_click(
            "Inputs to verify on: a .npz file, or name=file.npy (several times).", multiple=True, metavar="FILE"
        ),
    )
    rules: Any = field(
        default=None, metadata=_click("Use these rules instead of all that ship.", multiple=True, metavar="FILE|FAMILY")
    )
    skip_rules: Sequence[str] = field(
        default=(),
        metadata=_click(
            "Leave a rule out: its name, its family, or a pattern such as 'winograd-*'.",
            flags="--skip-rule",
            multiple=True,
            metavar="NAME",
        ),
    )
    only_rules: Sequence[str] = field(
        default=(), metadata=_click("Use these rules alone; named as in --skip-rule.", multiple=True, metavar="NAME")
    )
    max_growth: float = field(
        default=1.25,
        metadata=_click(
            "How large folding may make the weights, in times the model's own.", type=float, show_default=True
        ),
    )
    runtime: str = field(
        default="onnxruntime",
        metadata=_click(
            "Runtime that times and runs the result; gpu: ONNX Runtime on CUDA, else torch, else cudnn.",
            show_default=True,
            type=runtime_names,
        ),
    )
    provider: str | None = field(
        default=None, metadata=_click("Execution provider of ONNX Runtime: cuda, or any full name.", metavar="NAME")
    )
    measure: str = field(
        default="eager",
        metadata=_click(
            "lazy: regions like measured ones are priced by interpolation; the final comparison is timed all the same.",
            show_default=True,
            type=("eager", "lazy"),
        ),
    )
    measure_cmd: str | DeviceCommand | None = field(
        default=None,
        metadata=_click(
            "Time on your own device: a command that prints milliseconds, 'ssh board run.sh {model}'.",
            metavar="COMMAND",
        ),
    )
    gate_seconds: float | None = field(
        default=None, metadata=_click("Seconds for the final comparison. [default: a third of the budget]", type=float)
    )
    numerics: str | None = field(
        default=None,
        metadata=_click(
            "Loosest rounding a rule may have; exact: every element the same bit for bit.",
            type=("exact", "reassociates", "unstable"),
        ),
    )
    profile_rules: bool = field(
        default=False, metadata=_click("Show for each rule how often it was tried, matched and applied, and its time.")
    )
    verify: bool = field(
        default=True, metadata=_click("Do not compare the outputs with the original's.", flags="--no-verify")
    )
    allow_opset: int | None = field(
        default=None,
        metadata=_click(
            "Newest ONNX opset that the result may need; it is raised only where that gains. [default: the model's]",
            metavar="N",
            type=int,
        ),
    )
    keep_opset: bool = field(default=False, metadata=_click("Never write the result for an older, faster opset."))
    allow_domain: Sequence[str] = field(
        default=(),
        metadata=_click(
            "Domain whose operators the result may have; com.microsoft ties it to ONNX Runtime.",
            multiple=True,
            metavar="DOMAIN",
        ),
    )
    kernels: bool = field(
        default=False,
        metadata=_click("Measure kernels of our own (Winograd and others), and write a plan into the metadata."),
    )
    tolerance: str | float = field(
        default="normal",
        metadata=_click(
            "How many times the model's own rounding error the result may have: strict is 1, normal is 10.",
            show_default=True,
            metavar="strict|normal|N",
            type=str,
        ),
    )
    keep_initializer_inputs: bool = field(
        default=False, metadata=_click("Keep weights that are also listed as inputs (a runtime cannot fold these).")
    )

    @classmethod
    def of(cls, base: Options | None, keywords: Mapping[str, Any]) -> Options:
        """``base`` (the defaults where it is ``None``), changed by keywords. Raises :class:`UsageError`."""
        known = [one.name for one in dataclasses.fields(cls)]
        for name in keywords:
            if name not in known:
                from rlflow.specs import did_you_mean

                raise UsageError(f"An optimisation has no option {name!r}. {did_you_mean(name, known)}")
        return dataclasses.replace(base or cls(), **keywords)

    def __post_init__(self) -> None:
        for name, what, example in (
            ("dims", "The sizes of dimensions", '{"N": 8}'),
            ("shapes", "The shapes of inputs", '{"x": "4x128"}'),
            ("freeze", "The dimensions to freeze", '{"N": 8}'),
        ):
            object.__setattr__(self, name, check_names(getattr(self, name), what, example))
        for name in ("skip_rules", "only_rules", "allow_domain"):
            given = getattr(self, name) or ()
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        check_number(self.max_growth, "How many times as large the weights may become", 1e6)
        self._check_allowed()
        check_whole(self.threads, "The number of threads", 1)
        check_whole(self.seed, "The seed", 0)
        for name in ("seed", "threads"):
            object.__setattr__(self, name, int(getattr(self, name)))
        check_race_seconds(self.gate_seconds)
        _check_kinds(self)
        if self.dims:
            self.extents  # noqa: B018 - raises

    def _check_allowed(self) -> None:
        if self.allow_opset is not None and (not isinstance(self.allow_opset, int) or self.allow_opset < 1):
            raise UsageError(f"The newest opset allowed is {self.allow_opset!r}; expected a number such as 23.")
        if self.allow_domain:
            from rlflow.ops import ASKED_DOMAINS

            for domain in self.allow_domain:
                if domain not in ASKED_DOMAINS:
                    known = ", ".join(ASKED_DOMAINS)
                    raise UsageError(f"No rule needs operators of the domain {domain!r}; known are: {known}.")


def _check_kinds(options: Options) -> None:
    """Raises :class:`UsageError` for what only Python can give: values of another kind."""
    for one in dataclasses.fields(options):
        value = getattr(options, one.name)
        if isinstance(one.default, bool) and not isinstance(value, bool):
            raise UsageError(f"The option {one.name!r} is {value!r}; expected True or False.")
    for name, mark, what in (("search", "run", "strategy"), ("cost", "measures", "cost model")):
        value = getattr(options, name)
        if not isinstance(value, str) and not hasattr(value, mark):
            raise UsageError(f"The {name} is {value!r}; expected the name of a {what}, or a {what}.")


def with_keywords(function: _F) -> _F:
    """Decorator: ``function(…, **keywords)`` shows the fields of :class:`Options` in its signature."""
    shown = inspect.signature(function)
    own = [one for one in shown.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    made = [
        inspect.Parameter(one.name, keyword, default=getattr(Options(), one.name), annotation=one.type)
        for one in dataclasses.fields(Options)
    ]
    function.__signature__ = shown.replace(parameters=[*own, *made])  # type: ignore[attr-defined]
    return function
