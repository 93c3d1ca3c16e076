# A graph as arrays, included by _core.pyx. Conversions only.
from features cimport CGraphFeatures, kEdgeFeatures, kNodeFeatures, native_features


def graph_features(Graph graph, Pricer pricer=None):
    """The graph as arrays: ``(row, op, dtype, node, source, target, edge)``; rlflow.graph.features says what they hold."""
    cdef CGraphFeatures f
    cdef const CPricer* prices = NULL
    cdef shared_ptr[const CPricer] owner
    if pricer is not None:
        owner = pricer.const_ptr()
        prices = owner.get()
    with nogil:
        f = native_features(deref(graph.ptr), prices)
    return (
        array(f.row.data(), f.row.size(), "int32"),
        array(f.op.data(), f.op.size(), "int32"),
        array(f.dtype.data(), f.dtype.size(), "int32"),
        array(f.node.data(), f.node.size(), "float32").reshape(-1, kNodeFeatures),
        array(f.source.data(), f.source.size(), "int32"),
        array(f.target.data(), f.target.size(), "int32"),
        array(f.edge.data(), f.edge.size(), "float32").reshape(-1, kEdgeFeatures),
    )
