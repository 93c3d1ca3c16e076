# Declarations of the policy's network (policy_net.h); no code.
from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

from core cimport translate_exception
from simulate cimport IntSpan

cdef extern from "<span>" namespace "std" nogil:
    cdef cppclass FloatSpan "std::span<const float>":
        FloatSpan()
        FloatSpan(const float*, size_t)

cdef extern from "rlflow/policy_net.h" namespace "rlflow" nogil:
    cdef enum CPolicyMessage "rlflow::PolicyMessage":
        kAttention "rlflow::PolicyMessage::kAttention"
        kMean "rlflow::PolicyMessage::kMean"
        kSum "rlflow::PolicyMessage::kSum"
    cdef cppclass CPolicyForm "rlflow::PolicyForm":
        int64_t hidden, layers, heads, ops, rules, rule_size
        CPolicyMessage message
        cbool children, prior
    cdef cppclass CPolicyWeight "rlflow::PolicyWeight":
        string name
        vector[int64_t] shape
        vector[float] values
    cdef cppclass CPolicyGraph "rlflow::PolicyGraph":
        IntSpan op, dtype, source, target
        FloatSpan node, edge
    cdef cppclass CEncodedGraph "rlflow::EncodedGraph":
        int64_t rows
        vector[float] nodes, graph
    cdef cppclass EncodedSpan "std::span<const rlflow::EncodedGraph* const>":
        EncodedSpan()
        EncodedSpan(CEncodedGraph**, size_t)
    cdef cppclass CPolicyState "rlflow::PolicyState":
        IntSpan rule, touched, touched_by
        FloatSpan globals, delta
    cdef cppclass CPolicyScores "rlflow::PolicyScores":
        vector[float] logits
        float value
    cdef cppclass CPolicyNet "rlflow::PolicyNet":
        CPolicyNet(const CPolicyForm&, const vector[CPolicyWeight]&) except +translate_exception
        CEncodedGraph encode(const CPolicyGraph&, cbool) except +translate_exception
        CPolicyScores score(const CEncodedGraph&, const CPolicyState&, EncodedSpan) except +translate_exception
