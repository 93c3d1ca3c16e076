# The e-graph, included by _core.pyx. Conversions only.
cimport egraph as eg


cdef vector[uint32_t] to_u32(values):
    cdef vector[uint32_t] out
    for v in values:
        out.push_back(v)
    return out


cdef object u32(const vector[uint32_t]& v):
    return array(v.data(), v.size(), "u4")


_egraph_numbers = itertools.count()


cdef class EGraph:
    """Many graphs at once: classes of equal terms. ``language``: "terms" (any operator, no facts) or "tensat".

    Classes and nodes are numbered in order of creation. Changes wait for ``rebuild``; what reads the whole e-graph wants it rebuilt.
    """
    cdef shared_ptr[eg.CEGraph] ptr
    cdef readonly str language
    cdef dict made         # of this e-graph and those it is a clone of, by number: how many rules were made for it
    cdef object number

    def __init__(self, str language="terms"):
        self.ptr = eg.make_egraph(language.encode())
        self.language = language

    def __cinit__(self):
        self.number = next(_egraph_numbers)
        self.made = {self.number: 0}

    @staticmethod
    def of_graph(Graph graph):
        """``(e-graph, classes of the outputs)`` of a graph, in the language "table": a class is a value."""
        cdef EGraph out = EGraph.__new__(EGraph)
        cdef vector[uint32_t] outputs
        with nogil:
            out.ptr = eg.make_table_egraph(deref(graph.ptr), outputs)
        out.language = "table"
        return out, [int(c) for c in u32(outputs)]

    def add_graph(self, Graph graph):
        """The classes of a graph's outputs, after adding what is new of it; inputs of one name and position are one. Rebuilds."""
        cdef vector[uint32_t] outputs
        with nogil:
            outputs = eg.egraph_add_graph(deref(self.ptr), deref(graph.ptr))
        return [int(c) for c in u32(outputs)]

    cdef uint32_t check_class(self, c) except? 0xffffffff:
        if not 0 <= c < deref(self.ptr).class_capacity():
            raise _errors.UsageError(f"The e-graph has no class {c}.")
        return c

    def parse(self, str text):
        """The class of an S-expression, which is added. Raises UsageError for text that cannot be read, GraphError for terms that cannot be."""
        return eg.egraph_parse(deref(self.ptr), text.encode())

    def add(self, str op, children=()):
        """The class of the node ``op(children)``, where ``children`` are classes."""
        return eg.egraph_add(deref(self.ptr), op.encode(), 0, to_u32(children))

    def find(self, c):
        """The oldest id of the class."""
        return deref(self.ptr).find(self.check_class(c))

    def unite(self, a, b):
        """True if the two were different classes. Raises GraphError where the language says that they cannot be equal."""
        return deref(self.ptr).unite(self.check_class(a), self.check_class(b))

    def rebuild(self):
        """Restore congruence: equal operators on equal classes are in equal classes."""
        with nogil:
            deref(self.ptr).rebuild()

    def clone(self):
        cdef EGraph out = EGraph.__new__(EGraph)
        with nogil:
            out.ptr = eg.clone_egraph(deref(self.ptr))
        out.language = self.language
        out.made.update(self.made)
        return out

    @property
    def node_count(self):
        return deref(self.ptr).node_count()

    @property
    def class_count(self):
        return deref(self.ptr).class_count()

    @property
    def filtered_count(self):
        """Nodes that the cycle filter has put out of use."""
        return deref(self.ptr).filtered_count()

    @property
    def unions(self):
        return deref(self.ptr).unions()

    def broken_invariant(self):
        """What is wrong with congruence, hash-consing, the index, the counts or the data, in a sentence; "" if nothing is. Slow: for tests."""
        return deref(self.ptr).broken_invariant().decode()

    def filter_cycles(self, roots):
        """Put the newest node of every cycle out of use, from ``roots`` down; returns how many."""
        return eg.egraph_filter_cycles(deref(self.ptr), to_u32(roots))

    def has_cycle(self, roots):
        return eg.egraph_has_cycle(deref(self.ptr), to_u32(roots))

    def reachable(self, roots):
        """``(nodes, classes)`` below the roots, without filtered nodes."""
        cdef pair[size_t, size_t] n = eg.egraph_reachable(deref(self.ptr), to_u32(roots))
        return n.first, n.second

    def nodes(self):
        """All nodes as arrays: id, op, attr, cls (n,) u32; filtered (n,) bool; children as CSR child_begin (n+1,), child u32."""
        cdef eg.ENodeArrays a = eg.egraph_nodes(deref(self.ptr))
        return {
            "id": u32(a.id), "op": u32(a.op), "attr": u32(a.attr), "cls": u32(a.cls), "child_begin": u32(a.child_begin), "child": u32(a.child),
            "filtered": array(a.filtered.data(), a.filtered.size(), "u1").astype(bool),
        }

    def op_name(self, uint32_t op):
        return eg.egraph_op_name(deref(self.ptr), op).decode()

    def attr_text(self, uint32_t op, uint32_t attr):
        return eg.egraph_attr_text(deref(self.ptr), op, attr).decode()

    def data_text(self, c):
        """What the language knows about a class."""
        return eg.egraph_data_text(deref(self.ptr), self.check_class(c)).decode()

    def term_text(self, uint32_t node):
        if node >= deref(self.ptr).node_capacity():
            raise _errors.UsageError(f"The e-graph has no node {node}.")
        return deref(self.ptr).term_text(node).decode()

    def rule(self, str name, lines, unordered=False):
        """A rule from ``"left=>right"`` lines, one a root. ``unordered``: each set of classes once, where all left sides are one pattern."""
        cdef vector[string] texts
        cdef EGraphRule out = EGraphRule.__new__(EGraphRule)
        for line in lines:
            texts.push_back((<str?>line).encode())
        out.ptr = eg.egraph_rule(deref(self.ptr), name.encode(), texts, unordered)
        self.own(out)
        return out

    cdef int own(self, EGraphRule rule) except -1:
        self.made[self.number] += 1
        rule.egraph_language, rule.maker, rule.serial = self.language, self.number, self.made[self.number]
        return 0

    def snapshot(self, roots):
        """What can be extracted below the roots, as an :class:`Extraction` with costs of zero; its ``node_ids`` and ``class_ids`` lead back."""
        cdef vector[uint32_t] nodes, classes
        cdef Extraction out = Extraction.__new__(Extraction)
        out.e = eg.egraph_snapshot(deref(self.ptr), to_u32(roots), nodes, classes)
        out.node_ids, out.class_ids, out.maker = u32(nodes), u32(classes), self.number
        return out

    def tensat_costs(self, nodes, *, double gflops=4000, double gbps=240, double overhead_us=5):
        """Milliseconds of each node by a roofline (n,) f64; what depends on weights alone, and renamings, are free."""
        cdef vector[double] out = eg.egraph_tensat_costs(deref(self.ptr), to_u32(nodes), gflops, gbps, overhead_us)
        return array(out.data(), out.size(), "f8")

    def table_rules(self, Rule rule):
        """A library rule for an e-graph in the language "table": several where operators are searched both ways. Raises RuleError if declined."""
        cdef vector[shared_ptr[eg.RewriteRule]] made = eg.egraph_table_rules(deref(self.ptr), rule.ptr)
        cdef EGraphRule one
        cdef size_t i
        out = []
        for i in range(made.size()):
            one = EGraphRule.__new__(EGraphRule)
            one.ptr = made[i]
            self.own(one)
            out.append(one)
        return out

    def table_costs(self, nodes, Pricer pricer):
        """Milliseconds of each node alone (n,) f64; constants, sources and projections are free."""
        cdef vector[uint32_t] ids = to_u32(nodes)
        cdef vector[double] out
        cdef shared_ptr[const CPricer] p = pricer.const_ptr()
        with nogil:
            out = eg.egraph_table_costs(deref(self.ptr), ids, deref(p))
        return array(out.data(), out.size(), "f8")

    def weight_bytes(self, nodes):
        """Bytes (n,) f64 of each node's class where it is a constant that something reads at run time, else 0. ``nodes``: all of a snapshot."""
        cdef vector[double] out = eg.egraph_weight_bytes(deref(self.ptr), to_u32(nodes))
        return array(out.data(), out.size(), "f8")

    def chosen_graph(self, Graph like, outputs, Extraction problem, choice):
        """The graph of a choice over ``snapshot(outputs)``, with the inputs of ``like``, the graph that this e-graph was made from."""
        if problem.maker != self.number:
            raise _errors.UsageError("this extraction problem is not a snapshot of this e-graph")
        cdef vector[uint32_t] roots = to_u32(outputs), picks = problem.picks(choice), nodes = to_u32(problem.node_ids), classes = to_u32(problem.class_ids)
        cdef shared_ptr[const CGraph] g
        with nogil:
            g = eg.egraph_chosen(deref(self.ptr), deref(like.ptr), roots, problem.e, picks, nodes, classes)
        return Graph.wrap(g)

    def __repr__(self):
        return f"<EGraph of {self.node_count} nodes in {self.class_count} classes, {self.language}>"


