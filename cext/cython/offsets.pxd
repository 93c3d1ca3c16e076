# Declarations of the packing of buffers (offsets.h); no code.
from libc.stdint cimport int64_t
from libcpp cimport bool as cbool
from libcpp.optional cimport optional
from libcpp.vector cimport vector

from core cimport translate_exception

cdef extern from "rlflow/offsets.h" namespace "rlflow" nogil:
    cdef cppclass CTimedBuffer "rlflow::TimedBuffer":
        int64_t begin, end, size
    cdef cppclass CPacking "rlflow::Packing":
        optional[vector[int64_t]] offsets
        cbool exhausted
        int64_t opened
    CPacking pack_buffers(const vector[CTimedBuffer]&, int64_t, int64_t) except +translate_exception
