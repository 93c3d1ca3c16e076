# Declarations of the memory of orders (order_peak.h); no code.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from core cimport translate_exception
from simulate cimport IntSpan

cdef extern from "rlflow/order_peak.h" namespace "rlflow" nogil:
    cdef cppclass COrderJobs "rlflow::OrderJobs":
        int32_t jobs, values
        vector[int32_t] input_begin, input, output_begin, output, candidate_begin, candidate, kind, uses
        vector[uint8_t] alias, kept
        vector[int64_t] workspace, bytes
    cdef cppclass COrderPeak "rlflow::OrderPeak":
        COrderPeak(COrderJobs) except +translate_exception
        int32_t jobs() const
        vector[int32_t] order(IntSpan) except +translate_exception
        int64_t peak(IntSpan) except +translate_exception
