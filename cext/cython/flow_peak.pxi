# What a flow needs with some stretches in bands, included by _core.pyx. Conversions only.
from flow_peak cimport CFlowChange, CFlowNeeds, CFlowPart, CFlowPeak, FlowChanges


cdef vector[uint8_t] marks(object values):
    cdef vector[uint8_t] out
    for one in values:
        out.push_back(bool(one))
    return out


cdef class FlowPart:
    """Jobs and their own values; rlflow.footprint.banded_peaks says what the arrays hold. UsageError where they do not fit."""
    cdef CFlowPart part     # never changed

    def __init__(self, *, int32_t outer, input_begin, input, output_begin, output, reuse_begin, reuse_input, reuse_output, bits, layout, node,
                 flops, workspace, bytes, filled_bytes, shape, filled_shape, kind, filled_kind, hidden, scalar, veiled):
        self.part.outer = outer
        self.part.input_begin, self.part.input = integers(input_begin), integers(input)
        self.part.output_begin, self.part.output = integers(output_begin), integers(output)
        self.part.reuse_begin, self.part.reuse_input, self.part.reuse_output = integers(reuse_begin), integers(reuse_input), integers(reuse_output)
        self.part.bits, self.part.layout, self.part.node = integers(bits), integers(layout), integers(node)
        self.part.flops, self.part.workspace = doubles(flops), long_integers(workspace)
        self.part.bytes, self.part.filled_bytes = long_integers(bytes), long_integers(filled_bytes)
        self.part.shape, self.part.filled_shape = integers(shape), integers(filled_shape)
        self.part.kind, self.part.filled_kind = integers(kind), integers(filled_kind)
        self.part.hidden, self.part.scalar, self.part.veiled = marks(hidden), marks(scalar), integers(veiled)
        self.part.check()


cdef class FlowPeak:
    """What a flow needs with parts in the place of some of its jobs. UsageError for parts that overlap or do not fit it."""
    cdef unique_ptr[CFlowPeak] ptr     # owned; never changed

    def __init__(self, FlowPart whole not None, given, taken, int64_t alignment):
        self.ptr.reset(new CFlowPeak(whole.part, integers(given), integers(taken), alignment))

    def needs(self, changes):
        """(peak, live, node at the peak, flops, bytes moved, jobs) with ``changes``: (first job, last job, part) each, in their order."""
        cdef vector[CFlowChange] given
        cdef CFlowChange one
        for first, last, part in changes:
            one.first, one.last, one.part = first, last, &(<FlowPart?>part).part
            given.push_back(one)
        cdef CFlowNeeds found
        with nogil:
            found = deref(self.ptr).needs(FlowChanges(given.data(), given.size()))
        return found.peak, found.live, found.node, found.flops, found.moved, found.jobs
