# The pricer, included by _core.pyx. Conversions only.
from cost cimport (
    CRegion,
    CRegionMap,
    FullPricer,
    bind_dims,
    fusion_name,
    has_price,
    make_analytic_pricer,
    make_table_pricer,
    region_kind,
    to_ms,
)


cdef class Region:
    """Nodes that the runtime runs as one kernel (or as one inseparable group), and what that costs.

    signature: with layout context; base_signature: without it. ms: None where no price is known. flops; bytes across the border.
    inputs: value ids read from outside, constants included, in order of first use; outputs: value ids read outside.
    reorder_inputs and reorder_output: tensors that change between the plain and the runtime's blocked layout at the border.
    """
    cdef readonly str signature, base_signature, kind
    cdef readonly list nodes, inputs, outputs
    cdef readonly object ms
    cdef readonly double flops, bytes
    cdef readonly bint view, opaque, blocked, reorder_output
    cdef readonly int reorder_inputs

    def __init__(self):
        raise _errors.UsageError("a Region is made by Pricer.regions(graph)")

    @property
    def head(self):
        """The node whose outputs leave the region."""
        return self.nodes[len(self.nodes) - 1]

    def __repr__(self):
        price = "no price" if self.ms is None else f"{self.ms:.4f} ms"
        return f"<Region {self.signature[:8]} {self.kind or 'node'} of {len(self.nodes)}, {price}>"


cdef Region wrap_region(const CRegion& r):
    cdef Region out = Region.__new__(Region)
    out.signature = to_hex(r.signature).decode()
    out.base_signature = to_hex(r.base_signature).decode()
    out.kind = region_kind(r).decode()
    out.nodes = [r.nodes[i] for i in range(r.nodes.size())]
    out.inputs = [r.inputs[i] for i in range(r.inputs.size())]
    out.outputs = [r.outputs[i] for i in range(r.outputs.size())]
    out.ms = to_ms(r.price) if has_price(r.price) else None
    out.flops, out.bytes = r.flops, r.bytes
    out.view, out.opaque, out.blocked, out.reorder_output = r.view, r.opaque, r.blocked, r.reorder_output
    out.reorder_inputs = r.reorder_inputs
    return out


cdef class Pricer:
    """Prices graphs by fused regions (DESIGN C5): ``Pricer.analytic(...)`` from a roofline, ``Pricer.table(...)`` from measured prices.

    Setting prices must not run beside another thread's use of the same pricer.
    """
    cdef shared_ptr[FullPricer] ptr     # shared with every native State that prices with it

    def __init__(self):
        raise _errors.UsageError("a Pricer is made by Pricer.analytic(...) or Pricer.table(...)")

    cdef shared_ptr[const CPricer] const_ptr(self):
        return <shared_ptr[const CPricer]>self.ptr

    @staticmethod
    def analytic(*, double gflops=60.0, double vector_gflops=6.0, double gbps=12.0, double overhead_us=2.0, double view_us=0.5, str fusion="generic"):
        """Prices by a roofline over fused regions: the larger of compute and memory time, plus an overhead per region.

        gflops: 1e9 float operations a second in MatMul, Gemm, Conv, ...; vector_gflops: elsewhere; gbps: 1e9 bytes a second; overhead_us and
        view_us: microseconds per region, and per region that only renames a tensor. Raises UsageError for figures that make no sense.
        """
        cdef Pricer out = Pricer.__new__(Pricer)
        out.ptr = make_analytic_pricer(gflops, vector_gflops, gbps, overhead_us, view_us, fusion.encode())
        return out

    @staticmethod
    def table(str fusion="onnxruntime", *, int block=0):
        """Prices from a table that ``set_prices`` fills. ``block``: channels per block of the runtime's blocked layout, 0 where it has none."""
        cdef Pricer out = Pricer.__new__(Pricer)
        out.ptr = make_table_pricer(fusion.encode(), block)
        return out

    @property
    def is_table(self):
        return deref(self.ptr).is_table()

    @property
    def fusion(self):
        return fusion_name(deref(self.ptr)).decode()

    @property
    def block(self):
        return deref(self.ptr).block()

    @property
    def revision(self):
        """Changes whenever a price is set."""
        return deref(self.ptr).revision()

    def __len__(self):
        return deref(self.ptr).price_count()

    def bind(self, dims):
        """Values that symbolic dims have when work is counted, ``{"N": 8}``; others count as 1."""
        cdef vector[pair[string, Int]] pairs
        for name, value in dims.items():
            pairs.push_back(pair[string, Int]((<str?>name).encode(), to_int(value)))
        bind_dims(deref(self.ptr), pairs)

    def set_prices(self, signatures, ms):
        """Stores ``ms[i]`` (milliseconds, float64) for the hex ``signatures[i]``."""
        values = np.asarray(ms, dtype=np.float64).ravel()
        names = list(signatures)
        if len(names) != len(values):
            raise _errors.UsageError(f"setting prices: found {len(names)} signatures and {len(values)} prices, expected as many of each")
        for name, value in zip(names, values):
            deref(self.ptr).set_price(from_hex((<str?>name).encode()), value)

    def set_view_price(self, double ms):
        """What a region that only renames a tensor costs, in milliseconds."""
        deref(self.ptr).set_view_price(ms)

    def find(self, str signature):
        """The price of a signature in milliseconds, or None."""
        cdef double ms = deref(self.ptr).find_price(from_hex(signature.encode()))
        return None if ms != ms else ms

    def price(self, Graph graph):
        """(milliseconds over the regions with a price, number of regions without one)."""
        cdef CRegionMap m
        with nogil:
            m = deref(self.ptr).map(deref(graph.ptr))
        return m.known_ms(), m.unknown

    def summary(self, Graph graph):
        """What ``price`` says, and the number of regions, of opaque nodes (counted as free), and the bytes of constants that work reads."""
        cdef CRegionMap m
        with nogil:
            m = deref(self.ptr).map(deref(graph.ptr))
        return {"ms": m.known_ms(), "regions": m.regions, "unknown": m.unknown, "unpriced": m.unpriced, "weight_bytes": m.weight_bytes}

    def regions(self, Graph graph, *, bint unpriced_only=False):
        """The graph's regions, in canonical order of their heads; ``unpriced_only``: those without a price."""
        cdef vector[CRegion] found
        with nogil:
            found = deref(self.ptr).regions(deref(graph.ptr))
        return [wrap_region(found[i]) for i in range(found.size()) if not (unpriced_only and has_price(found[i].price))]
