"""The graphs before and after, as two drawings to move about in, and, on paper, what changed in them piece by piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rlflow.report.graph_drawing import DrawnNode, around, pieces, svg, tiles

__all__ = ["drawn", "graphs"]

#: Larger graphs are drawn around what changed, so many edges far.
_WHOLE, _HOPS = 400, 3
#: So many drawings of each graph are printed, at most; the largest fills a page.
_PRINTED = 6


def graphs(before: Any, after: Any) -> str:
    """Two ModelProtos, with what differs in colour."""
    from rlflow.frontends.difference import difference

    found = difference(before, after)
    if found.none:
        return "<p>Nothing: the model is as it came.</p>"
    states = [dict.fromkeys(found.removed, "removed"), dict.fromkeys(found.added, "added")]
    states[0] |= {one.before: "changed" for one in found.changed}
    states[1] |= {one.after: "changed" for one in found.changed}
    sides = [
        (drawn(model, state), title)
        for model, state, title in zip((before, after), states, ("Before", "After"), strict=True)
    ]
    key = "".join(f'<span class="{state}">{state}</span>' for state in ("removed", "added", "changed"))
    others = "".join(f"<li>{escape(one)}</li>" for one in found.others)
    return (
        f'<p class="key">{key}</p><div class="two screen">{"".join(_graph(*one) for one in sides)}</div>'
        '<p class="dim screen">Drag to move. Use the buttons, or Ctrl and the wheel, to zoom. Point at a node for its '
        f"whole name.</p>{''.join(_printed(*one) for one in sides)}" + (f"<ul>{others}</ul>" if others else "")
    )


def _graph(nodes: Sequence[DrawnNode], title: str) -> str:
    shown = nodes if len(nodes) <= _WHOLE else around(nodes, _HOPS)
    hidden = len(nodes) - len(shown)
    count = f"{len(nodes)} nodes" + (f", {hidden} of them far from any change and not drawn" if hidden else "")
    does = (("in", "+"), ("out", "−"), ("whole", "Whole"), ("next", "Next change"))
    buttons = "".join(f'<button type="button" data-do="{what}">{text}</button>' for what, text in does)
    drawing = svg(shown, f"{title}: {count}") or '<p style="padding:12px">Nothing changed on this side.</p>'
    return f'<div class="graph"><header><b>{title}</b><span class="dim">{count}</span>{buttons}</header>{drawing}</div>'


def _printed(nodes: Sequence[DrawnNode], title: str) -> str:
    """What changed, at a size that can be read on paper: alike pieces once, large ones in parts."""
    changed = sum(node.state != "same" for node in nodes)
    text: list[str] = []
    left = 0
    for piece, times in pieces(nodes):
        parts = tiles(piece, f"{title}: a part that changed")
        room = max(_PRINTED - len(text), 0)
        left += max(len(parts) - room, 0)
        caption = f"<figcaption>{times} times, here the first</figcaption>" if times > 1 else ""
        text += [f'<figure class="piece">{part}{caption}</figure>' for part in parts[:room]]
    more = f'<p class="dim">{left} more drawings are not printed; the page on a screen has all.</p>' if left else ""
    count = f"{changed} of {len(nodes)} nodes, with their neighbours" if changed else "nothing changed on this side"
    return f'<div class="print"><h3>{title}: {count}</h3><div class="pieces">{"".join(text)}</div>{more}</div>'


def drawn(model: Any, states: Mapping[int, str]) -> list[DrawnNode]:
    """A ModelProto's main graph without constants, which many nodes may read.

    ``states``: by position in ``model.graph.node``.
    """
    from rlflow.frontends.difference import operator

    made: dict[str, int] = {}
    nodes: list[DrawnNode] = []
    for place, node in enumerate(model.graph.node):
        if node.op_type == "Constant":
            continue
        name = node.name or next((output for output in node.output if output), "")
        reads = tuple(dict.fromkeys(made[one] for one in node.input if one in made))
        nodes.append(DrawnNode(operator(node), name, reads, states.get(place, "same")))
        made.update({output: len(nodes) - 1 for output in node.output if output})
    return nodes
