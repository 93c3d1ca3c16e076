"""RLFlow (Parthasarathy et al. 2022): a world model of rewriting, and who acts by it.

``train`` is the loop, to be read from top to bottom: collect, fit, dream, act, again. ``real`` and ``replay`` are what
really happened. The *latent* form is the paper's: ``latent`` (the network), ``latent_fit``, ``dream`` (the controller
learns in it), ``pilot`` and ``latent_agent``. The *graph* form ranks candidates: ``graph_world`` (the network),
``ranked`` (the search that it ranks for) and ``graph_agent``. ``strategy`` makes either a search strategy.
"""
