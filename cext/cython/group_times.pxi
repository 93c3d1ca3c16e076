# Groups that run as one kernel each, included by _core.pyx. Conversions only.
from group_times cimport CFusedNodes, CGroupTimes


cdef class GroupTimes:
    """Groups of a network's nodes and their seconds; rlflow.placement.fusing says what the arrays hold. UsageError where they do not fit."""
    cdef unique_ptr[CGroupTimes] ptr     # owned; never changed

    def __init__(self, *, int32_t nodes, input_begin, input, busy, bytes, weight_bytes, product, int32_t most, int32_t operands,
                 double bytes_per_second, double overhead):
        cdef CFusedNodes f
        f.nodes, f.most, f.operands = nodes, most, operands
        f.input_begin, f.input = integers(input_begin), integers(input)
        f.bytes_per_second, f.overhead = bytes_per_second, overhead
        for one in busy:
            f.busy.push_back(one)
        for one in bytes:
            f.bytes.push_back(one)
        for one in weight_bytes:
            f.weight_bytes.push_back(one)
        for one in product:
            f.product.push_back(bool(one))
        self.ptr.reset(new CGroupTimes(f))

    def groups(self, level):
        """The group (nodes,) i32 of each node, the number of its first one, by a level (nodes,) i32 each."""
        cdef vector[int32_t] levels = integers(level), found
        with nogil:
            found = deref(self.ptr).groups(IntSpan(levels.data(), levels.size()))
        return array(found.data(), found.size(), "i4")

    def seconds(self, group):
        """Seconds (groups,) f64 of each group that there is, by its name; ``group``: (nodes,) i32."""
        cdef vector[int32_t] names = integers(group)
        cdef vector[double] found
        with nogil:
            found = deref(self.ptr).seconds(IntSpan(names.data(), names.size()))
        return array(found.data(), found.size(), "f8")
