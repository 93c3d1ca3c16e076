"""What an interrupted run keeps: the enumerated branches and the outcomes of proofs, in a work folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlflow.errors import UsageError
from rlflow.files import write_atomically


class WorkFolder:
    """Files of one run. A folder of a run with other settings is refused, an absent one is made."""

    def __init__(self, path: Path, settings: dict[str, Any], *, resume: bool) -> None:
        self.path = path
        self._settings = json.dumps(settings, sort_keys=True)
        marker = path / "settings.json"
        try:
            path.mkdir(parents=True, exist_ok=True)
            if resume and marker.exists() and marker.read_text(encoding="utf-8") != self._settings:
                raise UsageError(
                    f"The work folder {path} belongs to a run with other settings; "
                    "resume with the same ones, or start without --resume."
                )
            if not resume:
                for old in path.iterdir():
                    if old.suffix in (".graphs", ".proofs") or old == marker:
                        old.unlink()
            write_atomically(marker, self._settings)
        except OSError as error:
            raise UsageError(f"The work folder {path} cannot be written: {error.strerror}.") from error
        self._log = (path / "outcomes.proofs").open("a", encoding="utf-8")

    def branch(self, group: str, branch: int) -> tuple[bytes, dict[str, int]] | None:
        """The graphs and counts of a branch that was finished before, if it was."""
        path = self.path / f"{group}-{branch:05d}.graphs"
        if not path.exists():
            return None
        head, _, graphs = path.read_bytes().partition(b"\n")
        return graphs, json.loads(head)

    def keep_branch(self, group: str, branch: int, graphs: bytes, counts: dict[str, int]) -> None:
        """Stores a finished branch."""
        write_atomically(self.path / f"{group}-{branch:05d}.graphs", json.dumps(counts).encode() + b"\n" + graphs)

    def proofs(self) -> dict[str, Any]:
        """Outcomes by statement; the last line may be cut off, and is then done again."""
        out = {}
        for line in (self.path / "outcomes.proofs").read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            out[entry["statement"]] = entry["outcome"]
        return out

    def keep_proof(self, statement: str, outcome: Any) -> None:
        """Appends an outcome."""
        self._log.write(json.dumps({"statement": statement, "outcome": outcome}) + "\n")
        self._log.flush()

    def close(self) -> None:
        """Closes the log."""
        self._log.close()

    def remove(self) -> None:
        """Deletes what is here: the run is complete."""
        self.close()
        for file in self.path.iterdir():
            if file.suffix in (".graphs", ".proofs", ".part") or file.name == "settings.json":
                file.unlink()
        if not any(self.path.iterdir()):
            self.path.rmdir()
