"""X-RLflow (He, Singh, Yoneki 2023): a policy over graphs and their candidates, trained by PPO.

``ppo`` is the algorithm, to be read from top to bottom: play, advantages, the clipped loss, the training. ``players``
says where episodes are played, ``training`` what is kept of a training, ``demonstrations`` and ``imitation`` what a
policy may begin with. ``walker`` and ``ways`` use a trained policy; ``strategy`` makes it a search strategy.
"""
