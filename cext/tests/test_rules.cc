// Rules: what parses, what is refused and why; what matches; what a rewrite leaves behind.
#include "check.h"
#include "rlflow/rewrite.h"
#include "rlflow/state.h"

namespace rlflow {
namespace {

using Strings = std::vector<std::string>;

RulePtr rule(Strings source, Strings target, Strings where = {}, std::vector<std::pair<std::string, std::string>> let = {}) {
  return std::make_shared<Rule>("r", std::move(source), std::move(target), std::move(where), std::move(let));
}

// The distinct children of a graph under one rule, as texts.
Strings children(const char* text, RulePtr r) {
  auto set = std::make_shared<RuleSet>(std::vector<RulePtr>{r});
  State s(parse_graph(text), set, nullptr, -1, nullptr);
  Strings out;
  for (size_t i = 0; i < s.moves().size(); ++i) out.push_back(s.child(i)->text());
  return out;
}

bool same(const std::string& text, const char* expected) { return parse_graph(text)->digest() == parse_graph(expected)->digest(); }

TEST(refusals) {
  CHECK_THROWS_WITH(ErrorKind::kRule, "not bound", rule({"(Relu ?x)"}, {"?y"}));
  CHECK_THROWS_WITH(ErrorKind::kRule, "not in the table", rule({"(Frobnicate ?x)"}, {"?x"}));
  CHECK_THROWS_WITH(ErrorKind::kRule, "no attribute", rule({"(Relu{axis=1} ?x)"}, {"?x"}));
  CHECK_THROWS_WITH(ErrorKind::kRule, "inputs", rule({"(Add ?x)"}, {"?x"}));
  CHECK_THROWS_WITH(ErrorKind::kRule, "not known", rule({"(Relu ?x)"}, {"?x"}, {"frob(?x)"}));
  CHECK_THROWS_WITH(ErrorKind::kRule, "expected", rule({"(Relu ?x)"}, {"?x"}, {"rank(?x"}));
  CHECK_THROWS_WITH(ErrorKind::kRule, "2 source roots", rule({"(Relu ?x)", "(Tanh ?x)"}, {"?x"}));
  CHECK_THROWS_WITH(ErrorKind::kRule, "one value per member", rule({"*(MatMul ?x ?w...)"}, {"?x"}));
  CHECK_THROWS_WITH(ErrorKind::kRule, "no class", rule({"(?f ?x)"}, {"?x"}));
  CHECK_THROWS_WITH(ErrorKind::kRule, "must be an operator", rule({"?x"}, {"?x"}));
}

TEST(single_root) {
  auto out = children("x: f32[2] = input\na = Relu(x)\nb = Relu(a)\nreturn b\n", rule({"(Relu (Relu ?x))"}, {"(Relu ?x)"}));
  CHECK_EQ(out.size(), 1u);
  CHECK(same(out[0], "x: f32[2] = input\na = Relu(x)\nreturn a\n"));
}

TEST(attributes_bind_compare_and_compute) {
  auto r = rule({"(Transpose{perm=?p} (Transpose{perm=?q} ?x))"}, {"(Transpose{perm=compose(?q, ?p)} ?x)"});
  auto out = children("x: f32[2,3,4] = input\na = Transpose{perm=[1,2,0]}(x)\nb = Transpose{perm=[1,0,2]}(a)\nreturn b\n", r);
  CHECK_EQ(out.size(), 1u);
  CHECK(same(out[0], "x: f32[2,3,4] = input\na = Transpose{perm=[2,1,0]}(x)\nreturn a\n"));
}

TEST(an_unnamed_attribute_must_have_its_default) {
  auto r = rule({"(Gemm ?a ?b ?c)"}, {"(Add (MatMul ?a ?b) ?c)"});
  CHECK_EQ(children("a: f32[2,3] = input\nb: f32[3,4] = const\nc: f32[4] = const\ny = Gemm(a, b, c)\nreturn y\n", r).size(), 1u);
  CHECK_EQ(children("a: f32[2,3] = input\nb: f32[3,4] = const\nc: f32[4] = const\ny = Gemm{alpha=2.0}(a, b, c)\nreturn y\n", r).size(), 0u);
}

TEST(conditions_are_three_valued) {
  auto r = rule({"(Add ?x ?y)"}, {"(Add ?y (Relu ?x))"}, {"same_shape(?x, ?y)"});
  CHECK_EQ(children("x: f32[2] = input\ny: f32[2] = input\nz = Add(x, y)\nreturn z\n", r).size(), 2u);
  CHECK_EQ(children("x: f32[N] = input\ny: f32[M] = input\nz = Add(x, y)\nreturn z\n", r).size(), 0u);
  CHECK_EQ(children("x: f32[N] = input\ny: f32[N] = input\nz = Add(x, y)\nreturn z\n", r).size(), 2u);
}

TEST(classes_carry_attributes_and_scalar_operands) {
  auto r = rule({"(Slice{..?s} (?f:unary ?x))"}, {"(?f (Slice{..?s} ?x))"});
  auto out = children(
      "x: f32[4] = input\nlo: f32[] = const 0.0\nhi: f32[] = const 6.0\nc = Clip(x, lo, hi)\n"
      "s = Slice{starts=[0], ends=[2], axes=[0], steps=[1]}(c)\nreturn s\n",
      r);
  CHECK_EQ(out.size(), 1u);
  CHECK(same(out[0],
             "x: f32[4] = input\nlo: f32[] = const 0.0\nhi: f32[] = const 6.0\n"
             "s = Slice{starts=[0], ends=[2], axes=[0], steps=[1]}(x)\nc = Clip(s, lo, hi)\nreturn c\n"));
}

TEST(sequences_split_operands) {
  auto r = rule({"(Concat{axis=?a} ?p... (Concat{axis=?a} ?m...) ?q...)"}, {"(Concat{axis=?a} ?p... ?m... ?q...)"});
  auto out = children("x: f32[2] = input\ny: f32[2] = input\na = Concat{axis=0}(x, y)\nb = Concat{axis=0}(y, a, x)\nreturn b\n", r);
  CHECK_EQ(out.size(), 1u);
  CHECK(same(out[0], "x: f32[2] = input\ny: f32[2] = input\nb = Concat{axis=0}(y, x, y, x)\nreturn b\n"));
}

TEST(star_groups_are_maximal_and_spread) {
  auto r = rule({"*(MatMul ?x ?w...)"}, {"(Split{axis=rank($0)-1, split=dims(?w..., 1)} (MatMul ?x (Concat{axis=1} ?w...))):*"},
                {"constant(?w...)", "rank(?w...) == 2"});
  auto out = children(
      "x: f32[2,4] = input\ny: f32[4,4] = input\na: f32[4,3] = const\nb: f32[4,5] = const\nc: f32[4,1] = const\n"
      "p = MatMul(x, a)\nq = MatMul(x, b)\nr = MatMul(x, c)\ns = MatMul(x, y)\nreturn p, q, r, s\n",
      r);
  CHECK_EQ(out.size(), 1u);
  CHECK(same(out[0],
             "x: f32[2,4] = input\ny: f32[4,4] = input\na: f32[4,3] = const\nb: f32[4,5] = const\nc: f32[4,1] = const\n"
             "w = Concat{axis=1}(a, b, c)\nm = MatMul(x, w)\np, q, r = Split{axis=1, split=[3,5,1]}(m)\ns = MatMul(x, y)\nreturn p, q, r, s\n"));
}

TEST(independent_members_only) {
  auto r = rule({"*(MatMul ?x... ?w)"}, {"(Split{axis=0, split=dims(?x..., 0)} (MatMul (Concat{axis=0} ?x...) ?w)):*"},
                {"independent(?x...)", "rank(?x...) == 2"});
  CHECK_EQ(children("x: f32[2,4] = input\nw: f32[4,4] = const\na = MatMul(x, w)\nb = MatMul(a, w)\nreturn b\n", r).size(), 0u);
  CHECK_EQ(children("x: f32[2,4] = input\ny: f32[2,4] = input\nw: f32[4,4] = const\na = MatMul(x, w)\nb = MatMul(y, w)\nreturn a, b\n", r).size(),
           1u);
}

TEST(a_move_that_would_close_a_cycle_is_refused) {
  auto r = rule({"(MatMul ?x ?a)", "(MatMul ?y ?b)"},
                {"(Split{axis=0, split=[2,2]} (Concat{axis=0} (MatMul ?x ?a) (MatMul ?y ?b))):0",
                 "(Split{axis=0, split=[2,2]} (Concat{axis=0} (MatMul ?x ?a) (MatMul ?y ?b))):1"},
                {"dim(?x, 0) == 2", "dim(?y, 0) == 2"});
  auto set = std::make_shared<RuleSet>(std::vector<RulePtr>{r});
  State s(parse_graph("x: f32[2,2] = input\nw: f32[2,2] = const\nv: f32[2,2] = const\na = MatMul(x, w)\nt = Relu(a)\nb = MatMul(t, v)\nreturn b\n"),
          set, nullptr, -1, nullptr);
  CHECK_EQ(s.moves().size(), 0u);
  CHECK(s.stats()[0].refused > 0);
  CHECK(s.stats()[0].last_refusal.find("cycle") != std::string::npos);
}

TEST(a_replacement_that_is_there_and_reads_the_root_is_refused) {
  auto set = std::make_shared<RuleSet>(std::vector<RulePtr>{
      rule({"(MatMul ?a (Transpose{perm=?p} ?b))"}, {"(Transpose{perm=?p} (MatMul ?b (Transpose{perm=?p} ?a)))"}, {"perm_is_swap(?p)"})});
  const std::string gram = "x: f32[2,3] = input\nt = Transpose{perm=[1,0]}(x)\ny = MatMul(x, t)\n";
  State free(parse_graph(gram + "return y\n"), set, nullptr, -1, nullptr);
  CHECK_EQ(free.moves().size(), 1u);
  for (const char* ending : {"return z\n", "return y, z\n", "a = Relu(z)\nreturn a\n"}) {
    State s(parse_graph(gram + "z = Transpose{perm=[1,0]}(y)\n" + ending), set, nullptr, -1, nullptr);
    CHECK_EQ(s.moves().size(), 0u);
    CHECK(s.stats()[0].last_refusal.find("cycle") != std::string::npos);
  }
}

TEST(a_type_that_changes_is_refused) {
  auto set = std::make_shared<RuleSet>(std::vector<RulePtr>{rule({"(Relu ?x)"}, {"(ReduceSum{axes=[0], keepdims=0} ?x)"})});
  State s(parse_graph("x: f32[3] = input\ny = Relu(x)\nreturn y\n"), set, nullptr, -1, nullptr);
  CHECK_EQ(s.moves().size(), 0u);
  CHECK(s.stats()[0].last_refusal.find("type") != std::string::npos);
}

TEST(every_output_of_a_split_is_replaced) {
  auto r = rule({"(Split{..?s} (?f:unary ?x))"}, {"*(?f (Split{..?s} ?x):*)"});
  auto out = children("x: f32[4] = input\na = Relu(x)\np, q = Split{axis=0, split=[1,3]}(a)\nreturn q, p\n", r);
  CHECK_EQ(out.size(), 1u);
  CHECK(same(out[0], "x: f32[4] = input\np, q = Split{axis=0, split=[1,3]}(x)\na = Relu(p)\nb = Relu(q)\nreturn b, a\n"));
}

TEST(literals_and_lets) {
  auto r = rule({"(Mul ?x ?c)"}, {"(Mul ?x ?k)"}, {"constant(?c)", "is_scalar(?c)", "twice < 100"},
                {{"twice", "scalar(?c) * 2"}, {"?k", "(Literal{value=twice, like=?x})"}});
  auto out = children("x: f32[2] = input\nc: f32[] = const 3.0\ny = Mul(x, c)\nreturn y\n", r);
  CHECK_EQ(out.size(), 1u);
  CHECK(same(out[0], "x: f32[2] = input\nc: f32[] = const 6.0\ny = Mul(x, c)\nreturn y\n"));
}

TEST(comparisons_with_lists_hold_for_every_element) {
  auto fires = [](const char* condition) {
    return !children("x: f32[2,3] = input\ny = Relu(x)\nreturn y\n", rule({"(Relu ?x)"}, {"(Abs (Relu ?x))"}, {condition})).empty();
  };
  CHECK(fires("shape(?x) <= 3"));
  CHECK(fires("[1,2] <= 2"));
  CHECK(fires("shape(?x) >= [2,2]"));
  CHECK(fires("2 < [3,4]"));
  CHECK(fires("[1,1] < [2,3]"));
  CHECK(!fires("shape(?x) <= 2"));
  CHECK(!fires("[1,2] < [2,2]"));
  CHECK(!fires("[1] < [2,2]"));
}

TEST(a_let_may_pick_an_output) {
  auto r = rule({"(Relu ?x)"}, {"(Relu (Concat{axis=0} (Split{axis=0, split=[1,1]} ?x):0 ?last))"}, {"dim(?x, 0) == 2"},
                {{"?last", "(Split{axis=0, split=[1,1]} ?x):1"}});
  auto out = children("x: f32[2] = input\ny = Relu(x)\nreturn y\n", r);
  CHECK_EQ(out.size(), 1u);
  CHECK(same(out[0], "x: f32[2] = input\na, b = Split{axis=0, split=[1,1]}(x)\nc = Concat{axis=0}(a, b)\ny = Relu(c)\nreturn y\n"));
}

TEST(equal_nodes_merge_after_a_rewrite) {
  auto set = std::make_shared<RuleSet>(std::vector<RulePtr>{rule({"(Relu (Relu ?x))"}, {"(Relu ?x)"})});
  State s(parse_graph("x: f32[2] = input\na = Relu(x)\nb = Relu(a)\nc = Tanh(b)\nd = Tanh(a)\ne = Add(c, d)\nreturn e\n"), set, nullptr, -1, nullptr);
  CHECK_EQ(s.moves().size(), 1u);
  CHECK_EQ(s.open(0)->graph()->node_count(), 4u);  // x, Relu, Tanh, Add
}

TEST(explanations_name_the_failing_part) {
  GraphPtr g = parse_graph("x: f32[2,3] = input\ny = Softmax{axis=1}(x)\ns = Slice{starts=[0], ends=[1], axes=[1], steps=[1]}(y)\nreturn s\n");
  auto r = rule({"(Slice{axes=?k, ..?s} (Softmax{axis=?a} ?x))"}, {"(Softmax{axis=?a} (Slice{axes=?k, ..?s} ?x))"}, {"not ?a in ?k"});
  auto why = explain(*g, *r, kNoNode);
  CHECK_EQ(why.size(), 1u);
  CHECK(why[0].find("not ?a in ?k") != std::string::npos);
  CHECK(why[0].find("false") != std::string::npos);
  auto other = explain(*g, *rule({"(Relu ?x)"}, {"?x"}), kNoNode);
  CHECK(other[0].find("Relu") != std::string::npos);
}

}  // namespace
}  // namespace rlflow
