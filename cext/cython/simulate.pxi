# Schedules of placements, included by _core.pyx. Conversions only.
from simulate cimport CSchedule, CSimulator, CTaskGraph, DoubleSpan, IntSpan
from libcpp.memory cimport unique_ptr


cdef vector[double] doubles(object values):
    cdef const double[::1] view = np.ascontiguousarray(values, dtype=np.float64).reshape(-1)
    cdef vector[double] out
    if view.shape[0]:
        out.assign(&view[0], &view[0] + view.shape[0])
    return out


cdef vector[int32_t] integers(object values):
    cdef const int32_t[::1] view = np.ascontiguousarray(values, dtype=np.int32).reshape(-1)
    cdef vector[int32_t] out
    if view.shape[0]:
        out.assign(&view[0], &view[0] + view.shape[0])
    return out


cdef class Simulator:
    """Schedules of one graph of tasks on one machine; rlflow.placement.tasks says what the arrays hold. UsageError where they do not fit."""
    cdef unique_ptr[CSimulator] ptr     # owned; never changed

    def __init__(self, *, int32_t tasks, int32_t devices, seconds, maker, bytes, kept, reader_begin, reader, weight_begin, weight, weight_bytes,
                 latency, per_byte, memory, bint serial_links=True):
        cdef CTaskGraph g
        g.tasks, g.devices, g.serial_links = tasks, devices, serial_links
        g.seconds, g.bytes, g.weight_bytes = doubles(seconds), doubles(bytes), doubles(weight_bytes)
        g.latency, g.per_byte, g.memory = doubles(latency), doubles(per_byte), doubles(memory)
        g.maker, g.reader_begin, g.reader = integers(maker), integers(reader_begin), integers(reader)
        g.weight_begin, g.weight = integers(weight_begin), integers(weight)
        for one in kept:
            g.kept.push_back(bool(one))
        self.ptr.reset(new CSimulator(g))

    def run(self, device, priority=None):
        """(makespan, overflow, start, finish, peak, busy) of a placement (tasks,) i32; ``priority`` (tasks,) f64: the highest goes first."""
        cdef vector[int32_t] places = integers(device)
        cdef vector[double] ranks
        if priority is not None:
            ranks = doubles(priority)
        cdef CSchedule s
        with nogil:
            s = deref(self.ptr).run(IntSpan(places.data(), places.size()), DoubleSpan(ranks.data(), ranks.size()))
        return (
            s.makespan, s.overflow, array(s.start.data(), s.start.size(), "f8"), array(s.finish.data(), s.finish.size(), "f8"),
            array(s.peak.data(), s.peak.size(), "f8"), array(s.busy.data(), s.busy.size(), "f8"),
        )

    def scores(self, devices):
        """Makespan and overflow (rows,) f64 of many placements (rows, tasks) i32."""
        cdef size_t tasks = deref(self.ptr).graph().tasks
        rows = np.ascontiguousarray(devices, dtype=np.int32).reshape(-1, max(tasks, 1))
        cdef vector[int32_t] places = integers(rows)
        cdef size_t count = rows.shape[0], i
        cdef vector[double] makespan, overflow
        cdef CSchedule s
        with nogil:
            for i in range(count):
                s = deref(self.ptr).run(IntSpan(places.data() + i * tasks, tasks), DoubleSpan())
                makespan.push_back(s.makespan)
                overflow.push_back(s.overflow)
        return array(makespan.data(), count, "f8"), array(overflow.data(), count, "f8")
