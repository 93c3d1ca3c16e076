# The memory that orders of jobs need, included by _core.pyx. Conversions only.
from order_peak cimport COrderJobs, COrderPeak


cdef class OrderPeak:
    """Peaks of orders of one set of jobs; rlflow.footprint.order_peaks says what the arrays hold. UsageError where they do not fit."""
    cdef unique_ptr[COrderPeak] ptr     # owned; never changed

    def __init__(self, *, int32_t jobs, int32_t values, input_begin, input, output_begin, output, candidate_begin, candidate, alias, workspace,
                 bytes, kind, kept, uses):
        cdef COrderJobs j
        j.jobs, j.values = jobs, values
        j.input_begin, j.input = integers(input_begin), integers(input)
        j.output_begin, j.output = integers(output_begin), integers(output)
        j.candidate_begin, j.candidate = integers(candidate_begin), integers(candidate)
        j.kind, j.uses = integers(kind), integers(uses)
        for one in alias:
            j.alias.push_back(bool(one))
        for one in kept:
            j.kept.push_back(bool(one))
        for one in workspace:
            j.workspace.push_back(one)
        for one in bytes:
            j.bytes.push_back(one)
        self.ptr.reset(new COrderPeak(j))

    def peak(self, order):
        """Bytes of an order (jobs,) i32."""
        cdef vector[int32_t] jobs = integers(order)
        cdef int64_t found
        with nogil:
            found = deref(self.ptr).peak(IntSpan(jobs.data(), jobs.size()))
        return found

    def order(self, level):
        """The order (jobs,) i32 that goes with a level (jobs,) i32 each: the highest goes first, of equals the first job."""
        cdef vector[int32_t] levels = integers(level), found
        with nogil:
            found = deref(self.ptr).order(IntSpan(levels.data(), levels.size()))
        return array(found.data(), found.size(), "i4")

    def peaks(self, levels):
        """Bytes (rows,) f64 of the orders that go with many levels (rows, jobs) i32."""
        cdef size_t jobs = deref(self.ptr).jobs()
        rows = np.ascontiguousarray(levels, dtype=np.int32).reshape(-1, max(jobs, 1))
        cdef vector[int32_t] given = integers(rows), one
        cdef size_t count = rows.shape[0], i
        cdef vector[double] found
        with nogil:
            for i in range(count):
                one = deref(self.ptr).order(IntSpan(given.data() + i * jobs, jobs))
                found.push_back(<double>deref(self.ptr).peak(IntSpan(one.data(), one.size())))
        return array(found.data(), count, "f8")
