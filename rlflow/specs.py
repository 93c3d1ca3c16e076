"""``name:option=value,option=value``: how a strategy, a cost model or whatever else has options is written in one word.

The options of a thing are the parameters of what makes it: the fields of a dataclass, the arguments of ``__init__`` or
of a function, with the types and defaults that stand there. The docstring says a line about each, behind its name in
double backquotes and a colon.
"""

from __future__ import annotations

import difflib
import inspect
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rlflow.errors import UsageError, brief

__all__ = [
    "MOST_SECONDS", "MOST_SIZE", "Option", "about", "arguments", "byte_count", "bytes_text", "check_names",
    "check_number", "check_seconds", "check_whole", "did_you_mean", "is_number", "name_of", "nested", "options_of",
    "pair", "split", "text_of", "title_of", "whole_number", "written",
]  # fmt: skip

_LISTED = 60
#: The longest time that anything may be given, in seconds: some four months.
MOST_SECONDS = 1e7
#: The largest size that a dimension may be given.
MOST_SIZE = 2**31 - 1
#: Longer numbers mean nothing, and Python does not read those of thousands of digits.
_DIGITS = 40
_BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
#: What a text can be read as, in the order in which it is tried.
_READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "bool": (lambda text: _BOOLS[text.lower()], "true or false"),
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "str": (str, "text"),
}
_UNSAID = ("int", "float", "str")
_NAMED = re.compile(r"``(\w+)")
#: A cross-reference of Sphinx, whose markup means nothing on a terminal.
_REFERENCE = re.compile(r":\w+:`~?([^`]+)`")


class Option(NamedTuple):
    """A hyper-parameter. ``types``: what a text for it is read as; none where only Python can give it a value."""

    name: str
    types: tuple[str, ...]
    default: Any = None
    doc: str = ""

    @property
    def type(self) -> str:
        """The types in a word, for listings."""
        return "|".join(self.types) or "object"

    def read(self, text: str, what: str) -> Any:
        """The value that ``text`` means; ``what`` has the option. Raises :class:`UsageError`."""
        if not self.types:
            raise UsageError(f"The option {self.name!r} of {what} cannot be written as text; give its value in Python.")
        for kind in self.types:
            try:
                return _READERS[kind][0](text)
            except (ValueError, KeyError):
                continue
        expected = " or ".join(_READERS[kind][1] for kind in self.types)
        raise UsageError(f"The option {self.name!r} of {what} is {text!r}; expected {expected}.")


# --- specifications --------------------------------------------------------------------------------------------------


def name_of(spec: str) -> str:
    """What stands before the colon."""
    return spec.partition(":")[0].strip()


def pair(text: str) -> tuple[str, str] | None:
    """The two sides of ``name=value``; ``None`` where there is no value."""
    name, equals, value = text.partition("=")
    return (name.strip(), value.strip()) if equals else None


def split(spec: str, what: str) -> tuple[str, dict[str, str]]:
    """The name and the options, as text; ``what`` it is in words. Raises :class:`UsageError` where a value lacks."""
    name, options = name_of(spec), {}
    for part in filter(None, (piece.strip() for piece in spec.partition(":")[2].split(","))):
        found = pair(part)
        if found is None:
            raise UsageError(f"The option {part!r} of {what} {name!r} has no value; write {name}:{part}=… .")
        options[found[0]] = found[1]
    return name, options


def whole_number(text: str) -> int | None:
    """The number of 0 or more that ``text`` writes in the digits 0 to 9; ``None`` where it does not."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def is_number(value: Any) -> bool:
    """Whether it is a number and not a truth value."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_whole(value: Any, what: str, least: int) -> None:
    """Raises :class:`UsageError`, in which ``what`` names it, where ``value`` is no whole number from ``least`` on."""
    if not is_number(value) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise UsageError(f"{what} is {brief(repr(value), 40)}; expected a whole number of {least} or more.")


def check_names(value: Any, what: str, example: str) -> dict[str, Any]:
    """A value by name as a new dictionary, an empty one for ``None``. Raises :class:`UsageError`, in which ``what``
    names it, for anything else; ``example`` is what to write.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise UsageError(f"{what} are {brief(repr(value), 40)}; expected a dictionary by name, such as {example}.")
    return dict(value)


def check_seconds(value: Any, what: str) -> None:
    """Raises :class:`UsageError`, in which ``what`` names it, where ``value`` is no time that anything may take."""
    check_number(value, what, MOST_SECONDS, " seconds")


def check_number(value: Any, what: str, most: float, unit: str = "") -> None:
    """Raises :class:`UsageError`, in which ``what`` names it, where ``value`` is not above zero and at most ``most``,
    or is no number.
    """
    if not is_number(value) or not 0.0 < value <= most:
        raise UsageError(f"{what} must be above zero{unit} and at most {most:.9g}, not {brief(repr(value), 40)}.")


def nested(text: str) -> str:
    """``beam:width=4,twins=1`` from ``beam(width=4;twins=1)``: so it is written inside an option."""
    return text.strip().replace("(", ":", 1).replace(";", ",").removesuffix(")")


def written(name: str, options: Mapping[str, Any]) -> str:
    """The inverse of :func:`split`."""
    return name + (":" if options else "") + ",".join(f"{key}={text_of(value)}" for key, value in options.items())


def text_of(value: Any) -> str:
    """A value as it is written behind an option."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def arguments(maker: Callable[..., Any], given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Arguments for ``maker``: texts are read as the types of its options say, everything else is taken as it is.

    Raises :class:`UsageError` for an option that there is not, or a text that cannot be read.
    """
    known = options_of(maker)
    values = {}
    for name, value in given.items():
        if name not in known and not _takes_any(maker):
            raise UsageError(f"The {what} has no option {name!r}. {did_you_mean(name, known)}")
        option = known.get(name, Option(name, _UNSAID))
        values[name] = option.read(value, what) if isinstance(value, str) else value
    return values


def did_you_mean(word: str, known: Iterable[str], shown_by: str = "") -> str:
    """A closing sentence for an unknown name: the nearest ones where some are near, else all, or how many there are and
    the command that lists them, if ``shown_by`` names one.
    """
    choices = sorted(known)
    if not choices:
        return "There is none."
    near = difflib.get_close_matches(word, choices, n=3, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    if len(choices) <= _LISTED:
        return f"There are: {', '.join(choices)}."
    return f"There are {len(choices)} others{f'; `{shown_by}` lists them' if shown_by else ''}."


# --- options ---------------------------------------------------------------------------------------------------------


def options_of(maker: Callable[..., Any]) -> dict[str, Option]:
    """The options of what ``maker`` makes, by name. An ``__init__`` that hands ``**options`` on has its base's too."""
    docs = [one.__doc__ or "" for one in (maker.__mro__ if isinstance(maker, type) else [maker])]
    found = _parameters(maker)
    return {name: Option(name, _types(one), one.default, _said(name, found, docs)) for name, one in found.items()}


