"""Who works, as a user says it: ``4``, ``ray``, ``ray://head:10001``."""

from __future__ import annotations

from dataclasses import dataclass

from rlflow.crew.task_list import Crew, Make
from rlflow.errors import UsageError
from rlflow.registry import not_installed
from rlflow.specs import whole_number


@dataclass(frozen=True)
class Workers:
    """``count`` processes of this machine (0: this process alone), or those of a Ray cluster.

    ``cluster``: ``ray`` is the cluster that this machine is part of, else one of its own; ``ray://HOST:PORT`` is
    another machine's. ``device``: only the workers that joined under this name (``rlflow worker --device NAME``).
    """

    count: int = 0
    cluster: str | None = None
    device: str | None = None

    @classmethod
    def parse(cls, text: str, device: str | None = None) -> Workers:
        """Raises :class:`UsageError` for what is none of the three, or where Ray is not installed."""
        if text == "ray" or text.startswith("ray://"):
            missing = not_installed("Ray", "ray", "[ray]")
            if missing is not None:
                raise UsageError(
                    f"The workers {text!r} were asked for, and {missing}; or give a number of processes of this "
                    "machine."
                )
            return cls(cluster=text, device=device)
        if device is not None:
            raise UsageError(
                f"The device {device!r} names workers of a Ray cluster; say which cluster with --workers ray or "
                "--workers ray://HOST:PORT."
            )
        count = whole_number(text)
        if count is None:
            raise UsageError(
                f"The number of workers is {text!r}; expected a whole number, ray, or ray://HOST:PORT."
            )
        return cls(count)

    @property
    def alone(self) -> bool:
        """Whether nobody but this process works."""
        return self.cluster is None and self.count == 0

    def crew(self, make: Make) -> Crew:
        """Those who work. Raises :class:`RlflowError` where the cluster cannot be reached, :class:`UsageError` where it
        has no such device.
        """
        if self.cluster is not None:
            from rlflow.crew.ray_crew import RayCrew

            return RayCrew(make, self.cluster, self.device)
        from rlflow.crew.local_crew import HereCrew, ProcessCrew

        return ProcessCrew(make, self.count) if self.count else HereCrew(make)
