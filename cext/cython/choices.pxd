# Declarations of choices under a limit (choices.h); no code.
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.vector cimport vector

from core cimport translate_exception

cdef extern from "rlflow/choices.h" namespace "rlflow" nogil:
    cdef cppclass CChoiceGraph "rlflow::ChoiceGraph":
        vector[int32_t] choice_begin, first, second
        vector[double] cost, usage, table
        vector[int64_t] begin, end, table_begin
        double limit
    cdef cppclass CChosen "rlflow::Chosen":
        vector[int32_t] choice
        double cost, bound
        int64_t rounds
    CChosen choose(const CChoiceGraph&, double, int64_t, uint64_t) except +translate_exception
