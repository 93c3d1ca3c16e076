"""Agents that learn which rewrites to make, and the adapters that make them search strategies.

``xrlflow``: proximal policy optimisation over a graph neural network (``docs/agents.md``). ``rlflow``: world models
(``docs/worldmodel.md``). ``chain_lessons``: the training of the policy by which ``rlflow.search.levin`` goes. What they
share is here: logs, the way down by price, and what makes an agent a strategy. Training one, and using a world model,
needs ``pip install 'rlflow[rl]'``; a trained policy runs in the core. Importing this package opens nothing.
"""
