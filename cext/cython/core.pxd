# Declarations of the C++ core; no code.
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector

cdef extern from "bridge.h" namespace "rlflow::bridge" nogil:
    void translate_exception()

cdef extern from "rlflow/hash.h" namespace "rlflow" nogil:
    cdef cppclass Hash128:
        pass
    string to_hex(const Hash128&)
    Hash128 from_hex(const string&) except +translate_exception

cdef extern from "rlflow/types.h" namespace "rlflow" nogil:
    ctypedef int64_t Int
    Int kUnknown
    cbool is_plain(Int)
    Int int_parse(const string&) except +translate_exception
    string int_text(Int)
    cdef cppclass TensorType:
        int dtype
        int rank
        vector[Int] dims
    ctypedef uint32_t TypeId
    TypeId intern_type(const TensorType&) except +translate_exception
    const TensorType& type_of(TypeId)
    string type_text(TypeId)

cdef extern from "rlflow/attrs.h" namespace "rlflow" nogil:
    cdef cppclass ConstInfo:
        TypeId type
        Hash128 digest
        cbool inline_values
        vector[double] floats
        vector[Int] ints
        cbool has_facts
        double min
        double max
        cbool uniform
        cbool finite
    ctypedef uint32_t ConstId
    ConstId intern_const(const ConstInfo&) except +translate_exception
    const ConstInfo& const_of(ConstId)
    cdef cppclass AttrValue:
        pass
    cdef cppclass AttrSet:
        vector[pair[string, AttrValue]] items
        void set(const string&, AttrValue) except +translate_exception
        const AttrValue* find(const string&)
    ctypedef uint32_t AttrId
    const AttrSet& attrs_of(AttrId)

cdef extern from "rlflow/ops.h" namespace "rlflow" nogil:
    ctypedef uint16_t OpId
    cdef cppclass AttrDefault:
        string name
        AttrValue value
    cdef cppclass OpInfo:
        OpId id
        string name
        int since, min_inputs, max_inputs, outputs
        uint32_t flags
        vector[AttrDefault] defaults
        vector[string] attributes
    const vector[OpInfo]& op_table()
    OpId find_op(const string&) except +translate_exception
    cbool has_op(const string&)
    const OpInfo& op_info(OpId)

cdef extern from "rlflow/ops_extension.h" namespace "rlflow" nogil:
    string shape_rule_text(const OpInfo&)
    string flops_text(const OpInfo&)

cdef extern from "rlflow/graph.h" namespace "rlflow" nogil:
    ctypedef uint32_t NodeId
    ctypedef uint32_t ValueId
    ValueId kNoValue
    NodeId kNoNode
    cdef cppclass Node:
        OpId op
        uint16_t flags
        AttrId attrs
        uint32_t in_begin, out_begin
        uint16_t in_count, out_count
    cdef cppclass CGraph "rlflow::Graph":
        size_t node_capacity()
        size_t value_capacity()
        size_t node_count()
        const Node& node(NodeId)
        cbool alive(NodeId)
        NodeId producer(ValueId)
        int output_index(ValueId)
        TypeId type(ValueId)
        const vector[Int]* data(ValueId)
        const ConstInfo* constant(ValueId)
        uint32_t position(NodeId)
        int output_uses(ValueId)
        const Hash128& node_digest(NodeId)
        const Hash128& digest()
        string text() except +translate_exception
        size_t memory_bytes()
    cdef cppclass CGraphBuilder "rlflow::GraphBuilder":
        ValueId input(const string&, TypeId) except +translate_exception
        ValueId constant(ConstId) except +translate_exception
        TypeId type(ValueId)
        const vector[Int]* data(ValueId)
        cbool is_const(ValueId)
        size_t value_count()
    shared_ptr[const CGraph] parse_graph(const string&) except +translate_exception
    string input_name(const CGraph&, NodeId) except +translate_exception

cdef extern from "rlflow/rule.h" namespace "rlflow" nogil:
    cdef cppclass CRule "rlflow::Rule":
        const string& name()
        const Hash128& digest()
        string text()
        vector[string] operators()
        vector[OpId] target_operators()
        cbool star()
        int depth()
    cdef cppclass CRuleSet "rlflow::RuleSet":
        size_t size()
        const CRule& rule(size_t)
        const Hash128& digest()

cdef extern from "rlflow/match.h" namespace "rlflow" nogil:
    cdef cppclass RuleProfileRow "rlflow::RuleProfile::Row":
        uint64_t tried, matched, built, match_ns, build_ns
    cdef cppclass RuleProfile:
        vector[RuleProfileRow] rows
    vector[string] explain_native "rlflow::explain"(const CGraph&, const CRule&, NodeId) except +translate_exception