def egraph_declines(Rule rule):
    """Why an e-graph cannot use a library rule, as a clause; "" if it can."""
    return eg.egraph_declined(deref(rule.ptr)).decode()


cdef class EGraphRule:
    """A rule in the language of an e-graph; made by ``EGraph.rule``."""
    cdef shared_ptr[eg.RewriteRule] ptr
    cdef readonly str egraph_language
    cdef object maker, serial       # the e-graph's number, and which of its rules this is

    def __init__(self):
        raise _errors.UsageError("an EGraphRule is made by EGraph.rule(name, lines)")

    @property
    def name(self):
        return deref(self.ptr).name.decode()


cdef class Saturation:
    """Equality saturation of an e-graph by rules made for it (or for the e-graph that it is a clone of).

    cycles: "efficient" (Tensat's), "vanilla" (every match checked), "none". scheduler: "backoff" (egg's) or "simple". multi_iterations: in how
    many of the first iterations rules with several roots are applied. The limits are looked at between rules.
    """
    cdef shared_ptr[eg.CRunner] ptr     # keeps the native e-graph and the stop token alive
    cdef readonly EGraph egraph
    cdef readonly list rules

    def __init__(self, EGraph egraph, rules, roots, *, size_t iterations=15, size_t nodes=50000, seconds=None, size_t multi_iterations=1,
                 str cycles="efficient", str scheduler="backoff", size_t match_limit=1000, size_t ban_length=5, StopToken stop=None):
        cdef vector[shared_ptr[eg.RewriteRule]] ptrs
        cdef shared_ptr[CStopToken] token
        cdef eg.RunOptions options
        for r in rules:
            if (<EGraphRule?>r).egraph_language != egraph.language:
                raise _errors.UsageError(f"The rule {r.name} is in the language {r.egraph_language}, the e-graph in {egraph.language}.")
            if egraph.made.get((<EGraphRule>r).maker, 0) < (<EGraphRule>r).serial:
                raise _errors.UsageError(
                    f"The rule {r.name} was made for another e-graph; use one made for this, or for what it was cloned from, before that.")
            ptrs.push_back((<EGraphRule>r).ptr)
        if stop is not None:
            token = stop.ptr
        options.iterations, options.nodes, options.multi_iterations = iterations, nodes, multi_iterations
        options.match_limit, options.ban_length = match_limit, ban_length
        options.seconds = 1e18 if seconds is None else seconds
        self.egraph, self.rules = egraph, [r.name for r in rules]
        self.ptr = eg.make_runner(egraph.ptr, ptrs, to_u32(roots), options, cycles.encode(), scheduler.encode(), token)

    def run(self):
        """Saturate; returns why it stopped: saturated, iteration_limit, node_limit, time_limit or interrupted."""
        cdef string reason
        with nogil:
            reason = eg.run_runner(deref(self.ptr))
        return reason.decode()

    def apply_rule(self, size_t rule):
        """Search and apply one rule, once; False if nothing changed."""
        cdef bint changed
        if rule >= len(self.rules):
            raise _errors.UsageError(f"There is no rule {rule}: there are {len(self.rules)}.")
        with nogil:
            changed = deref(self.ptr).apply_rule(rule)
        return changed

    @property
    def roots(self):
        return [int(r) for r in u32(deref(self.ptr).roots())]

    def reports(self):
        """A dict for each iteration: sizes after it, matches, applied, unions, seconds by part."""
        cdef const vector[eg.IterationReport]* all_reports = &deref(self.ptr).reports()
        cdef size_t i
        out = []
        for i in range(all_reports.size()):
            r = deref(all_reports)[i]
            out.append({
                "iteration": r.iteration, "nodes": r.nodes, "classes": r.classes, "filtered": r.filtered, "matches": r.matches,
                "applied": r.applied, "unions": r.unions, "banned": r.banned, "multi_seconds": r.multi_seconds,
                "search_seconds": r.search_seconds, "apply_seconds": r.apply_seconds, "rebuild_seconds": r.rebuild_seconds,
                "cycle_seconds": r.cycle_seconds,
            })
        return out

    def counts(self):
        """By rule: ``{"matches": …, "applied": …, "banned": …}``."""
        cdef const vector[eg.RuleCount]* c = &deref(self.ptr).counts()
        return [
            {"rule": name, "matches": deref(c)[i].matches, "applied": deref(c)[i].applied, "banned": deref(c)[i].banned}
            for i, name in enumerate(self.rules)
        ]


