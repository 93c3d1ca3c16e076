"""Agents that learn which rewrites to make, and the adapters that make them search strategies.

``xrlflow``: proximal policy optimisation over a graph neural network (``docs/agents.md``). ``rlflow``: world models
(``docs/worldmodel.md``). Training and using one needs ``pip install 'rlflow[rl]'``; importing this package opens
nothing.
"""

from __future__ import annotations

#: Forms of a world model.
FORMS = ("latent", "graph")
