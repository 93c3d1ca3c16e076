# Rules and sets of them, included by _core.pyx. Conversions only.

cdef class Rule:
    """A compiled substitution; raises RuleError with the reason when the statement makes no sense."""
    cdef shared_ptr[const CRule] ptr

    def __init__(self, str name, source, target, where=(), let=None):
        cdef vector[pair[string, string]] lets
        for key, value in (let or {}).items():
            lets.push_back(pair[string, string]((<str?>key).encode(), (<str?>value).encode()))
        self.ptr = make_rule(name.encode(), to_strings(source), to_strings(target), to_strings(where), lets)

    @property
    def name(self):
        return deref(self.ptr).name().decode()

    @property
    def digest(self):
        """Of the statement: the name does not count."""
        return to_hex(deref(self.ptr).digest()).decode()

    def text(self):
        return deref(self.ptr).text().decode()

    def operators(self):
        """Names of the operators written on either side (operator classes are not listed)."""
        return [o.decode() for o in deref(self.ptr).operators()]

    def target_operators(self):
        """Names of the operators that the target writes: a model's opset must have them."""
        return [op_info(o).name.decode() for o in deref(self.ptr).target_operators()]

    def __repr__(self):
        return f"<Rule {self.name}: {self.text()}>"


cdef class RuleSet:
    """The rules of a search, in a fixed order."""
    cdef shared_ptr[const CRuleSet] ptr
    cdef readonly list rules

    def __init__(self, rules):
        cdef vector[shared_ptr[const CRule]] ptrs
        self.rules = list(rules)
        for r in self.rules:
            ptrs.push_back((<Rule?>r).ptr)
        self.ptr = make_rule_set(ptrs)

    def __len__(self):
        return deref(self.ptr).size()

    @property
    def names(self):
        return [r.name for r in self.rules]

    @property
    def digest(self):
        return to_hex(deref(self.ptr).digest()).decode()


def explain(Graph graph, Rule rule, node=None):
    """Sentences that say, for each node where the rule's root could be (or for one node), why it does not fire there, or that it does."""
    cdef NodeId n = kNoNode
    if node is not None:
        n = graph.check_node(node)
    return [s.decode() for s in explain_native(deref(graph.ptr), deref(rule.ptr), n)]
