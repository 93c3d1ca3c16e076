# The policy's network, included by _core.pyx. Conversions only.
from policy cimport (
    CEncodedGraph, CPolicyForm, CPolicyGraph, CPolicyNet, CPolicyScores, CPolicyState, CPolicyWeight, EncodedSpan, FloatSpan,
    kAttention, kMean, kSum,
)


cdef vector[float] floats(object values):
    cdef const float[::1] view = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    cdef vector[float] out
    if view.shape[0]:
        out.assign(&view[0], &view[0] + view.shape[0])
    return out


cdef class PolicyCode:
    """A graph after the layers of a network; rlflow.nn.native_policy says what it is for."""
    cdef CEncodedGraph code


cdef class PolicyNet:
    """A policy's network without torch; rlflow.nn.native_policy says what the arrays hold. UsageError where they do not fit."""
    cdef unique_ptr[CPolicyNet] ptr     # owned; never changed

    def __init__(self, *, int64_t hidden, int64_t layers, int64_t heads, int64_t ops, int64_t rules, int64_t rule_size, str message,
                 bint children, bint prior, weights):
        cdef CPolicyForm form
        cdef vector[CPolicyWeight] all_weights
        cdef CPolicyWeight weight
        form.hidden, form.layers, form.heads, form.ops, form.rules, form.rule_size = hidden, layers, heads, ops, rules, rule_size
        form.children, form.prior = children, prior
        form.message = kMean if message == "mean" else kSum if message == "sum" else kAttention
        for name, array_ in weights.items():
            weight.name, weight.shape, weight.values = (<str?>name).encode(), np.shape(array_), floats(array_)
            all_weights.push_back(weight)
        self.ptr.reset(new CPolicyNet(form, all_weights))

    def encode(self, op, dtype, node, source, target, edge, bint whole=True):
        """The graph after the layers, with its nodes where it is ``whole``."""
        cdef vector[int32_t] ops = integers(op), dtypes = integers(dtype), sources = integers(source), targets = integers(target)
        cdef vector[float] nodes = floats(node), edges = floats(edge)
        cdef CPolicyGraph graph
        graph.op, graph.dtype = IntSpan(ops.data(), ops.size()), IntSpan(dtypes.data(), dtypes.size())
        graph.source, graph.target = IntSpan(sources.data(), sources.size()), IntSpan(targets.data(), targets.size())
        graph.node, graph.edge = FloatSpan(nodes.data(), nodes.size()), FloatSpan(edges.data(), edges.size())
        cdef PolicyCode out = PolicyCode()
        with nogil:
            out.code = deref(self.ptr).encode(graph, whole)
        return out

    def score(self, PolicyCode graph not None, globals, rule, delta, touched, touched_by, children=()):
        """(logits (k,) f32, value) of a state."""
        cdef vector[float] numbers = floats(globals), deltas = floats(delta)
        cdef vector[int32_t] rules = integers(rule), rows = integers(touched), by = integers(touched_by)
        cdef vector[CEncodedGraph*] codes
        cdef CPolicyState state
        cdef CPolicyScores scores
        for child in children:
            codes.push_back(&(<PolicyCode?>child).code)
        state.globals, state.delta = FloatSpan(numbers.data(), numbers.size()), FloatSpan(deltas.data(), deltas.size())
        state.rule = IntSpan(rules.data(), rules.size())
        state.touched, state.touched_by = IntSpan(rows.data(), rows.size()), IntSpan(by.data(), by.size())
        with nogil:
            scores = deref(self.ptr).score(graph.code, state, EncodedSpan(codes.data(), codes.size()))
        return array(scores.logits.data(), scores.logits.size(), "f4"), scores.value
