// Graphs, their text form, digests and order.
#include "check.h"
#include "rlflow/graph.h"

namespace rlflow {
namespace {

const char* kSmall =
    "x: f32[N,4] = input\n"
    "w: f32[4,3] = const\n"
    "b: f32[3] = const [1.0, 2.0, 3.0]\n"
    "y = MatMul(x, w)\n"
    "z = Add(y, b)   # a comment\n"
    "r = Relu(z)\n"
    "return r\n";

TEST(text_round_trip) {
  GraphPtr g = parse_graph(kSmall);
  CHECK_EQ(g->node_count(), 6u);
  GraphPtr again = parse_graph(g->text());
  CHECK(again->digest() == g->digest());
  CHECK_EQ(again->text(), g->text());
}

TEST(types_are_inferred_with_symbols) {
  GraphPtr g = parse_graph(kSmall);
  CHECK_EQ(type_text(g->type(g->outputs()[0])), std::string("f32[N,3]"));
}

TEST(digest_ignores_names_and_order_of_insertion) {
  GraphPtr a = parse_graph("x: f32[2] = input\ny: f32[2] = input\na = Relu(x)\nb = Tanh(y)\nc = Add(a, b)\nreturn c\n");
  GraphPtr b = parse_graph("p: f32[2] = input\nq: f32[2] = input\nt = Tanh(q)\nr = Relu(p)\nc = Add(r, t)\nreturn c\n");
  CHECK(a->digest() == b->digest());
  GraphPtr other = parse_graph("p: f32[2] = input\nq: f32[2] = input\nt = Tanh(p)\nr = Relu(q)\nc = Add(r, t)\nreturn c\n");
  CHECK(!(a->digest() == other->digest()));
}

TEST(digest_sees_attributes_types_and_output_order) {
  auto digest = [](const char* t) { return parse_graph(t)->digest(); };
  CHECK(!(digest("x: f32[2,2] = input\ny = Softmax{axis=0}(x)\nreturn y\n") == digest("x: f32[2,2] = input\ny = Softmax{axis=1}(x)\nreturn y\n")));
  CHECK(digest("x: f32[2,2] = input\ny = Softmax{axis=-1}(x)\nreturn y\n") == digest("x: f32[2,2] = input\ny = Softmax{axis=1}(x)\nreturn y\n"));
  CHECK(!(digest("x: f32[2] = input\ny = Relu(x)\nreturn y\n") == digest("x: f64[2] = input\ny = Relu(x)\nreturn y\n")));
  CHECK(!(digest("x: f32[2] = input\ny = Relu(x)\nreturn y, x\n") == digest("x: f32[2] = input\ny = Relu(x)\nreturn x, y\n")));
}

TEST(common_subexpressions_are_one_node) {
  GraphPtr g = parse_graph("x: f32[2] = input\na = Relu(x)\nb = Relu(x)\nc = Add(a, b)\nreturn c\n");
  CHECK_EQ(g->node_count(), 3u);
}

TEST(impure_nodes_are_never_shared) {
  GraphPtr g = parse_graph(
      "x: f32[2] = input\na = Opaque{name=\"Draw\", instance=0, types=[\"f32[2]\"]}(x)\n"
      "b = Opaque{name=\"Draw\", instance=1, types=[\"f32[2]\"]}(x)\nc = Add(a, b)\nreturn c\n");
  CHECK_EQ(g->node_count(), 4u);
}

TEST(identity_is_forwarded_and_dead_code_dropped) {
  GraphPtr g = parse_graph("x: f32[2] = input\ny: f32[2] = input\ni = Identity(x)\nd = Tanh(y)\nr = Relu(i)\nreturn r\n");
  CHECK_EQ(g->node_count(), 3u);  // both inputs stay
  CHECK_EQ(g->graph_inputs().size(), 2u);
}

TEST(shape_computations_become_constants) {
  GraphPtr g = parse_graph(
      "x: f32[2,12] = input\ns = Shape(x)\ni: i64[1] = const [0]\nd = Gather{axis=0}(s, i)\nm: i64[1] = const [-1]\n"
      "t = Concat{axis=0}(d, m)\ny = Reshape(x, t)\nreturn y\n");
  CHECK_EQ(type_text(g->type(g->outputs()[0])), std::string("f32[2,12]"));
  CHECK_EQ(g->node_count(), 3u);
}

TEST(constants_flow) {
  GraphPtr g = parse_graph("x: f32[2,2] = input\na: f32[2,2] = const\nb: f32[2,2] = const\nw = Add(a, b)\ny = MatMul(x, w)\nreturn y\n");
  int constant = 0;
  for (NodeId n : g->order()) constant += (g->node(n).flags & kConst) != 0;
  CHECK_EQ(constant, 3);
}

TEST(order_is_depth_first_from_the_outputs) {
  GraphPtr g = parse_graph("x: f32[2] = input\na = Relu(x)\nb = Tanh(x)\nc = Add(b, a)\nreturn c\n");
  auto order = g->order();
  CHECK_EQ(op_info(g->node(order[1]).op).name, std::string("Tanh"));
  for (size_t k = 0; k < order.size(); ++k) CHECK_EQ(g->position(order[k]), k);
}

TEST(dependence) {
  GraphPtr g = parse_graph("x: f32[2] = input\na = Relu(x)\nb = Tanh(x)\nc = Add(b, a)\nd = Neg(a)\nreturn c, d\n");
  auto find = [&](const char* op) {
    for (NodeId n : g->order())
      if (g->op(n).name == op) return n;
    return kNoNode;
  };
  CHECK(g->depends_on(find("Add"), find("Relu")));
  CHECK(!g->depends_on(find("Neg"), find("Tanh")));
  CHECK(!g->depends_on(find("Relu"), find("Add")));
}

TEST(symbols_are_bound) {
  GraphPtr g = parse_graph(kSmall);
  std::vector<std::pair<std::string, Int>> values{{"N", 7}};
  CHECK_EQ(type_text(bind_symbols(*g, values)->type(bind_symbols(*g, values)->outputs()[0])), std::string("f32[7,3]"));
}

TEST(errors_name_the_line) {
  CHECK_THROWS_WITH(ErrorKind::kGraph, "line 2", parse_graph("x: f32[2] = input\ny = Nope(x)\nreturn y\n"));
  CHECK_THROWS_WITH(ErrorKind::kGraph, "'q'", parse_graph("x: f32[2] = input\ny = Relu(q)\nreturn y\n"));
  CHECK_THROWS_WITH(ErrorKind::kGraph, "twice", parse_graph("x: f32[2] = input\nx = Relu(x)\nreturn x\n"));
  CHECK_THROWS_WITH(ErrorKind::kGraph, "return", parse_graph("x: f32[2] = input\n"));
  CHECK_THROWS_WITH(ErrorKind::kGraph, "inputs", parse_graph("x: f32[2] = input\ny = Add(x)\nreturn y\n"));
  CHECK_THROWS_WITH(ErrorKind::kType, "MatMul", parse_graph("x: f32[2,3] = input\ny = MatMul(x, x)\nreturn y\n"));
}

}  // namespace
}  // namespace rlflow