def _parameters(maker: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found: dict[str, inspect.Parameter] = {}
    for function in _initialisers(maker):
        for one in inspect.signature(function).parameters.values():
            if one.name != "self" and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                found.setdefault(one.name, one)
    return found


def title_of(maker: Callable[..., Any]) -> str:
    """What a docstring says before it comes to the options."""
    doc, begins = _flat(maker.__doc__ or ""), _beginning(_parameters(maker))
    return _plain(doc if begins is None else begins.split(doc, maxsplit=1)[0])


def about(maker: Callable[..., Any]) -> list[dict[str, str]]:
    """The options as plain data: name, type, default and a line each."""
    return [
        {"name": one.name, "type": one.type, "default": text_of(one.default), "doc": one.doc}
        for one in options_of(maker).values()
    ]


def _initialisers(maker: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The functions whose parameters count, up to the first that does not hand on what it does not know."""
    if not isinstance(maker, type):
        return [maker]
    own = [vars(one)["__init__"] for one in maker.__mro__[:-1] if "__init__" in vars(one)]
    last = next((k for k, one in enumerate(own) if not _hands_on(one)), len(own) - 1)
    return own[: last + 1]


def _hands_on(function: Callable[..., Any]) -> bool:
    return any(one.kind is one.VAR_KEYWORD for one in inspect.signature(function).parameters.values())


def _takes_any(maker: Callable[..., Any]) -> bool:
    functions = _initialisers(maker)
    return bool(functions) and _hands_on(functions[-1])


def _types(one: inspect.Parameter) -> tuple[str, ...]:
    """What texts for a parameter are read as, by its annotation as it is written (nothing is imported for it)."""
    if one.annotation is one.empty:
        return (type(one.default).__name__,) if type(one.default).__name__ in _READERS else _UNSAID
    said = one.annotation
    text = said if isinstance(said, str) else getattr(said, "__name__", str(said))
    while "[" in text and (shorter := re.sub(r"\[[^\[\]]*\]", "", text)) != text:
        text = shorter
    words = {word.strip() for word in text.split("|")}
    return tuple(kind for kind in _READERS if kind in words)


def _flat(doc: str) -> str:
    return " ".join(_REFERENCE.sub(r"\1", doc).split())


def _plain(text: str) -> str:
    """Without marks of code, without what the maker raises, and without what joined it to the next option."""
    return re.split(r"(?:^|(?<=[.;] ))Raises ", text)[0].replace("``", "").strip(" ;")


def _beginning(options: Iterable[str]) -> re.Pattern[str] | None:
    """How a docstring begins to speak about some of these options: ``one``: …, or ``one``, ``two``: …, or a sentence
    that begins with ``one``.
    """
    known = "|".join(map(re.escape, options))
    named = rf"(?:``\w+``, )*``(?:{known})``(?:, ``\w+``)*: "
    return re.compile(rf"{named}|(?:^|(?<=[.;] ))(?=``(?:{known})\b)") if known else None


def _said(option: str, options: Iterable[str], docs: Iterable[str]) -> str:
    """What the first docstring that names an option says about it: the text behind its name, up to the next option or
    the end of the paragraph; or else the sentence that has it.
    """
    begins = _beginning(options)
    if begins is None:
        return ""
    for doc in docs:
        sentence = ""
        for paragraph in re.split(r"\n\s*\n", doc):
            text = _flat(paragraph)
            marks = list(begins.finditer(text))
            ends = [*(mark.start() for mark in marks[1:]), len(text)]
            for mark, end in zip(marks, ends, strict=False):
                told = text[mark.end() : end]
                if option in _NAMED.findall(mark[0]):
                    return _plain(told)
                if not mark[0] and not sentence and option in _NAMED.findall(told):
                    sentence = _plain(told)
        if sentence:
            return sentence
    return ""


_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_BYTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B)?\s*", re.IGNORECASE)


def byte_count(value: Any, what: str) -> int:
    """The bytes that ``512MB``, ``1.5GiB`` or a whole number mean. Raises :class:`UsageError`, in which ``what`` names
    it, for anything else and for zero.
    """
    found = _BYTES.fullmatch(str(value)) if not isinstance(value, bool) else None
    count = int(float(found[1]) * _UNITS[(found[2] or "").lower()]) if found and len(str(value)) < 40 else 0
    if count < 1:
        raise UsageError(f"{what[:1].upper()}{what[1:]} is {brief(value, 40)!r}; expected bytes, as in 512MB or 2GiB.")
    return count


def bytes_text(count: float) -> str:
    """``1.5 MB``: bytes to three digits."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
