"""The operators of a taso graph: TASO's names, parameters and defaults, computing what each is for.

Arguments go by position or by name; lists do for tuples; axes may be negative. Every refusal names the call and the
shapes it was made with.
"""

from __future__ import annotations

from rlflow.compat.taso.movement_calls import Movement, Reductions
from rlflow.compat.taso.pointwise import Pointwise
from rlflow.compat.taso.window_calls import Windows


class Operators(Pointwise, Windows, Movement, Reductions):
    """Methods that add an operator and return its result."""
