"""A surrogate of the clock, for where timing a whole graph is the dear step: ``--search surrogate``.

``prior`` says what a region takes before anything was timed, out of regions of other models, by what these are
(``traits``); ``belief`` learns from the time of each whole graph what its regions take here (Bayesian linear
regression); ``strategy`` searches in that belief and times what promises the largest expected improvement (Jones,
Schonlau, Welch 1998).
"""
