# The enumeration of graphs, included by _core.pyx. Conversions only.
from enumerate cimport (
    CEnumerator,
    Counts,
    EnumerationValue,
    Pair,
    PairCounts,
    Record,
    Space,
    add_input,
    add_records,
    add_template,
    find_pairs,
    make_enumerator,
    pair_bytes,
    record_bytes,
    run_branch,
)


cdef class Enumerator:
    """All graphs of up to ``max_ops`` operators over typed inputs, with their fingerprints in GF(2^61 - 1).

    inputs: (family, is a weight, [shape in each world], residues of all worlds, the same as doubles). templates: (kind, outputs,
    commutative, [what each operand may be: 0 any, 1 a weight, 2 an input, 3 a weight input], key, [attributes in each world], operator of the
    table, [its attributes in each world]).
    Graphs travel as bytes: 40 each, 128 a pair (see enumerate.h).
    """
    cdef shared_ptr[CEnumerator] ptr
    cdef readonly int num_inputs, worlds

    def __init__(self, inputs, templates, *, int worlds=2, int max_ops=3, int64_t max_elements=512):
        cdef Space space
        space.worlds, space.max_ops, space.max_elements = worlds, max_ops, max_elements
        for family, weight, shapes, residues, reals in inputs:
            add_input(space, family, weight, shapes, residues, reals)
        cdef vector[AttrSet] attrs
        for kind, outputs, commutative, operands, key, attributes, op, in_worlds in templates:
            attrs.clear()
            for one in in_worlds:
                attrs.push_back(to_attrs(one))
            add_template(space, (<str?>kind).encode(), outputs, commutative, operands, key, attributes, (<str?>op).encode(), attrs)
        self.num_inputs, self.worlds = len(inputs), worlds
        self.ptr = make_enumerator(space)

    @property
    def branches(self):
        """How many independent parts the enumeration has."""
        return deref(self.ptr).branch_count()

    def inputs(self):
        """The graphs without operators, as bytes."""
        return <bytes>record_bytes(deref(self.ptr).inputs())

    def run(self, size_t branch, size_t limit, StopToken stop=None):
        """The graphs of one part, as bytes, and counts; None where ``stop`` was set. At most ``limit`` graphs, else UsageError.

        Runs without the GIL; branches may run in different threads."""
        cdef vector[Record] out
        cdef Counts counts
        cdef cbool whole
        cdef const CStopToken* token = NULL
        if stop is not None:
            token = stop.ptr.get()
        with nogil:
            whole = run_branch(deref(self.ptr), branch, limit, token, out, counts)
        if not whole:
            return None
        return <bytes>record_bytes(out), {"graphs": counts.graphs, "ill_typed": counts.ill_typed, "repeated": counts.repeated,
                                          "reordered": counts.reordered}

    def pairs(self, parts, StopToken stop=None):
        """The equations among graphs (an iterable of bytes, as ``run`` gave them), as bytes, and counts."""
        cdef vector[Record] records
        cdef vector[Pair] found
        cdef PairCounts counts
        cdef const CStopToken* token = NULL
        if stop is not None:
            token = stop.ptr.get()
        for part in parts:
            add_records(records, part)
        with nogil:
            found = find_pairs(deref(self.ptr), records, counts, token)
        return <bytes>pair_bytes(found), {
            "graphs": counts.records, "fingerprints": counts.classes, "shared": counts.shared_classes, "pairs": counts.pairs,
            "parts": counts.parts, "renamed": counts.renamed, "context": counts.context, "kept": counts.kept,
        }

    def evaluate(self, bytes graph):
        """The values of a graph's operators, two an operator (the second is empty where there is one output): for each, for each world,
        (shape, residues, reals) with the elements in row-major order."""
        cdef vector[Record] records
        add_records(records, graph)
        cdef vector[EnumerationValue] values = deref(self.ptr).evaluate(records[0])
        cdef size_t k
        out = []
        for k in range(values.size()):
            worlds = []
            for w in range(self.worlds if values[k].residue.size() else 0):
                shape = [values[k].shape[w].extent[d] for d in range(values[k].shape[w].rank)]
                begin, end = values[k].begin[w], values[k].begin[w + 1]
                worlds.append((shape, [values[k].residue[i] for i in range(begin, end)], [values[k].real[i] for i in range(begin, end)]))
            out.append(worlds)
        return out
