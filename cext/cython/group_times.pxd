# Declarations of groups that run as one kernel each (group_times.h); no code.
from libc.stdint cimport int32_t, uint8_t
from libcpp.vector cimport vector

from core cimport translate_exception
from simulate cimport IntSpan

cdef extern from "rlflow/group_times.h" namespace "rlflow" nogil:
    cdef cppclass CFusedNodes "rlflow::FusedNodes":
        int32_t nodes, most, operands
        vector[int32_t] input_begin, input
        vector[double] busy, bytes, weight_bytes
        vector[uint8_t] product
        double bytes_per_second, overhead
    cdef cppclass CGroupTimes "rlflow::GroupTimes":
        CGroupTimes(CFusedNodes) except +translate_exception
        int32_t nodes() const
        vector[int32_t] groups(IntSpan) except +translate_exception
        vector[double] seconds(IntSpan) except +translate_exception
