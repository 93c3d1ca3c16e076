# Graphs that a search walks over, and their candidates, included by _core.pyx. Conversions only.

cdef class Moves:
    """The valid candidates of a State, as arrays, in a fixed order; one entry per distinct child graph.

    rule (n,) u32; digest (n, 16) u8; delta_ms (n,) f64 over priced regions; unknown (n,) u32: regions without a price that delta_ms leaves
    out; nodes_added, nodes_removed, edges_added, edges_removed (n,) i32; weight_bytes (n,) i64 of the child; touched (CSR with touched_begin).
    """
    cdef readonly object rule, digest, delta_ms, unknown, nodes_added, nodes_removed, edges_added, edges_removed, weight_bytes
    cdef readonly object touched_begin, touched, unknown_begin
    cdef object signatures_
    cdef vector[Hash128] raw_signatures

    def __len__(self):
        return len(self.rule)

    def digest_hex(self, i):
        return self.digest[i].tobytes().hex()

    def unknown_signatures(self, i=None):
        """Hex signatures of regions without a price: those of move ``i``, or the distinct ones over all moves in order of first use."""
        cdef size_t k
        if self.signatures_ is None:
            self.signatures_ = [to_hex(self.raw_signatures[k]).decode() for k in range(self.raw_signatures.size())]
        if i is not None:
            return self.signatures_[self.unknown_begin[i]:self.unknown_begin[i + 1]]
        return list(dict.fromkeys(self.signatures_))


cdef Moves wrap_moves(const CMoves* m):
    cdef Moves out = Moves.__new__(Moves)
    cdef size_t n = m.size()
    out.rule = array(m.rule.data(), n, "u4")
    out.delta_ms = array(m.delta_ms.data(), n, "f8")
    out.unknown = array(m.unknown.data(), n, "u4")
    out.nodes_added = array(m.nodes_added.data(), n, "i4")
    out.nodes_removed = array(m.nodes_removed.data(), n, "i4")
    out.edges_added = array(m.edges_added.data(), n, "i4")
    out.edges_removed = array(m.edges_removed.data(), n, "i4")
    out.weight_bytes = array(m.weight_bytes.data(), n, "i8")
    out.touched_begin = array(m.touched_begin.data(), m.touched_begin.size(), "u4")
    out.touched = array(m.touched.data(), m.touched.size(), "u4")
    out.unknown_begin = array(m.unknown_begin.data(), m.unknown_begin.size(), "u4")
    cdef vector[uint8_t] raw = digest_bytes(m.digest)
    out.digest = array(raw.data(), raw.size(), "u1").reshape(n, 16)
    out.raw_signatures = m.unknown_signature
    out.signatures_ = None
    return out


