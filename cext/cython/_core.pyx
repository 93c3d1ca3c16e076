# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
# distutils: language = c++
"""The native core of rlflow: graphs, rules, matches, prices. This file converts, owns and releases the GIL; it holds no algorithm."""

from cpython.ref cimport PyObject
from cython.operator cimport dereference as deref
from core cimport *

import itertools

import numpy as np

from rlflow import errors as _errors

set_error_class(0, _errors.GraphError)
set_error_class(1, _errors.GraphError)
set_error_class(2, _errors.RuleError)
set_error_class(3, _errors.UsageError)


# ---------------------------------------------------------------------------------------------------------------- conversions

cdef Int to_int(object v) except? -7777777:
    if v is None:
        return kUnknown
    if isinstance(v, str):
        return int_parse(v.encode())
    cdef object i = int(v)
    if not -(1 << 62) < i < (1 << 62):
        i = (1 << 62) - 1 if i > 0 else -(1 << 62) + 1
    return i

cdef object from_int(Int v):
    if is_plain(v):
        return v
    return None if v == kUnknown else int_text(v).decode()

cdef vector[Int] to_ints(object values) except *:
    cdef vector[Int] out
    for v in values:
        out.push_back(to_int(v))
    return out

cdef TypeId to_type(object dtype, object shape) except? 4294967295:
    cdef TensorType t
    t.dtype = int(dtype) if dtype is not None else 0
    t.rank = -1
    if shape is not None:
        t.rank = len(shape)
        t.dims = to_ints(shape)
    return intern_type(t)

cdef object from_shape(TypeId type):
    if type_of(type).rank < 0:
        return None
    return [from_int(d) for d in copy_ints(type_of(type).dims)]

cdef vector[string] to_strings(object values) except *:
    cdef vector[string] out
    for v in values:
        out.push_back((<str?>v).encode())
    return out

cdef vector[ValueId] to_values(object values) except *:
    cdef vector[ValueId] out
    for v in values:
        out.push_back(kNoValue if v is None or v < 0 else <ValueId>v)
    return out

cdef AttrValue to_attr(str name, object v) except *:
    if isinstance(v, (bool, int, np.integer)):
        return attr_int(to_int(v))
    if isinstance(v, (float, np.floating)):
        return attr_float(v)
    if isinstance(v, str):
        return attr_string(v.encode())
    if isinstance(v, (list, tuple, np.ndarray)):
        items = list(v)
        if items and all(isinstance(i, str) for i in items):
            return attr_strings(to_strings(items))
        if any(isinstance(i, (float, np.floating)) for i in items):
            return attr_floats([float(i) for i in items])
        return attr_ints(to_ints(items))
    raise _errors.GraphError(f"the attribute {name!r} has a value of the type {type(v).__name__}; numbers, strings and lists of them are meant")

cdef object from_const(ConstId id):
    cdef const ConstInfo* c = &const_of(id)
    out = {"digest": to_hex(c.digest).decode(), "dtype": type_of(c.type).dtype, "shape": from_shape(c.type), "values": None, "facts": None}
    if c.inline_values:
        out["values"] = list(copy_ints(c.ints)) + list(copy_floats(c.floats))
    if c.has_facts:
        out["facts"] = (c.min, c.max, c.uniform, c.finite)
    return out

cdef object from_attr(const AttrValue& v):
    cdef int kind = attr_kind(v)
    if kind == 0:
        return from_int(get_int(v))
    if kind == 1:
        return get_float(v)
    if kind == 2:
        return get_string(v).decode()
    if kind == 3:
        return [from_int(i) for i in get_ints(v)]
    if kind == 4:
        return [f for f in get_floats(v)]
    if kind == 5:
        return [s.decode() for s in get_strings(v)]
    return from_const(get_const(v))

cdef AttrSet to_attrs(object attrs) except *:
    cdef AttrSet out
    for name, value in attrs.items():
        out.set((<str?>name).encode(), to_attr(name, value))
    return out

cdef object from_attrs(const AttrSet& a):
    cdef size_t i
    out = {}
    for i in range(a.items.size()):
        out[a.items[i].first.decode()] = from_attr(a.items[i].second)
    return out

cdef object array(const void* data, size_t count, str dtype):
    cdef object d = np.dtype(dtype)
    if count == 0:
        return np.empty(0, d)
    return np.frombuffer((<const char*>data)[:count * <size_t>d.itemsize], dtype=d)


