"""Models on the command line: a file, or a name of the zoo wherever a file is taken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from rlflow.errors import UsageError
from rlflow.specs import did_you_mean, whole_number


class ZooFile(os.PathLike[str]):
    """A model of the zoo, written to a temporary file: opened by its path, and shown by its name."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


class ModelFile(click.ParamType):
    """A path, or a zoo model with options (``squeezenet1.1``, ``'bert-base?seq=64&batch=2'``).

    A file of that name goes before a zoo model. What is neither is left to whoever opens it, who says so.
    """

    name = "model"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or the :class:`ZooFile`."""
        if not isinstance(value, str):
            return value
        _refuse_odd_bytes(value)
        if os.path.exists(value):
            return value
        from rlflow import zoo

        name, _, query = value.partition("?")
        if name not in zoo.names():
            if _is_path(name):
                return value
            near = did_you_mean(name, zoo.names())
            raise UsageError(f"There is no file '{name}', and the zoo has no model of that name. {near}")
        return value if ctx is None or ctx.resilient_parsing else _written(value, name, query, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Files, and names of the zoo."""
        from click.shell_completion import CompletionItem

        from rlflow import zoo

        found = [CompletionItem(name) for name in zoo.names() if name.startswith(incomplete)]
        return [*found, CompletionItem(incomplete, type="file")]


#: The one instance that arguments name.
MODEL = ModelFile()


def _refuse_odd_bytes(path: str) -> None:
    """Raises UsageError for a path that is no text: neither a runtime nor a report can name it."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"The path {os.fsencode(path)!r} is not UTF-8, and no runtime takes such a name; rename the file, or give "
            "a link to it."
        ) from error


def _is_path(name: str) -> bool:
    """Whether it is written as a path: then there is no such file, which the reader of files says best."""
    return os.sep in name or Path(name).suffix.lower() in (".onnx", ".pb", ".ort", ".onnxtxt")


def _written(value: str, name: str, query: str, ctx: click.Context) -> ZooFile:
    from rlflow import zoo
    from rlflow.files import ScratchFolder

    folder = ctx.with_resource(ScratchFolder())
    path = Path(folder) / f"{name.replace('/', '-')}.onnx"
    path.write_bytes(zoo.build(name, **_options(value, query)).SerializeToString())
    return ZooFile(value, str(path))


def _options(value: str, query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in filter(None, query.split("&")):
        key, sign, text = pair.partition("=")
        if not sign:
            raise UsageError(
                f"The model {value} cannot be read: {pair!r} has no value; expected as in bert-base?seq=64."
            )
        if key in found:
            raise UsageError(f"The model {value} cannot be read: {key!r} is given twice; give it once.")
        number = whole_number(text)
        truth = text.lower() == "true" if text.lower() in ("true", "false") else None
        found[key] = number if number is not None else text if truth is None else truth
    return found