cdef class State:
    """A graph with its matches: what a search holds per opened node. ``open`` matches again only around what changed."""
    cdef shared_ptr[CState] ptr
    cdef readonly RuleSet ruleset
    cdef readonly object pricer, stop       # kept alive as long as the native state uses them
    cdef Graph graph_
    cdef Moves moves_
    cdef uint64_t priced_

    def __init__(self, Graph graph, RuleSet ruleset, pricer=None, weight_limit_bytes=-1, stop=None, bint profile=False):
        cdef shared_ptr[const CPricer] p
        cdef shared_ptr[CStopToken] t
        cdef int64_t limit = -1 if weight_limit_bytes is None else weight_limit_bytes
        if pricer is not None:
            p = (<Pricer?>pricer).const_ptr()
        if stop is not None:
            t = (<StopToken?>stop).ptr
        self.ruleset, self.pricer, self.stop, self.graph_ = ruleset, pricer, stop, graph
        cdef shared_ptr[const CGraph] g = graph.ptr
        cdef shared_ptr[const CRuleSet] r = ruleset.ptr
        with nogil:
            self.ptr = make_state(g, r, p, limit, t, profile)

    @property
    def graph(self):
        if self.graph_ is None:
            self.graph_ = Graph.wrap(deref(self.ptr).graph())
        return self.graph_

    def moves(self):
        """Every valid candidate, priced where there is a pricer (again, after new prices have come)."""
        cdef const CMoves* m
        cdef uint64_t prices = 0
        if self.pricer is not None:
            prices = deref((<Pricer>self.pricer).const_ptr()).revision()
        if self.moves_ is not None and prices == self.priced_:
            return self.moves_
        with nogil:
            m = &deref(self.ptr).moves()
        result = wrap_moves(m)
        if self.stop is None or not self.stop.is_set():
            self.moves_, self.priced_ = result, prices
        return result

    cdef State beside(self, Graph graph):
        """A state with the same owners, whose native part the caller fills in."""
        cdef State s = State.__new__(State)
        s.ruleset, s.pricer, s.stop, s.graph_ = self.ruleset, self.pricer, self.stop, graph
        return s

    def open(self, size_t i):
        """The state after move ``i``."""
        cdef State s = self.beside(None)
        with nogil:
            s.ptr = deref(self.ptr).open(i)
        return s

    def near(self, State base, nodes):
        """This state with only those moves that ``base``, a state before it, did not have, or that touch one of the nodes.

        Nothing else is evaluated. Moves are numbered anew, and ``open`` takes these numbers.
        """
        cdef State s = self.beside(self.graph_)
        cdef vector[uint32_t] ids = nodes
        with nogil:
            s.ptr = state_near(deref(self.ptr), deref(base.ptr), ids)
        return s

    def same(self, State before, size_t i):
        """This state with one move at most: number ``i`` of ``before``, a state before it, where that still stands."""
        cdef State s = self.beside(self.graph_)
        with nogil:
            s.ptr = deref(self.ptr).same(deref(before.ptr), i)
        return s

    def child(self, size_t i):
        """The graph after move ``i``, without its matches."""
        cdef shared_ptr[const CGraph] g
        with nogil:
            g = deref(self.ptr).child(i)
        return Graph.wrap(g)

    def key(self, size_t i):
        """The match key of move ``i``: ordinals in canonical topological order."""
        return list(deref(self.ptr).key(i))

    def find(self, str rule, key):
        """The move of the rule ``rule`` with this key, or -1."""
        cdef vector[int64_t] k = key
        return deref(self.ptr).find(rule.encode(), k)

    def take(self, uint32_t rule, nodes):
        """``(state, key)`` after rule number ``rule`` at these nodes (a move's ``touched``), or None where it does not apply.

        No other match is looked for, and nothing is priced: for replaying on large graphs.
        """
        cdef State s = State.__new__(State)
        cdef vector[NodeId] touched = nodes
        cdef vector[int64_t] key
        if rule >= len(self.ruleset):
            raise _errors.UsageError(f"There is no rule {rule}: there are {len(self.ruleset)}.")
        s.ruleset, s.pricer, s.stop = self.ruleset, self.pricer, self.stop
        with nogil:
            s.ptr = deref(self.ptr).take(rule, touched, &key)
        return (s, list(key)) if s.ptr.get() != NULL else None

    def step(self, str rule, key):
        """The state after one step of a trace, a rule's name and a match key; None where it does not apply."""
        cdef State s = State.__new__(State)
        cdef vector[int64_t] k = key
        cdef string name = rule.encode()
        s.ruleset, s.pricer, s.stop = self.ruleset, self.pricer, self.stop
        with nogil:
            s.ptr = deref(self.ptr).step(name, k)
        return s if s.ptr.get() != NULL else None

    def _regions(self):
        cdef const RegionMap* m
        with nogil:
            m = &deref(self.ptr).regions()
        return m.known_ms(), m.unknown, m.unpriced, m.weight_bytes

    @property
    def cost(self):
        """Milliseconds over the regions that have a price; ``unknown`` counts the others."""
        return self._regions()[0]

    @property
    def unknown(self):
        return self._regions()[1]

    @property
    def unpriced(self):
        """Opaque nodes: counted as free, because nothing rewrites them."""
        return self._regions()[2]

    @property
    def weight_bytes(self):
        return self._regions()[3]

    def stats(self):
        """Per rule: matched, refused, duplicate, heavy (over the weight limit), last_refusal. Rules that never matched are left out."""
        cdef const vector[RuleStats]* s = &deref(self.ptr).stats()
        cdef size_t k
        out = {}
        for k in range(s.size()):
            if deref(s)[k].matched:
                out[self.ruleset.rules[k].name] = {
                    "matched": deref(s)[k].matched, "refused": deref(s)[k].refused, "duplicate": deref(s)[k].duplicate,
                    "heavy": deref(s)[k].heavy, "last_refusal": deref(s)[k].last_refusal.decode(),
                }
        return out

    def profile(self):
        """What each rule took over this state and all others opened from the same root: tried, matched, built (children), match_ms, build_ms.

        Empty unless the root was made with ``profile=True``. Rules that were never tried are left out.
        """
        cdef const RuleProfile* p = deref(self.ptr).profile()
        cdef size_t k
        out = {}
        if p == NULL:
            return out
        for k in range(p.rows.size()):
            if p.rows[k].tried or p.rows[k].built:
                out[self.ruleset.rules[k].name] = {
                    "tried": p.rows[k].tried, "matched": p.rows[k].matched, "built": p.rows[k].built,
                    "match_ms": p.rows[k].match_ns * 1e-6, "build_ms": p.rows[k].build_ns * 1e-6,
                }
        return out