cdef extern from "rlflow/cost.h" namespace "rlflow" nogil:
    cdef cppclass CPricer "rlflow::Pricer":
        uint64_t revision()
    cdef cppclass RegionMap:
        uint32_t regions, unknown, unpriced
        int64_t weight_bytes
        double known_ms()

cdef extern from "rlflow/state.h" namespace "rlflow" nogil:
    cdef cppclass CMoves "rlflow::Moves":
        vector[uint32_t] match, rule, unknown, touched_begin, touched, unknown_begin
        vector[Hash128] digest, unknown_signature
        vector[double] delta_ms
        vector[int32_t] nodes_added, nodes_removed, edges_added, edges_removed
        vector[int64_t] weight_bytes
        size_t size()
    cdef cppclass RuleStats:
        uint32_t matched, refused, duplicate, heavy
        string last_refusal
    cdef cppclass CStopToken "rlflow::StopToken":
        pass
    cdef cppclass CState "rlflow::State":
        const shared_ptr[const CGraph]& graph()
        const RegionMap& regions() except +translate_exception
        const CMoves& moves() except +translate_exception
        shared_ptr[CState] open(size_t) except +translate_exception
        shared_ptr[const CGraph] child(size_t) except +translate_exception
        vector[int64_t] key(size_t) except +translate_exception
        int64_t find(const string&, const vector[int64_t]&) except +translate_exception
        shared_ptr[CState] step(const string&, const vector[int64_t]&) except +translate_exception
        shared_ptr[CState] take(uint32_t, const vector[NodeId]&, vector[int64_t]*) except +translate_exception
        shared_ptr[CState] same(CState&, size_t) except +translate_exception
        const vector[RuleStats]& stats()
        const RuleProfile* profile()

cdef extern from "bridge.h" namespace "rlflow::bridge" nogil:
    void set_error_class(int, object) with gil
    AttrValue attr_int(Int)
    AttrValue attr_float(double)
    AttrValue attr_string(string)
    AttrValue attr_ints(vector[Int])
    AttrValue attr_floats(vector[double])
    AttrValue attr_strings(vector[string])
    int attr_kind(const AttrValue&)
    Int get_int(const AttrValue&)
    double get_float(const AttrValue&)
    const string& get_string(const AttrValue&)
    vector[Int] get_ints(const AttrValue&)
    vector[double] get_floats(const AttrValue&)
    vector[string] get_strings(const AttrValue&)
    vector[Int] copy_ints(const vector[Int]&)
    vector[double] copy_floats(const vector[double]&)
    vector[string] copy_strings(const vector[string]&)
    ConstId get_const(const AttrValue&)
    shared_ptr[CStopToken] make_stop_token()
    void set_stop(CStopToken&, cbool)
    cbool get_stop(const CStopToken&)
    shared_ptr[const CGraph] bind_symbols_by_name(const CGraph&, const vector[pair[string, Int]]&) except +translate_exception
    shared_ptr[const CRule] make_rule(string, vector[string], vector[string], vector[string], vector[pair[string, string]]) except +translate_exception
    shared_ptr[const CRuleSet] make_rule_set(vector[shared_ptr[const CRule]]) except +translate_exception
    shared_ptr[CState] make_state(shared_ptr[const CGraph], shared_ptr[const CRuleSet], shared_ptr[const CPricer], int64_t,
                                  shared_ptr[CStopToken], cbool) except +translate_exception
    shared_ptr[CState] state_near(const CState&, CState&, const vector[uint32_t]&) except +translate_exception
    vector[uint8_t] digest_bytes(const vector[Hash128]&)
    vector[uint32_t] graph_order(const CGraph&)
    vector[uint32_t] graph_inputs(const CGraph&)
    size_t graph_work(const CGraph&)
    vector[uint32_t] graph_nodes_from(const CGraph&, size_t)
    vector[uint32_t] graph_outputs(const CGraph&)
    vector[uint32_t] node_inputs(const CGraph&, NodeId)
    vector[uint32_t] value_users(const CGraph&, ValueId)
    ValueId builder_add(CGraphBuilder&, OpId, const AttrSet&, const vector[ValueId]&, int) except +translate_exception
    ValueId builder_opaque(CGraphBuilder&, const string&, const string&, cbool, const vector[ValueId]&, const vector[TypeId]&) except +translate_exception
    shared_ptr[const CGraph] builder_finish(CGraphBuilder&, const vector[ValueId]&) except +translate_exception
    vector[string] op_flag_names(const OpInfo&)
    string op_fusion_name(const OpInfo&)
    ctypedef int (*ShapeCall)(PyObject*, const AttrSet*, const vector[TypeId]*, vector[Int]*, string*) noexcept
    void extend(const string&, int, const vector[string]&, const AttrSet&, double, PyObject*, ShapeCall) except +translate_exception