# ------------------------------------------------------------------------------------------------------------------ operators

def op_names():
    """Names of every row of the operator table, in table order."""
    cdef size_t i
    return [op_table()[i].name.decode() for i in range(op_table().size())]


def op_row(str name):
    """One row of the operator table as a dict: name, since, min_inputs, max_inputs (-1: any number), outputs, flags, fusion, defaults, attributes."""
    cdef OpId id = find_op(name.encode())
    cdef const OpInfo* op = &op_info(id)
    cdef size_t i
    defaults = {}
    for i in range(op.defaults.size()):
        defaults[op.defaults[i].name.decode()] = from_attr(op.defaults[i].value)
    return {
        "name": op.name.decode(), "since": op.since, "min_inputs": op.min_inputs, "max_inputs": op.max_inputs, "outputs": op.outputs,
        "flags": [f.decode() for f in op_flag_names(deref(op))], "fusion": op_fusion_name(deref(op)).decode(), "defaults": defaults,
        "attributes": [a.decode() for a in copy_strings(op.attributes)],
    }


def op_features(str name):
    """What a row says of shapes and cost, in words: ``shape`` (the shape rule) and ``flops`` (float operations)."""
    cdef const OpInfo* op = &op_info(find_op(name.encode()))
    return {"shape": shape_rule_text(deref(op)).decode(), "flops": flops_text(deref(op)).decode()}


cdef int call_shape(PyObject* function, const AttrSet* attrs, const vector[TypeId]* operands, vector[Int]* dims, string* why) noexcept with gil:
    cdef size_t i
    try:
        shapes = [from_shape(deref(operands)[i]) for i in range(operands.size())]
        shape = (<object>function)(*shapes, **from_attrs(deref(attrs)))
        if shape is None:
            return 0
        for extent in shape:
            if isinstance(extent, (int, np.integer)) and extent < 0:
                raise ValueError(f"the extent {extent} of {list(shape)} is negative")
        dims[0] = to_ints(shape)
        return 1
    except BaseException as error:  # whatever the function raises; the caller is C++
        why[0] = f"its shape function raised {type(error).__name__}: {error}".encode(errors="replace")
        return -1


def extend_table(str name, int inputs, flags, defaults, double flops, shape):
    """Appends the row of an operator with this many operands; ``shape``: its shape function, or None for a pointwise one. Raises UsageError
    where the table was read already, or has the name."""
    cdef AttrSet values = to_attrs(defaults)
    extend(name.encode(), inputs, [(<str?>flag).encode() for flag in flags], values, flops, <PyObject*>shape, call_shape)


def has_operator(str name):
    """Whether the operator table has a row of this name."""
    return has_op(name.encode())


# --------------------------------------------------------------------------------------------------------------------- graphs

