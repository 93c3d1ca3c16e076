# Declarations of the enumeration of graphs (enumerate.h); no code.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from core cimport AttrSet, CStopToken, translate_exception

cdef extern from "rlflow/enumerate.h" namespace "rlflow::enumeration" nogil:
    cdef struct EnumerationShape "rlflow::enumeration::Shape":
        uint8_t rank
        int extent[5]
    cdef cppclass EnumerationValue "rlflow::enumeration::Value":
        EnumerationShape shape[3]
        uint32_t begin[4]
        vector[uint64_t] residue
        vector[double] real
    cdef cppclass Record "rlflow::enumeration::Record":
        pass
    cdef cppclass Pair "rlflow::enumeration::Pair":
        pass
    cdef cppclass Space "rlflow::enumeration::Space":
        int worlds, max_ops
        int64_t max_elements
    cdef cppclass Counts "rlflow::enumeration::Counts":
        uint64_t graphs, ill_typed, repeated, reordered
    cdef cppclass PairCounts "rlflow::enumeration::PairCounts":
        uint64_t records, classes, shared_classes, pairs, parts, renamed, context, kept
    cdef cppclass CEnumerator "rlflow::enumeration::Enumerator":
        size_t branch_count()
        vector[Record] inputs()
        vector[EnumerationValue] evaluate(const Record&) except +translate_exception
        const Space& space()

cdef extern from "enumerate_bridge.h" namespace "rlflow::bridge" nogil:
    void add_input(Space&, int, cbool, const vector[vector[int64_t]]&, const vector[uint64_t]&, const vector[double]&) except +translate_exception
    void add_template(Space&, const string&, int, cbool, const vector[int]&, uint64_t, const vector[vector[int64_t]]&, const string&, const vector[AttrSet]&) except +translate_exception
    shared_ptr[CEnumerator] make_enumerator(Space) except +translate_exception
    cbool run_branch(const CEnumerator&, size_t, size_t, const CStopToken*, vector[Record]&, Counts&) except +translate_exception
    vector[Pair] find_pairs(const CEnumerator&, vector[Record]&, PairCounts&, const CStopToken*) except +translate_exception
    string record_bytes "rlflow::bridge::to_bytes"(const vector[Record]&)
    string pair_bytes "rlflow::bridge::to_bytes"(const vector[Pair]&)
    void add_records(vector[Record]&, const string&) except +translate_exception
