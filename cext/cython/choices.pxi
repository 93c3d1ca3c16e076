# Choices under a limit, included by _core.pyx. Conversions only.
from choices cimport CChoiceGraph, CChosen, choose as c_choose


cdef vector[int64_t] long_integers(object values):
    cdef const int64_t[::1] view = np.ascontiguousarray(values, dtype=np.int64).reshape(-1)
    cdef vector[int64_t] out
    if view.shape[0]:
        out.assign(&view[0], &view[0] + view.shape[0])
    return out


def choose(*, choice_begin, cost, usage, begin, end, first, second, table_begin, table, double limit, double seconds, int64_t rounds, uint64_t seed):
    """(choice (nodes,) i32 or None, cost, bound, rounds); rlflow.placement.choosing says what the arrays hold."""
    cdef CChoiceGraph g
    g.choice_begin, g.first, g.second = integers(choice_begin), integers(first), integers(second)
    g.cost, g.usage, g.table = doubles(cost), doubles(usage), doubles(table)
    g.begin, g.end, g.table_begin = long_integers(begin), long_integers(end), long_integers(table_begin)
    g.limit = limit
    cdef CChosen found
    with nogil:
        found = c_choose(g, seconds, rounds, seed)
    if found.choice.empty() and g.begin.size():
        return None, found.cost, found.bound, found.rounds
    return array(found.choice.data(), found.choice.size(), "i4"), found.cost, found.bound, found.rounds
