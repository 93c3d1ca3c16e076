// The e-graph's parts: congruence, data, matching, joins, cycles, extraction. Random graphs against oracles: tests/search/test_eqsat*.py.
#include "check.h"
#include "rlflow/egraph_extract.h"
#include "rlflow/egraph_table.h"
#include "rlflow/egraph_tensat.h"

using namespace rlflow;
using namespace rlflow::egraph;

namespace {

struct Terms {
  std::shared_ptr<TermLanguage> language = std::make_shared<TermLanguage>();
  EGraph g{language};
  ClassId parse(const char* text) { return language->parse_term(g, text); }
  StopReason run(const std::vector<std::vector<std::string>>& rules, ClassId root, RunOptions options = {}) {
    std::vector<RewriteRule> parsed;
    for (const auto& lines : rules) parsed.push_back(language->parse_rule(lines[0], lines, true));
    return Runner(g, std::move(parsed), {root}, options, nullptr).run();
  }
};

Extraction small_problem() {                // root 0 over classes 1 and 2, or over 1 alone
  Extraction e;
  e.classes = 3;
  e.node_class = {0, 0, 1, 2};
  e.cost = {1, 2, 5, 4};
  e.child_begin = {0, 2, 4, 4, 4};
  e.child = {1, 2, 1, 1};
  e.roots = {0};
  return e;
}

}  // namespace

TEST(egraph_congruence_reaches_the_top) {
  Terms t;
  const ClassId x = t.parse("(f (f (f a)))"), y = t.parse("(f (f (f b)))");
  CHECK_EQ(t.g.node_count(), 8u);
  CHECK(t.g.unite(t.parse("a"), t.parse("b")));
  CHECK(t.g.find(x) != t.g.find(y));
  t.g.rebuild();
  CHECK_EQ(t.g.find(x), t.g.find(y));
  CHECK_EQ(t.g.node_count(), 5u);           // a, b and three f
  CHECK_EQ(t.g.class_count(), 4u);
  CHECK_EQ(t.g.broken_invariant(), "");
}

TEST(egraph_a_node_that_becomes_a_duplicate_twice_dies_once) {
  Terms t;
  const ClassId ab = t.parse("(g a b)"), ba = t.parse("(g b a)"), aa = t.parse("(g a a)");
  t.g.unite(t.parse("a"), t.parse("b"));
  t.g.rebuild();
  CHECK(t.g.find(ab) == t.g.find(ba) && t.g.find(ba) == t.g.find(aa));
  CHECK_EQ(t.g.node_count(), 3u);
  CHECK_EQ(t.g.broken_invariant(), "");
}

TEST(egraph_a_filtered_node_stays_filtered_when_it_meets_its_twin) {
  Terms t;
  const ClassId fa = t.parse("(f a)"), fb = t.parse("(f b)");
  t.g.rebuild();
  t.g.filter(t.g.members(fb)[0]);
  t.g.unite(t.parse("a"), t.parse("b"));
  t.g.rebuild();
  CHECK_EQ(t.g.filtered_count(), 1u);
  CHECK(t.g.node(t.g.members(t.g.find(fa))[0]).filtered);
}

TEST(egraph_searches_want_a_clean_graph) {
  Terms t;
  t.parse("(f a)");
  Pattern p;
  p.add({-1, {static_cast<uint32_t>(t.language->op_of("f"))}, false, 0, {p.add_variable(0)}});
  const Matcher m(p);
  CHECK_THROWS(m.search(t.g), "rebuild()");
  t.g.rebuild();
  CHECK_EQ(m.search(t.g).size(), 1u);
}

