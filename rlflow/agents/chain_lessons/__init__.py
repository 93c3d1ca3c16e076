"""How the policy of chains is trained, by which ``rlflow.search.levin`` searches."""