cdef class Extraction:
    """A choice to be made: which node of each class, at the least sum of costs over the classes that the roots need.

    node_class (n,) u32; cost (n,) f64, not negative; children of each node as CSR child_begin (n+1,), child u32; roots: classes.
    A choice is an array (classes,) of node numbers, 0xffffffff where there is none.
    """
    cdef eg.CExtraction e
    cdef public object node_ids, class_ids
    cdef object maker           # the number of the e-graph that it is a snapshot of, if any

    def __init__(self, size_t classes, node_class, cost, child_begin, child, roots):
        if classes >= eg.kNone:
            raise _errors.UsageError(f"this is no extraction problem: it has {classes} classes")
        self.e.classes = classes
        self.e.node_class, self.e.child_begin, self.e.child, self.e.roots = (
            to_u32(node_class), to_u32(child_begin), to_u32(child), to_u32(roots))
        for v in cost:
            self.e.cost.push_back(v)
        self.e.check()

    def __len__(self):
        return self.e.nodes()

    cdef vector[uint32_t] picks(self, choice) except *:
        cdef vector[uint32_t] out
        if len(choice) != self.e.classes:
            raise _errors.UsageError(f"There are {self.e.classes} classes, and {len(choice)} choices.")
        out = to_u32(choice)
        for c in range(out.size()):
            if out[c] != eg.kNone and (out[c] >= self.e.nodes() or self.e.node_class[out[c]] != c):
                raise _errors.UsageError(f"The choice {out[c]} is no node of class {c}.")
        return out

    @property
    def classes(self):
        return self.e.classes

    @property
    def node_class(self):
        return u32(self.e.node_class)

    @property
    def child_begin(self):
        return u32(self.e.child_begin)

    @property
    def child(self):
        return u32(self.e.child)

    @property
    def roots(self):
        return u32(self.e.roots)

    @property
    def cost(self):
        return array(self.e.cost.data(), self.e.cost.size(), "f8")

    def set_cost(self, cost):
        values = np.asarray(cost, dtype=np.float64)
        if values.shape != (self.e.nodes(),):
            raise _errors.UsageError(f"There are {self.e.nodes()} nodes, and costs of shape {values.shape}.")
        for i in range(self.e.nodes()):
            self.e.cost[i] = values[i]
        self.e.check()

    def greedy_tree(self):
        """Each class by its cheapest tree: what is shared is paid for at each use."""
        cdef vector[uint32_t] c
        with nogil:
            c = eg.greedy_tree(self.e)
        return u32(c)

    def greedy_dag(self):
        """Each class by the cheapest set of classes below it, each class deciding alone."""
        cdef vector[uint32_t] c
        with nogil:
            c = eg.greedy_dag(self.e)
        return u32(c)

    def choice_cost(self, choice):
        """The sum of costs over what the roots need; infinite where a needed class has no choice, or the choice is cyclic."""
        return eg.choice_cost(self.e, self.picks(choice))

    def components(self):
        """The number of each class's strongly connected component (classes,) u32."""
        return u32(eg.components(self.e))

    def simplify(self):
        """A smaller problem with the same optimum, as ``Simplified``."""
        cdef Simplified out = Simplified.__new__(Simplified)
        with nogil:
            out.s = eg.simplify(self.e)
        out.full = self
        out.problem = Extraction.__new__(Extraction)
        (<Extraction>out.problem).e = out.s.problem
        return out


cdef class Simplified:
    """A smaller extraction problem, and the way back."""
    cdef eg.CSimplified s
    cdef readonly Extraction full, problem

    def __init__(self):
        raise _errors.UsageError("a Simplified is made by Extraction.simplify()")

    def expand(self, choice):
        """A choice of the smaller problem as one of the full problem."""
        return u32(eg.expand(self.full.e, self.s, (<Extraction>self.problem).picks(choice)))

    def restrict(self, choice):
        """What a choice of the full problem says about the smaller one; None where it uses a node that was dropped."""
        number = {int(n): i for i, n in enumerate(u32(self.s.node))}
        picked = [number.get(int(choice[c]), eg.kNone) for c in u32(self.s.cls)]
        return None if self.problem.choice_cost(picked) == float("inf") else np.array(picked, dtype=np.uint32)
