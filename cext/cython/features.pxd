# Declarations of the graph's features (features.h); no code.
from libc.stdint cimport int32_t
from libcpp.vector cimport vector

from core cimport CGraph, CPricer, translate_exception

cdef extern from "rlflow/features.h" namespace "rlflow" nogil:
    int kNodeFeatures, kEdgeFeatures
    cdef cppclass CGraphFeatures "rlflow::GraphFeatures":
        vector[int32_t] row, op, dtype, source, target
        vector[float] node, edge
    CGraphFeatures native_features "rlflow::graph_features"(const CGraph&, const CPricer*) except +translate_exception
