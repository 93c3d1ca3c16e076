# Declarations of the e-graph (egraph*.h); no code.
from libc.stdint cimport uint8_t, uint32_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

from core cimport CGraph, CPricer, CRule, CStopToken, translate_exception

cdef extern from "rlflow/egraph.h" namespace "rlflow::egraph" nogil:
    uint32_t kNone
    cdef cppclass CEGraph "rlflow::egraph::EGraph":
        size_t node_count()
        size_t class_count()
        size_t node_capacity()
        size_t class_capacity()
        size_t filtered_count()
        size_t unions()
        cbool clean()
        uint32_t find(uint32_t)
        uint32_t class_of(uint32_t)
        uint32_t data(uint32_t)
        cbool unite(uint32_t, uint32_t) except +translate_exception
        void rebuild() except +translate_exception
        string broken_invariant() except +translate_exception
        string term_text(uint32_t)

cdef extern from "rlflow/egraph_run.h" namespace "rlflow::egraph" nogil:
    cdef cppclass RewriteRule:
        string name
    cdef cppclass RunOptions:
        size_t iterations, nodes, multi_iterations, match_limit, ban_length
        double seconds
    cdef cppclass IterationReport:
        size_t iteration, nodes, classes, filtered, matches, applied, unions, banned
        double multi_seconds, search_seconds, apply_seconds, rebuild_seconds, cycle_seconds
    cdef cppclass RuleCount "rlflow::egraph::Runner::RuleCount":
        size_t matches, applied, banned
    cdef cppclass CRunner "rlflow::egraph::Runner":
        cbool apply_rule(size_t) except +translate_exception
        const vector[IterationReport]& reports()
        const vector[RuleCount]& counts()
        vector[uint32_t] roots()

cdef extern from "rlflow/egraph_extract.h" namespace "rlflow::egraph" nogil:
    cdef cppclass CExtraction "rlflow::egraph::Extraction":
        uint32_t classes
        vector[uint32_t] node_class, child_begin, child, roots
        vector[double] cost
        size_t nodes()
        void check() except +translate_exception
    vector[uint32_t] greedy_tree(const CExtraction&) except +translate_exception
    vector[uint32_t] greedy_dag(const CExtraction&) except +translate_exception
    double choice_cost(const CExtraction&, const vector[uint32_t]&)
    vector[uint32_t] components(const CExtraction&) except +translate_exception
    cdef cppclass CSimplified "rlflow::egraph::Simplified":
        CExtraction problem
        vector[uint32_t] node, cls, fixed
    CSimplified simplify(const CExtraction&) except +translate_exception
    vector[uint32_t] expand(const CExtraction&, const CSimplified&, const vector[uint32_t]&) except +translate_exception

cdef extern from "egraph_bridge.h" namespace "rlflow::bridge" nogil:
    cdef cppclass ENodeArrays:
        vector[uint32_t] id, op, attr, cls, child_begin, child
        vector[uint8_t] filtered
    shared_ptr[CEGraph] make_egraph(const string&) except +translate_exception
    shared_ptr[CEGraph] clone_egraph(const CEGraph&) except +translate_exception
    string egraph_op_name(const CEGraph&, uint32_t) except +translate_exception
    string egraph_attr_text(const CEGraph&, uint32_t, uint32_t) except +translate_exception
    string egraph_data_text(const CEGraph&, uint32_t) except +translate_exception
    uint32_t egraph_parse(CEGraph&, const string&) except +translate_exception
    uint32_t egraph_add(CEGraph&, const string&, uint32_t, const vector[uint32_t]&) except +translate_exception
    shared_ptr[RewriteRule] egraph_rule(CEGraph&, const string&, const vector[string]&, cbool) except +translate_exception
    ENodeArrays egraph_nodes(const CEGraph&) except +translate_exception
    size_t egraph_filter_cycles(CEGraph&, const vector[uint32_t]&) except +translate_exception
    cbool egraph_has_cycle(const CEGraph&, const vector[uint32_t]&) except +translate_exception
    pair[size_t, size_t] egraph_reachable(const CEGraph&, const vector[uint32_t]&) except +translate_exception
    CExtraction egraph_snapshot(const CEGraph&, const vector[uint32_t]&, vector[uint32_t]&, vector[uint32_t]&) except +translate_exception
    vector[double] egraph_tensat_costs(const CEGraph&, const vector[uint32_t]&, double, double, double) except +translate_exception
    shared_ptr[CRunner] make_runner(shared_ptr[CEGraph], const vector[shared_ptr[RewriteRule]]&, const vector[uint32_t]&, RunOptions,
                                    const string&, const string&, shared_ptr[CStopToken]) except +translate_exception
    string run_runner(CRunner&) except +translate_exception
    shared_ptr[CEGraph] make_table_egraph(const CGraph&, vector[uint32_t]&) except +translate_exception
    vector[uint32_t] egraph_add_graph(CEGraph&, const CGraph&) except +translate_exception
    string egraph_declined(const CRule&) except +translate_exception
    vector[shared_ptr[RewriteRule]] egraph_table_rules(const CEGraph&, shared_ptr[const CRule]) except +translate_exception
    vector[double] egraph_table_costs(const CEGraph&, const vector[uint32_t]&, const CPricer&) except +translate_exception
    vector[double] egraph_weight_bytes(const CEGraph&, const vector[uint32_t]&) except +translate_exception
    shared_ptr[const CGraph] egraph_chosen(const CEGraph&, const CGraph&, const vector[uint32_t]&, const CExtraction&, const vector[uint32_t]&,
                                           const vector[uint32_t]&, const vector[uint32_t]&) except +translate_exception
