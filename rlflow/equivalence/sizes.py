"""Sizes of open dimensions: what the user says, what the data show, and what has to be guessed.

A dimension is known by the name that the model gives it, or, where it has none, by its place: ``image.0`` is the first
of the input ``image``. A size is one number, or three: the least, the usual and the most that the model will meet.
"""

from __future__ import annotations

import numbers
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rlflow.errors import UsageError
from rlflow.specs import MOST_SIZE, check_names, did_you_mean

__all__ = [
    "IMAGES", "LADDER", "Extent", "Sizes", "ends", "given", "guesses", "of_shapes", "refuse_unknown", "require_open",
    "shown", "together", "told", "usual",
]  # fmt: skip

#: Sizes that are tried for dimensions of which nothing is known, until the runtime accepts one.
LADDER = (1, 2, 8, 16, 32, 64, 128, 224, 256, 512)
#: The same for the height and width of images: prices of an image of one pixel say nothing of real ones.
IMAGES = (224, 256, 512, 128, 64, 32, 16, 8, 2, 1)
#: The most channels that an input in the order N, H, W, C is taken to have.
_CHANNELS = 4
ENDS = ("least", "most")


class Extent(NamedTuple):
    """The sizes of a dimension: the least and the most that the model will meet, and the usual one."""

    least: int
    usual: int
    most: int

    @classmethod
    def of(cls, value: Any, what: str) -> Extent:
        """Of ``8``, ``"8"``, ``"1..8..64"`` or ``(1, 8, 64)``; raises UsageError, in which ``what`` names it, for
        anything else.
        """
        parts = value.split("..") if isinstance(value, str) else value if isinstance(value, (tuple, list)) else [value]
        try:
            found = [_whole(part) for part in parts]
        except (TypeError, ValueError):
            found = []
        if len(found) not in (1, 3) or not 1 <= found[0] <= found[-1] <= MOST_SIZE or sorted(found) != found:
            raise UsageError(
                f"{what} is {value!r}; expected a size above zero, such as 8, or the least, the usual and the most, "
                f"such as 1..8..64, of at most {MOST_SIZE}."
            )
        return cls(*found) if len(found) == 3 else cls(*(found * 3))


@dataclass(frozen=True)
class Sizes:
    """Every open dimension's size, and how those that nobody gave came about.

    ``guessed``: names of those that were guessed; ``tried``: guesses before these, which the runtime refused, with the
    sentence of the first refusal in ``refusal``.
    """

    values: dict[str, int]
    guessed: tuple[str, ...] = ()
    tried: int = 0
    refusal: str = field(default="", repr=False)

    @property
    def note(self) -> str | None:
        """What a report has to say: ``None`` where nothing was guessed."""
        if not self.guessed:
            return None
        why = "because nothing else was said"
        if self.tried:
            why = f"the first of {self.tried + 1} guesses that the runtime accepts"
        return f"Measured with {self._guess}, {why}; give {self._advice}."

    @property
    def blame(self) -> str:
        """What a failure that may come of a guess has to say; "" where nothing was guessed."""
        if not self.guessed:
            return ""
        return f"The sizes {self._guess} are a guess, and may be the reason: give {self._advice}."

    @property
    def _guess(self) -> str:
        return ", ".join(f"{name}={self.values[name]}" for name in self.guessed)

    @property
    def _advice(self) -> str:
        return f"{' '.join(f'--dim {name}=…' for name in self.guessed)}, or inputs with --input-data"


def usual(extents: Mapping[str, Extent]) -> dict[str, int]:
    """The usual sizes, at which a model is priced and timed."""
    return {name: extent.usual for name, extent in extents.items()}


def ends(extents: Mapping[str, Extent]) -> dict[str, dict[str, int]]:
    """The sizes at the least and at the most, by these names; those that differ from the usual ones only."""
    found = {end: {name: getattr(extent, end) for name, extent in extents.items()} for end in ENDS}
    return {end: sizes for end, sizes in found.items() if sizes != usual(extents)}


def told(end: str, sizes: Mapping[str, int]) -> str:
    """Sizes of :func:`ends` in words: ``the most sizes (N=64)``."""
    return f"the {end} sizes ({', '.join(f'{name}={size}' for name, size in sizes.items())})"


def key(name: str, axis: int, dim: int | str | None) -> str:
    """What an open dimension is called."""
    return dim if isinstance(dim, str) else f"{name}.{axis}"


def shown(infos: Sequence[Any], given: Mapping[str, Any], said: Mapping[str, int]) -> dict[str, int]:
    """``said``, and the sizes that the given arrays show."""
    bound = dict(said)
    for info in infos:
        if info.name in given:
            for axis, (dim, size) in enumerate(zip(info.shape, np.shape(given[info.name]), strict=False)):
                if not isinstance(dim, int):
                    bound.setdefault(key(info.name, axis, dim), int(size))
    return bound


def guesses(infos: Sequence[Any], bound: Mapping[str, int]) -> Iterator[Sizes]:
    """Sizes for all open dimensions: ``bound`` ones as they are, the others guessed, the likeliest guess first.

    The sizes of ``LADDER`` (``IMAGES`` for height and width) are tried one after the other for all that lead no input,
    with those that do (batches) at 1; then for all alike. Where nothing is open there is one answer.
    """
    axes: dict[str, set[int]] = {}
    images: set[str] = set()
    for info in infos:
        for axis, dim in enumerate(info.shape):
            if not isinstance(dim, int) and (name := key(info.name, axis, dim)) not in bound:
                axes.setdefault(name, set()).add(axis)
                if _of_image(axis, info.shape):
                    images.add(name)
    missing = tuple(axes)
    inner = [name for name in missing if axes[name] != {0}]
    seen: set[tuple[int, ...]] = set()
    for chosen in (inner, missing):
        for size, image in zip(LADDER, IMAGES, strict=True) if missing else ((1, 1),):
            values = {name: (image if name in images else size) if name in chosen else 1 for name in missing}
            if tuple(values.values()) not in seen:
                yield Sizes({**bound, **values}, missing, tried=len(seen))
                seen.add(tuple(values.values()))