cdef class Graph:
    """An immutable computation graph (DESIGN C1). Node and value ids are small integers that persist through rewrites."""
    cdef shared_ptr[const CGraph] ptr   # owned together with every State and child that shares it

    @staticmethod
    cdef Graph wrap(shared_ptr[const CGraph] ptr):
        cdef Graph g = Graph.__new__(Graph)
        g.ptr = ptr
        return g

    def __init__(self):
        raise _errors.UsageError("a Graph is made by GraphBuilder.finish() or Graph.parse()")

    def __cinit__(self):
        pass

    @staticmethod
    def parse(str text):
        """The graph that ``text`` describes; raises GraphError with the line."""
        return Graph.wrap(parse_graph(text.encode()))

    def text(self):
        """The text form; ``Graph.parse`` reads it back to an equal graph."""
        return deref(self.ptr).text().decode()

    @property
    def digest(self):
        """128-bit structural hash, 32 hexadecimal digits."""
        return to_hex(deref(self.ptr).digest()).decode()

    @property
    def num_nodes(self):
        return deref(self.ptr).node_count()

    @property
    def num_working_nodes(self):
        """Nodes that do work at run time: neither an input nor a pure function of constants."""
        return graph_work(deref(self.ptr))

    @property
    def id_limit(self):
        """All node ids are below this number; those of the nodes that a rewrite of this graph adds are not."""
        return deref(self.ptr).node_capacity()

    def nodes_from(self, size_t first):
        """Alive node ids of at least ``first``, ascending."""
        return list(graph_nodes_from(deref(self.ptr), first))

    @property
    def memory_bytes(self):
        return deref(self.ptr).memory_bytes()

    def __eq__(self, other):
        return isinstance(other, Graph) and self.digest == other.digest

    def __hash__(self):
        return hash(self.digest)

    def __repr__(self):
        return f"<Graph {self.digest[:8]} {self.num_nodes} nodes>"

    def __reduce__(self):
        return (Graph.parse, (self.text(),))

    cdef NodeId check_node(self, object n) except? 4294967295:
        if not 0 <= n < deref(self.ptr).node_capacity() or not deref(self.ptr).alive(n):
            raise _errors.GraphError(f"node {n} is not in this graph")
        return n

    cdef ValueId check_value(self, object v) except? 4294967295:
        if not 0 <= v < deref(self.ptr).value_capacity():
            raise _errors.GraphError(f"value {v} is not in this graph")
        return v

    def order(self):
        """Alive node ids in canonical topological order."""
        return list(graph_order(deref(self.ptr)))

    def inputs(self):
        """Ids of the Input nodes, in graph-input order."""
        return list(graph_inputs(deref(self.ptr)))

    def outputs(self):
        """Value ids of the graph's outputs, in order."""
        return list(graph_outputs(deref(self.ptr)))

    def op(self, n):
        return op_info(deref(self.ptr).node(self.check_node(n)).op).name.decode()

    def attrs(self, n):
        """Attributes as a dict; a Constant has {"value": {digest, dtype, shape, values, facts}}."""
        return from_attrs(attrs_of(deref(self.ptr).node(self.check_node(n)).attrs))

    def node_inputs(self, n):
        """Value ids; -1 stands for an absent optional operand."""
        return [-1 if v == kNoValue else v for v in node_inputs(deref(self.ptr), self.check_node(n))]

    def node_outputs(self, n):
        cdef const Node* node = &deref(self.ptr).node(self.check_node(n))
        return list(range(node.out_begin, node.out_begin + node.out_count))

    def alive(self, n):
        return 0 <= n < deref(self.ptr).node_capacity() and deref(self.ptr).alive(n)

    def is_const(self, n):
        """Whether the node is a pure function of constants."""
        return bool(deref(self.ptr).node(self.check_node(n)).flags & 2)

    def input_name(self, n):
        return input_name(deref(self.ptr), self.check_node(n)).decode()

    def position(self, n):
        """Index of the node in ``order()``."""
        return deref(self.ptr).position(self.check_node(n))

    def node_digest(self, n):
        return to_hex(deref(self.ptr).node_digest(self.check_node(n))).decode()

    def producer(self, v):
        return deref(self.ptr).producer(self.check_value(v))

    def output_index(self, v):
        return deref(self.ptr).output_index(self.check_value(v))

    def dtype(self, v):
        return type_of(deref(self.ptr).type(self.check_value(v))).dtype

    def shape(self, v):
        """Dims (int, symbolic str, or None), or None when the rank is not known."""
        return from_shape(deref(self.ptr).type(self.check_value(v)))

    def type_text(self, v):
        return type_text(deref(self.ptr).type(self.check_value(v))).decode()

    def data(self, v):
        """Known elements of a small integer tensor, or None."""
        cdef const vector[Int]* d = deref(self.ptr).data(self.check_value(v))
        return None if d == NULL else [from_int(i) for i in copy_ints(deref(d))]

    def const_digest(self, n):
        """Digest of a Constant node's content, or None for other nodes."""
        cdef const ConstInfo* c = deref(self.ptr).constant(deref(self.ptr).node(self.check_node(n)).out_begin)
        return None if c == NULL else to_hex(c.digest).decode()

    def const_values(self, n):
        """Inline values of a small Constant node, flat, or None."""
        cdef const ConstInfo* c = deref(self.ptr).constant(deref(self.ptr).node(self.check_node(n)).out_begin)
        if c == NULL or not c.inline_values:
            return None
        return list(copy_ints(c.ints)) + list(copy_floats(c.floats))

    def users(self, v):
        """(node, operand index) pairs, in canonical order."""
        flat = value_users(deref(self.ptr), self.check_value(v))
        return [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]

    def output_uses(self, v):
        return deref(self.ptr).output_uses(self.check_value(v))

    def bind(self, values):
        """The graph with symbolic dims replaced: ``graph.bind({"N": 1})``."""
        cdef vector[pair[string, Int]] pairs
        for name, value in values.items():
            pairs.push_back(pair[string, Int]((<str?>name).encode(), to_int(value)))
        return Graph.wrap(bind_symbols_by_name(deref(self.ptr), pairs))


