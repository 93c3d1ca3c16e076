# Declarations of the pricer (cost.h); no code. CPricer and RegionMap themselves are declared in core.pxd.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

from core cimport CGraph, Hash128, Int, NodeId, ValueId, translate_exception

cdef extern from "rlflow/cost.h" namespace "rlflow" nogil:
    cdef cppclass CRegion "rlflow::Region":
        NodeId head
        vector[NodeId] nodes
        vector[ValueId] inputs, outputs
        Hash128 signature, base_signature
        int64_t price
        double flops, bytes
        cbool view, opaque, blocked, reorder_output
        uint32_t reorder_inputs
    cdef cppclass CRegionMap "rlflow::RegionMap":
        uint32_t regions, unknown, unpriced
        int64_t weight_bytes
        double known_ms()
    cdef cppclass FullPricer "rlflow::Pricer":
        cbool is_table()
        int block()
        void set_price(const Hash128&, double) except +translate_exception
        void set_view_price(double) except +translate_exception
        double find_price(const Hash128&)
        size_t price_count()
        uint64_t revision()
        CRegionMap map(const CGraph&) except +translate_exception
        vector[CRegion] regions(const CGraph&) except +translate_exception
    double to_ms(int64_t)

cdef extern from "cost_bridge.h" namespace "rlflow::bridge" nogil:
    shared_ptr[FullPricer] make_analytic_pricer(double, double, double, double, double, const string&) except +translate_exception
    shared_ptr[FullPricer] make_table_pricer(const string&, int) except +translate_exception
    void bind_dims(FullPricer&, const vector[pair[string, Int]]&) except +translate_exception
    string fusion_name(const FullPricer&)
    string region_kind(const CRegion&)
    cbool has_price(int64_t)
