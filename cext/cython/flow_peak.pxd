# Declarations of what a flow in parts needs (flow_peak.h); no code.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from core cimport translate_exception

cdef extern from "rlflow/flow_peak.h" namespace "rlflow" nogil:
    cdef cppclass CFlowPart "rlflow::FlowPart":
        int32_t outer
        vector[int32_t] input_begin, input, output_begin, output, reuse_begin, reuse_input, reuse_output, bits, layout, node
        vector[int32_t] shape, filled_shape, kind, filled_kind, veiled
        vector[double] flops
        vector[int64_t] workspace, bytes, filled_bytes
        vector[uint8_t] hidden, scalar
        void check() except +translate_exception
    cdef cppclass CFlowChange "rlflow::FlowChange":
        int32_t first, last
        const CFlowPart* part
    cdef cppclass CFlowNeeds "rlflow::FlowNeeds":
        int64_t peak, live, moved
        int32_t node, jobs
        double flops
    cdef cppclass FlowChanges "std::span<const rlflow::FlowChange>":
        FlowChanges(const CFlowChange*, size_t)
    cdef cppclass CFlowPeak "rlflow::FlowPeak":
        CFlowPeak(CFlowPart, vector[int32_t], vector[int32_t], int64_t) except +translate_exception
        CFlowNeeds needs(FlowChanges) except +translate_exception