TEST(egraph_ground_terms_and_repeated_variables) {
  Terms t;
  const ClassId root = t.parse("(pair (g a a) (g a b))");
  CHECK(t.run({{"(g ?x ?x)=>(same ?x)"}, {"(g a b)=>(different a)"}}, root) == StopReason::kSaturated);
  CHECK_EQ(t.g.find(t.parse("(same a)")), t.g.find(t.parse("(g a a)")));
  CHECK_EQ(t.g.find(t.parse("(different a)")), t.g.find(t.parse("(g a b)")));
  CHECK(t.g.find(t.parse("(g a a)")) != t.g.find(t.parse("(g a b)")));
}

TEST(egraph_unordered_roots_meet_once) {
  Terms t;
  const ClassId root = t.parse("(list (m x a) (m x b) (m x c) (m y d))");
  RunOptions options;
  options.iterations = 1;
  t.run({{"(m ?x ?v)=>(first (m2 ?x ?v ?w))", "(m ?x ?w)=>(second (m2 ?x ?v ?w))"}}, root, options);
  CHECK_EQ(t.g.classes_with(static_cast<uint32_t>(t.language->op_of("m2")), 3).size(), 3u);
}

TEST(egraph_merge_keeps_what_contradicts_out) {
  auto language = std::make_shared<TableLanguage>();
  const GraphPtr graph = parse_graph("x: f32[2,3] = input\ny: f32[2,4] = input\na = Relu(x)\nb = Relu(y)\nreturn a, b");
  EGraph g(language);
  const auto cls = add_graph(g, *graph);
  CHECK_THROWS_WITH(ErrorKind::kType, "known to differ", g.unite(cls[graph->outputs()[0]], cls[graph->outputs()[1]]));
  CHECK_EQ(g.broken_invariant(), "");
}

TEST(egraph_facts_flow_up_when_they_get_sharper) {
  auto language = std::make_shared<TableLanguage>();
  const GraphPtr graph = parse_graph("x: f32[2,3] = input\ny: f32[?,3] = input\na = Relu(y)\nreturn x, a");
  EGraph g(language);
  const auto cls = add_graph(g, *graph);
  CHECK_EQ(language->data_text(g.data(cls[graph->outputs()[1]])), "f32[?,3]");
  g.unite(cls[graph->outputs()[0]], cls[graph->inputs(graph->producer(graph->outputs()[1]))[0]]);
  g.rebuild();
  CHECK_EQ(language->data_text(g.data(cls[graph->outputs()[1]])), "f32[2,3]");
  CHECK_EQ(g.broken_invariant(), "");
}

TEST(egraph_tensat_splits_where_it_joined) {
  auto language = std::make_shared<TensatLanguage>();
  EGraph g(language);
  const ClassId c = language->parse_term(g, "(split 1 (concat 1 2 (concat 1 2 (input a@4_1) (input b@4_2)) (input c@4_5)))");
  CHECK_EQ(language->data_text(g.data(c)), "([4,3], [4,5])");
  CHECK_THROWS(language->parse_term(g, "(split 0 (input a@4_1))"), "does not take");
}

TEST(egraph_extraction_by_tree_and_by_dag) {
  const Extraction e = small_problem();
  e.check();
  CHECK_EQ(choice_cost(e, greedy_tree(e)), 10.0);
  CHECK_EQ(choice_cost(e, greedy_dag(e)), 7.0);
  const Simplified s = simplify(e);
  CHECK_EQ(s.problem.nodes(), 4u);          // of the root's two nodes one costs less and the other needs less: both stay
}

TEST(egraph_components_are_those_of_the_cycles) {
  Extraction e = small_problem();
  e.child = {1, 2, 1, 1};
  e.child_begin = {0, 2, 4, 4, 4};
  const auto acyclic = components(e);
  CHECK(acyclic[0] != acyclic[1] && acyclic[1] != acyclic[2]);
  e.child.push_back(0);                     // class 2 over class 0
  e.child_begin = {0, 2, 4, 4, 5};
  const auto cyclic = components(e);
  CHECK_EQ(cyclic[0], cyclic[2]);
  CHECK(cyclic[0] != cyclic[1]);
}