cdef class GraphBuilder:
    """Builds a Graph node by node; infers types, shares duplicates of pure nodes, forwards Identity."""
    cdef CGraphBuilder builder

    cdef ValueId known(self, object v) except? 4294967295:
        if not 0 <= v < self.builder.value_count():
            raise _errors.GraphError(f"value {v} is not in this graph")
        return v

    def input(self, str name, dtype, shape):
        """A graph input; returns its value id. ``shape``: list of int | str | None, or None when the rank is not known."""
        return self.builder.input(name.encode(), to_type(dtype, shape))

    def constant(self, dtype, shape, str digest, values=None, facts=None):
        """A constant tensor. ``values``: flat list for at most 1,024 elements; ``facts``: (min, max, uniform, finite) for larger ones."""
        cdef ConstInfo c
        c.type = to_type(dtype, shape)
        c.digest = from_hex(digest.encode())
        c.inline_values = values is not None
        c.has_facts = False
        c.min = c.max = 0
        c.uniform = False
        c.finite = True
        if values is not None:
            if int(dtype) in (1, 10, 11, 16, 17, 18, 19, 20, 23):
                for v in values:
                    c.floats.push_back(float(v))
            else:
                c.ints = to_ints(values)
        if facts is not None:
            c.has_facts = True
            c.min, c.max, c.uniform, c.finite = facts
        return self.builder.constant(intern_const(c))

    def add(self, str op, dict attrs, inputs, int outputs=0):
        """A node; returns its first output's value id (outputs are consecutive). ``inputs``: value ids, -1 for an absent optional one."""
        cdef AttrSet a = to_attrs(attrs)
        cdef vector[ValueId] ids = to_values(inputs)
        return builder_add(self.builder, find_op(op.encode()), a, ids, outputs)

    def opaque(self, str name, str payload, bint pure, inputs, output_types):
        """An operator that the table does not know; ``output_types``: list of (dtype, shape)."""
        cdef vector[TypeId] types
        for dtype, shape in output_types:
            types.push_back(to_type(dtype, shape))
        cdef vector[ValueId] ids = to_values(inputs)
        return builder_opaque(self.builder, name.encode(), payload.encode(), pure, ids, types)

    def dtype(self, v):
        return type_of(self.builder.type(self.known(v))).dtype

    def shape(self, v):
        return from_shape(self.builder.type(self.known(v)))

    def data(self, v):
        cdef const vector[Int]* d = self.builder.data(self.known(v))
        return None if d == NULL else [from_int(i) for i in copy_ints(deref(d))]

    def is_const(self, v):
        return self.builder.is_const(self.known(v))

    def finish(self, outputs):
        """The graph whose outputs are these values; nodes that no output needs are dropped (graph inputs stay)."""
        cdef vector[ValueId] ids = to_values(outputs)
        return Graph.wrap(builder_finish(self.builder, ids))


# ---------------------------------------------------------------------------------------------------------------------- rules

include "rules.pxi"
include "cost.pxi"
include "features.pxi"


# --------------------------------------------------------------------------------------------------------------------- search

cdef class StopToken:
    """A flag that native loops look at; set it to make them return early."""
    cdef shared_ptr[CStopToken] ptr

    def __init__(self):
        self.ptr = make_stop_token()

    def set(self):
        set_stop(deref(self.ptr), True)

    def clear(self):
        set_stop(deref(self.ptr), False)

    def is_set(self):
        return get_stop(deref(self.ptr))


include "enumerate.pxi"
include "state.pxi"

# ------------------------------------------------------------------------------------------------------------------- e-graphs

include "egraph.pxi"

# ------------------------------------------------------------------------------------------------------------------------ GPU

include "gpu.pxi"

# ------------------------------------------------------------------------------------------------------------------ placement

include "simulate.pxi"
include "offsets.pxi"
include "order_peak.pxi"
include "group_times.pxi"
include "choices.pxi"
include "flow_peak.pxi"

# ----------------------------------------------------------------------------------------------------------------- the network

include "policy.pxi"
