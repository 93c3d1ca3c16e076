# Declarations of the simulator of placements (simulate.h); no code.
from libc.stdint cimport int32_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from core cimport translate_exception

cdef extern from "<span>" namespace "std" nogil:
    cdef cppclass IntSpan "std::span<const int32_t>":
        IntSpan()
        IntSpan(const int32_t*, size_t)
    cdef cppclass DoubleSpan "std::span<const double>":
        DoubleSpan()
        DoubleSpan(const double*, size_t)

cdef extern from "rlflow/simulate.h" namespace "rlflow" nogil:
    cdef cppclass CTaskGraph "rlflow::TaskGraph":
        int32_t tasks, devices
        vector[double] seconds, bytes, weight_bytes, latency, per_byte, memory
        vector[int32_t] maker, reader_begin, reader, weight_begin, weight
        vector[uint8_t] kept
        cbool serial_links
    cdef cppclass CSchedule "rlflow::Schedule":
        double makespan, overflow
        vector[double] start, finish, peak, busy
    cdef cppclass CSimulator "rlflow::Simulator":
        CSimulator(CTaskGraph) except +translate_exception
        const CTaskGraph& graph() const
        CSchedule run(IntSpan, DoubleSpan) except +translate_exception