def _of_image(axis: int, shape: Sequence[int | str | None]) -> bool:
    """Whether an axis is a height or a width: of a tensor of four axes or more, laid out N, C, H, W or N, H, W, C."""
    if len(shape) < 4:
        return False
    last = shape[-1]
    channels_last = isinstance(last, int) and last <= _CHANNELS and not isinstance(shape[1], int)
    return 1 <= axis < len(shape) - 1 if channels_last else axis >= 2


def of_shapes(shapes: Mapping[str, str], inputs: Mapping[str, Sequence[int | str | None] | None]) -> dict[str, Extent]:
    """The sizes that ``--shape`` gives: ``{"x": "1x16,4x128,8x512"}`` (least, usual, most) or ``{"x": "4x128"}``.

    ``inputs``: the dimensions of every input, open ones by name. Raises UsageError for an unknown input, another rank,
    a known dimension of another size, or a name that gets two sizes.
    """
    found: dict[str, Extent] = {}
    for name, text in shapes.items():
        if not isinstance(text, str):
            raise UsageError(f"The shape of {name!r} is {text!r}; expected text, such as '4x128'.")
        if name not in inputs:
            raise UsageError(f"The model has no input {name!r}; its inputs are {', '.join(sorted(inputs)) or 'none'}.")
        dims, rows = inputs[name], [_row(name, text, part) for part in text.split(",")]
        if dims is None:
            raise UsageError(f"The model does not say how many dimensions {name!r} has; give it with --input-data.")
        if len(rows) not in (1, 3) or any(len(row) != len(dims) for row in rows):
            raise UsageError(
                f"The shape of {name!r} is given as {text}; expected one shape of {len(dims)} numbers, or three: the "
                "least, the usual and the most."
            )
        for axis, dim in enumerate(dims):
            where = f"Dimension {axis} of the shape of {name!r}"
            extent = Extent.of(tuple(row[axis] for row in rows), where)
            if not isinstance(dim, str):
                _agree(where, extent, Extent.of(dim, where))
            elif dim in found:
                _agree(f"{where}, {dim},", extent, found[dim])
            else:
                found[dim] = extent
    return found


def together(by_name: Mapping[str, Extent], by_shape: Mapping[str, Extent]) -> dict[str, Extent]:
    """What ``--dim`` and ``--shape`` say; raises UsageError where they say two things of one dimension."""
    found = dict(by_shape)
    for name, extent in by_name.items():
        if found.setdefault(name, extent) != extent:
            raise UsageError(f"The dimension {name!r} gets one size by --dim and another by --shape; give one of them.")
    return found


def refuse_unknown(dims: Iterable[str], known: Collection[str], who: str = "The model has no") -> None:
    """Raises UsageError for the first of ``dims`` that is none of the ``known`` open dimensions."""
    for name in dims:
        if name not in known:
            raise UsageError(f"{who} open dimension {name!r}. {did_you_mean(name, known)}")


def require_open(dims: Iterable[str], imported: Sequence[Any]) -> None:
    """Raises UsageError for the first of ``dims`` that none of these models, as they were read, has."""
    known = {name for one in imported for name in one.origin.symbols | one.origin.unnamed}
    refuse_unknown(dims, known, "The model has no" if len(imported) == 1 else "None of the models has an")


def given(infos: Sequence[Any], dims: Mapping[str, Any] | None, shapes: Mapping[str, str] | None) -> dict[str, Extent]:
    """The sizes that a user gives to open dimensions of inputs that a runtime tells of (``infos``), by their names or
    by the shapes of inputs. Raises UsageError for what the model does not have.
    """
    inputs = {
        one.name: [dim if isinstance(dim, int) else key(one.name, axis, dim) for axis, dim in enumerate(one.shape)]
        for one in infos
    }
    dims = check_names(dims, "The sizes of dimensions", '{"N": 8}')
    shapes = check_names(shapes, "The shapes of inputs", '{"x": "4x128"}')
    refuse_unknown(dims, {dim for row in inputs.values() for dim in row if isinstance(dim, str)})
    by_name = {name: Extent.of(value, f"The size of the dimension {name!r}") for name, value in dims.items()}
    return together(by_name, of_shapes(shapes, inputs))


def _whole(part: Any) -> int:
    """Raises ValueError and TypeError for what is no whole number, and no text of one."""
    if isinstance(part, (bool, np.bool_)) or not isinstance(part, (str, numbers.Integral)):
        raise TypeError(part)
    return int(part)


def _row(name: str, text: str, part: str) -> list[int]:
    try:
        return [int(number) for number in part.strip().split("x")] if part.strip() else []
    except ValueError as error:
        raise UsageError(
            f"The shape of {name!r} is given as {text}; expected numbers, as in 4x128 or 1x16,4x128,8x512."
        ) from error


def _agree(where: str, given: Extent, known: Extent) -> None:
    if given != known:
        raise UsageError(f"{where} is {_text(given)}, where {_text(known)} is known.")


def _text(extent: Extent) -> str:
    return str(extent.usual) if extent.least == extent.most else "..".join(map(str, extent))
