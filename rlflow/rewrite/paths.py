"""Where the rules that ship with the package are: inside it, or beside it in a source tree."""

from __future__ import annotations

from pathlib import Path

from rlflow.errors import RuleError

_PACKAGE = Path(__file__).resolve().parent.parent
LOADED_FOLDERS = ("core",)  # `unproved/` is never loaded
# Loaded where a rule or family of theirs is asked for by name.
NAMED_FOLDERS = ("imported", "generated", "algorithms", "targets")


def substitutions_dir() -> Path:
    """The folder with ``schema.json``, ``core/`` and ``generated/``. Raises RuleError where the installation has
    none."""
    for folder in (_PACKAGE / "_substitutions", _PACKAGE.parent / "substitutions"):
        if (folder / "core").is_dir():
            return folder
    raise RuleError(
        f"the rule library is missing: neither {_PACKAGE / '_substitutions'} nor "
        f"{_PACKAGE.parent / 'substitutions'} holds a folder 'core'; install the package again"
    )


def library_files() -> list[Path]:
    """The rule files that are loaded by default, in a fixed order."""
    return _files(LOADED_FOLDERS)


def named_files() -> list[Path]:
    """The rule files that ship too, but are loaded by name only, in a fixed order."""
    return _files(NAMED_FOLDERS)


def _files(folders: tuple[str, ...]) -> list[Path]:
    root = substitutions_dir()
    return [path for folder in folders for path in sorted((root / folder).glob("*.json"))]


def is_shipped(path: Path) -> bool:
    """Whether a rule file belongs to the package (its proofs were made with it); anything else is proved again when
    it is loaded."""
    try:
        return path.resolve().is_relative_to(substitutions_dir())
    except RuleError:
        return False
