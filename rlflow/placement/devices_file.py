"""``devices.json``: the devices that a model is placed on, and the links between them."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from rlflow.errors import UsageError, brief
from rlflow.files import check_readable, parse_json
from rlflow.placement.work import Devices
from rlflow.specs import byte_count

__all__ = ["read_devices"]

_MOST_BYTES, _MOST_DEVICES = 1 << 20, 64
_FIELDS = {
    "devices": {"name", "speed", "memory"},
    "links": {"from", "to", "bandwidth", "latency_us"},
}
#: A link of which the file says nothing.
_BANDWIDTH, _LATENCY_US = "1GB", 10.0


def read_devices(path: str | os.PathLike[str]) -> Devices:
    """The devices of a file:

        {"devices": [{"name": "a", "speed": 1.0, "memory": "512MB"}, {"name": "b", "speed": 2.0}],
         "link": {"bandwidth": "1GB", "latency_us": 10},
         "links": [{"from": "a", "to": "b", "bandwidth": "10GB", "latency_us": 5}]}

    ``speed``: a node takes its time divided by this (1 where nothing is said); ``memory``: bytes; ``bandwidth``: bytes
    a second. ``link`` describes every link that ``links`` does not, and a link of ``links`` both ways unless the other
    way is there, too. Raises UsageError for anything else.
    """
    check_readable(path, "The devices file", UsageError)
    if os.path.getsize(path) > _MOST_BYTES:
        raise UsageError(
            f"The devices file '{path}' has {os.path.getsize(path)} bytes; expected {_MOST_BYTES} at most."
        )
    try:
        with open(path, "rb") as stream:
            return _devices(parse_json(stream.read()))
    except (ValueError, UsageError) as error:
        raise UsageError(f"The devices file '{path}' cannot be used: {brief(error).rstrip('.')}.") from error


def _devices(found: Any) -> Devices:
    if not isinstance(found, dict) or not isinstance(found.get("devices"), list) or not found["devices"]:
        raise ValueError('expected {"devices": [{"name": …}, …]} with at least one device')
    unknown = sorted(set(found) - {"devices", "link", "links"})
    if unknown:
        raise ValueError(f"the field {unknown[0]!r} is unknown; there are devices, link and links")
    if len(found["devices"]) > _MOST_DEVICES:
        raise ValueError(f"it has {len(found['devices'])} devices; expected {_MOST_DEVICES} at most")
    entries = [_entry(one, "devices", f"device {number}") for number, one in enumerate(found["devices"])]
    names = tuple(_name(one, f"device {number}") for number, one in enumerate(entries))
    if len(set(names)) < len(names):
        raise ValueError(f"two devices are called {next(n for n in names if names.count(n) > 1)!r}")
    speed = [_number(one.get("speed", 1.0), f"the speed of {name}") for one, name in zip(entries, names, strict=True)]
    memory = [
        float(byte_count(one["memory"], f"the memory of {name}")) if "memory" in one else math.inf
        for one, name in zip(entries, names, strict=True)
    ]
    latency, per_byte = _links(found, names)
    return Devices(names, np.array(speed), np.array(memory), latency, per_byte)


def _links(found: dict[str, Any], names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(latency, seconds a byte), [D, D] each."""
    usual = _entry(found.get("link", {}), "links", "the field link")
    count = len(names)
    first = _link(usual, "the field link")
    latency, per_byte = np.full((count, count), first[0]), np.full((count, count), first[1])
    links = found.get("links", [])
    if not isinstance(links, list):
        raise ValueError("links is not a list")
    said = set()
    for number, one in enumerate(links):
        entry = _entry(one, "links", f"link {number}")
        ends = []
        for key in ("from", "to"):
            if entry.get(key) not in names:
                raise ValueError(f"link {number} has {key} {entry.get(key)!r}; the devices are {', '.join(names)}")
            ends.append(names.index(entry[key]))
        a, b = ends
        if a == b:
            raise ValueError(f"link {number} leads from {names[a]} to itself")
        value = _link({**usual, **entry}, f"link {number}")
        for way in ((a, b), *([(b, a)] if (b, a) not in said else [])):
            latency[way], per_byte[way] = value
        said.add((a, b))
    np.fill_diagonal(latency, 0.0)
    np.fill_diagonal(per_byte, 0.0)
    return latency, per_byte


def _link(entry: dict[str, Any], what: str) -> tuple[float, float]:
    wait = entry.get("latency_us", _LATENCY_US)
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not 0 <= wait < 1e12:
        raise ValueError(f"the latency_us of {what} is {brief(wait, 40)!r}; expected microseconds, 0 or more")
    return float(wait) * 1e-6, 1.0 / byte_count(entry.get("bandwidth", _BANDWIDTH), f"the bandwidth of {what}")


def _entry(one: Any, kind: str, what: str) -> dict[str, Any]:
    if not isinstance(one, dict):
        raise ValueError(f"{what} is no object in braces")
    unknown = sorted(set(one) - _FIELDS[kind])
    if unknown:
        raise ValueError(f"{what} has the unknown field {unknown[0]!r}; there are {', '.join(sorted(_FIELDS[kind]))}")
    return one


def _name(one: dict[str, Any], what: str) -> str:
    name = one.get("name")
    if not isinstance(name, str) or not name.strip() or len(name) > 200:
        raise ValueError(f"{what} has no name")
    return name


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e12:
        raise ValueError(f"{what} is {brief(value, 40)!r}; expected a number above zero")
    return float(value)
