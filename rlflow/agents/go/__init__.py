"""GO: one policy that decides about all nodes of a graph at once.

Zhou et al., "Transferable Graph Optimizers for ML Compilers", NeurIPS 2020.

``config`` has the hyper-parameters, ``network`` the policy, ``surrogate`` how it learns from decisions, ``lessons`` the
graphs that it learns on, ``teaching`` the training, ``trained`` its file, ``placer`` the placer.
"""
