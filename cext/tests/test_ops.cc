// The operator table: rows that are consistent, the checks that all share, and the shape rules of operators that compute.
#include <set>

#include "op_cases.h"

using namespace rlflow;
using namespace rlflow::testing;

// ---- the table --------------------------------------------------------------------------------------------------------------
TEST(ops_table_rows_are_consistent) {
  std::set<std::string> names;
  const auto& table = op_table();
  CHECK(table.size() >= 140);
  for (size_t i = 0; i < table.size(); ++i) {
    const OpInfo& op = table[i];
    CHECK_EQ(op.name + std::to_string(op.id), op.name + std::to_string(i));
    CHECK(names.insert(op.name).second);
    CHECK(has_op(op.name));
    CHECK_EQ(find_op(op.name), op.id);
    CHECK(op.infer != nullptr);
    CHECK(op.since >= 1 && op.since <= 24);
    CHECK(op.max_inputs < 0 ? op.has(kVariadic) : op.min_inputs <= op.max_inputs && !op.has(kVariadic));
    CHECK(op.outputs >= 1);
    CHECK(std::is_sorted(op.attributes.begin(), op.attributes.end()));
    CHECK(std::adjacent_find(op.attributes.begin(), op.attributes.end()) == op.attributes.end());
    for (const AttrDefault& d : op.defaults) CHECK(std::binary_search(op.attributes.begin(), op.attributes.end(), d.name));
    if (op.has(kUnary) || op.has(kBinary)) CHECK(op.has(kPure));
    if (op.has(kUnary)) CHECK(!op.has(kBinary) && op.min_inputs == 1);
    if (op.has(kBinary)) CHECK(op.min_inputs == 2 && op.max_inputs == 2);
    if (op.has(kZeroPreserving) || op.has(kMonotone)) CHECK(op.has(kUnary));
    if (op.has(kCommutative)) CHECK(op.has(kBinary) || op.has(kVariadic));
    if (op.has(kView)) CHECK(op.fusion == FusionClass::kView);
    if (op.has(kReduce)) CHECK(op.fusion == FusionClass::kReduction && op.name.starts_with("Reduce"));
  }
  CHECK_EQ(find_op("Input"), kOpInput);
  CHECK_EQ(find_op("Constant"), kOpConstant);
  CHECK_EQ(find_op("Opaque"), kOpOpaque);
}

TEST(ops_every_row_tolerates_unknown_inputs) {
  // With nothing known about any input, no rule may find a contradiction (attributes without default are given where required).
  const std::vector<std::pair<std::string, std::string>> required{{"Cast", "{to=1}"},
                                                                  {"BitShift", "{direction=\"LEFT\"}"},
                                                                  {"Einsum", "{equation=\"...\"}"},
                                                                  {"MaxPool", "{kernel_shape=[2,2]}"},
                                                                  {"AveragePool", "{kernel_shape=[2,2]}"},
                                                                  {"LpPool", "{kernel_shape=[2,2]}"},
                                                                  {"GroupNormalization", "{num_groups=2}"},
                                                                  {"LRN", "{size=3}"},
                                                                  {"Reshape", "{shape=[2,3]}"},
                                                                  {"Unsqueeze", "{axes=[0]}"},
                                                                  {"Concat", "{axis=0}"},
                                                                  {"Tile", "{repeats=[2]}"},
                                                                  {"Pad", "{pads=[1,1]}"},
                                                                  {"Expand", "{shape=[2]}"},
                                                                  {"Slice", "{starts=[0],ends=[1]}"},
                                                                  {"Resize", "{scales=[1.0,2.0]}"},
                                                                  {"DepthToSpace", "{blocksize=2}"},
                                                                  {"SpaceToDepth", "{blocksize=2}"}};
  for (const OpInfo& op : op_table()) {
    if (op.id <= kOpOpaque) continue;
    auto given = std::find_if(required.begin(), required.end(), [&](const auto& r) { return r.first == op.name; });
    for (int n = op.min_inputs; n <= std::max(op.min_inputs, op.max_inputs); ++n) {
      AttrSet attrs = attrs_in(given == required.end() ? "" : given->second);
      std::vector<InferInput> in(static_cast<size_t>(n), InferInput{true, 0, nullptr, nullptr});
      std::vector<InferOutput> out;
      try {
        infer(op.id, attrs, in, out, 0);
      } catch (const Error& e) {
        CHECK_EQ(op.name + " with " + std::to_string(n) + " unknown inputs threw " + e.what(), std::string());
      }
      CHECK_EQ(out.size(), static_cast<size_t>(op.outputs));
    }
  }
}

TEST(ops_find_and_arity_errors) {
  CHECK_THROWS_WITH(ErrorKind::kGraph, "unknown operator 'MatMull' (did you mean 'MatMul'?)", find_op("MatMull"));
  CHECK_THROWS_WITH(ErrorKind::kGraph, "unknown operator 'Quux", find_op("QuuxFrobnicate"));
  CHECK(!has_op("Foo"));
  static const Case cases[] = {
      {"MatMul", "f32[2,3]", "!! MatMul: found 1 inputs, expected 2"},
      {"Clip", "f32[2] | _ | f32[]", "f32[2]"},
      {"Clip", "f32[2] | f32[] | f32[] | f32[]", "!! Clip: found 4 inputs, expected 1 to 3"},
      {"Concat{axis=0}", "", "!! Concat: found 0 inputs, expected 1 or more"},
      {"Add", "f32[2] | _", "!! Add: a required input is absent"},
      {"Relu{alpha=1}", "f32[2]", "!! Relu: unknown attribute 'alpha' (it has none)"},
      {"Softmax{axes=1}", "f32[2]", "!! Softmax: unknown attribute 'axes' (it has axis)"},
      {"Softmax{axis=\"x\"}", "f32[2]", "! Softmax: attribute 'axis' is \"x\", expected a value like its default -1"},
      {"Concat", "f32[2]", "! Concat: attribute 'axis' is absent, expected an integer"},
  };
  run_cases(cases);
}

TEST(ops_float_attributes_are_single_precision) {
  static const Case cases[] = {
      {"LeakyRelu", "f32[2]", "f32[2] @ {alpha=0.01}"},
      {"LeakyRelu{alpha=0.10000000149011612}", "f32[2]", "f32[2] @ {alpha=0.1}"},
      {"LeakyRelu{alpha=1}", "f32[2]", "f32[2] @ {alpha=1.0}"},
      {"Selu", "f32[2]", "f32[2] @ {alpha=1.6732632, gamma=1.050701}"},
      {"Pad{pads=[0,1],value=0.10000000149011612}", "f32[2]", "f32[3] @ {mode=\"constant\", pads=[0,1], value=0.10000000149011612}"},
  };
  run_cases(cases);
}

// ---- pointwise --------------------------------------------------------------------------------------------------------------
TEST(ops_unary) {
  static const Case cases[] = {
      {"Relu", "f32[2,N]", "f32[2,N]"},
      {"Relu", "f32[*]", "f32[*]"},
      {"Relu", "any", "any"},
      {"Exp", "f16[0,1]", "f16[0,1]"},
      {"Not", "bool[3]", "bool[3]"},
      {"Not", "f32[3]", "! Not: input 0 is f32[3], expected bool"},
      {"Not", "bool[2]=[1,?]", "bool[2]=[0,?]"},
      {"IsNaN", "f32[3,?]", "bool[3,?]"},
      {"IsInf", "f32[*]", "bool[*]"},
      {"Neg", "i64[2]=[N,3]", "i64[2]=[-N,-3]"},
      {"Abs", "i64[2]=[N,-3]", "i64[2]=[N,3]"},
      {"Gelu", "f32[2]", "f32[2] @ {approximate=\"none\"}"},
      {"Gelu{approximate=\"erf\"}", "f32[2]", "! approximate is \"erf\""},
      {"Cast{to=7}", "f32[2,N]", "i64[2,N]"},
      {"Cast{to=6}", "i64[2]=[N,3]", "i32[2]=[N,3]"},
      {"Cast{to=6}", "i64[1]=[3000000000]", "i32[1]"},
      {"Cast{to=9}", "i64[2]=[0,4]", "bool[2]=[0,1]"},
      {"Cast{to=1}", "i64[2]=[0,4]", "f32[2]"},
      {"Cast", "f32[2]", "! Cast: attribute 'to' is absent"},
      {"Clip", "f32[2,3] | f32[] | f32[]", "f32[2,3]"},
      {"Clip", "f32[2,3] | f32[2]", "! a bound is not a scalar"},
      {"Clip", "f32[2,3] | i64[]", "! element types differ"},
      {"Identity", "i64[2]=[N,3]", "i64[2]=[N,3]"},
  };
  run_cases(cases);
}

TEST(ops_binary) {
  static const Case cases[] = {
      {"Add", "f32[2,3] | f32[3]", "f32[2,3]"},
      {"Add", "f32[2,1] | f32[1,3]", "f32[2,3]"},
      {"Add", "f32[] | f32[2,N]", "f32[2,N]"},
      {"Add", "f32[N] | f32[N]", "f32[N]"},
      {"Add", "f32[N] | f32[1]", "f32[N]"},
      {"Add", "f32[N] | f32[4]", "f32[4]"},
      {"Add", "f32[N] | f32[M]", "f32[?]"},
      {"Add", "f32[?] | f32[4]", "f32[4]"},
      {"Add", "f32[?] | f32[1]", "f32[?]"},
      {"Add", "f32[0] | f32[1]", "f32[0]"},
      {"Add", "f32[*] | f32[4]", "f32[*]"},
      {"Add", "any | f32[4]", "f32[*]"},
      {"Add", "f32[2,3] | f32[2]", "! Add: shapes do not broadcast: f32[2,3] x f32[2] (3 against 2)"},
      {"Add", "f32[0] | f32[2]", "! shapes do not broadcast"},
      {"Add", "f32[2] | f16[2]", "! Add: element types differ: f32[2] x f16[2] (f32 against f16)"},
      {"Add", "i64[2]=[N,3] | i64[1]=[1]", "i64[2]=[N+1,4]"},
      {"Sub", "i64[]=[N] | i64[]=[N]", "i64[]=[0]"},
      {"Mul", "i64[]=[N] | i64[]=[M]", "i64[]=[M*N]"},
      {"Mul", "i32[]=[65536] | i32[]=[65536]", "i32[]"},
      {"Div", "i64[2]=[-7,7] | i64[]=[2]", "i64[2]=[-3,3]"},
      {"Div", "i64[]=[N*64] | i64[]=[8]", "i64[]=[N*8]"},
      {"Div", "i64[]=[2*N+1] | i64[]=[2]", "i64[]=[N]"},
      {"Div", "i64[]=[2*N-1] | i64[]=[2]", "i64[]"},  // -1/2 is 0 in ONNX, N-1 would say -1
      {"Div", "i64[]=[7] | i64[]=[0]", "i64[]"},
      {"Mod", "i64[]=[-7] | i64[]=[3]", "i64[]=[2] @ {fmod=0}"},
      {"Mod{fmod=1}", "i64[]=[-7] | i64[]=[3]", "i64[]"},
      {"Pow", "f32[2,3] | i64[]", "f32[2,3]"},
      {"Equal", "i64[3]=[N,3,0] | i64[]=[3]", "bool[3]=[?,1,0]"},
      {"Equal", "string[2] | string[2]", "bool[2]"},
      {"Less", "i64[2]=[N,N+1] | i64[]=[N]", "bool[2]=[0,0]"},
      {"Less", "i64[]=[N] | i64[]=[N+1]", "bool[]=[1]"},
      {"GreaterOrEqual", "i64[]=[N] | i64[]=[0]", "bool[]=[1]"},
      {"Greater", "f32[2,1] | f32[3]", "bool[2,3]"},
      {"And", "bool[2]=[1,?] | bool[2]=[?,0]", "bool[2]=[?,0]"},
      {"Or", "bool[2] | f32[2]", "! Or: input 1 is f32[2], expected bool"},
      {"Xor", "bool[2] | bool[]", "bool[2]"},
      {"PRelu", "f32[2,3,4] | f32[3,1]", "f32[2,3,4]"},
      {"PRelu", "f32[2,1,4] | f32[3,1]", "! the slope does not broadcast to the input"},
      {"BitShift{direction=\"UP\"}", "u8[2] | u8[2]", "! direction is \"UP\""},
      {"BitShift{direction=\"LEFT\"}", "u8[2] | u8[1]", "u8[2]"},
      {"BitwiseAnd", "i32[2,1] | i32[3]", "i32[2,3]"},
  };
  run_cases(cases);
}

TEST(ops_variadic_and_where) {
  static const Case cases[] = {
      {"Max", "f32[2]", "f32[2]"},
      {"Max", "f32[2,1] | f32[3] | f32[1,1]", "f32[2,3]"},
      {"Max", "i64[]=[N] | i64[]=[0]", "i64[]=[N]"},
      {"Min", "i64[]=[N] | i64[]=[N+3]", "i64[]=[N]"},
      {"Min", "i64[]=[N] | i64[]=[3]", "i64[]"},
      {"Sum", "f32[2] | f32[*]", "f32[*]"},
      {"Mean", "f32[2] | f16[2]", "! element types differ"},
      {"Sum", "f32[2] | f32[3] | f32[1]", "! shapes do not broadcast"},
      {"Where", "bool[2,1] | f32[3] | f32[]", "f32[2,3]"},
      {"Where", "f32[2] | f32[2] | f32[2]", "! Where: input 0 is f32[2], expected bool"},
      {"Where", "bool[3]=[1,0,?] | i64[3]=[N,2,5] | i64[3]=[7,8,5]", "i64[3]=[N,8,5]"},
      {"Where", "bool[*] | f32[2] | f32[2]", "f32[*]"},
  };
  run_cases(cases);
}

// ---- products ---------------------------------------------------------------------------------------------------------------
TEST(ops_matmul_gemm) {
  static const Case cases[] = {
      {"MatMul", "f32[2,3] | f32[3,4]", "f32[2,4]"},
      {"MatMul", "f32[2,3] | f32[4,5]", "! MatMul: inner dimensions differ: f32[2,3] x f32[4,5] (3 against 4)"},
      {"MatMul", "f32[B,H,2,3] | f32[3,4]", "f32[B,H,2,4]"},
      {"MatMul", "f32[B,1,S,64] | f32[12,64,T]", "f32[B,12,S,T]"},
      {"MatMul", "f32[3] | f32[3]", "f32[]"},
      {"MatMul", "f32[3] | f32[7,3,4]", "f32[7,4]"},
      {"MatMul", "f32[7,2,3] | f32[3]", "f32[7,2]"},
      {"MatMul", "f32[] | f32[3]", "! MatMul: input 0 is f32[], expected rank 1 or more"},
      {"MatMul", "f32[2,N] | f32[N,4]", "f32[2,4]"},
      {"MatMul", "f32[2,N+1] | f32[N,4]", "! inner dimensions differ"},
      {"MatMul", "f32[2,?] | f32[5,4]", "f32[2,4]"},
      {"MatMul", "f32[*] | f32[5,4]", "f32[*]"},
      {"MatMul", "f32[0,3] | f32[3,0]", "f32[0,0]"},
      {"MatMul", "f32[2,5,3] | f32[3,3,4]", "! shapes do not broadcast"},
      {"MatMul", "f32[2,3] | f16[3,4]", "! element types differ"},
      {"MatMulInteger", "u8[2,3] | i8[3,4] | u8[]", "i32[2,4]"},
      {"Gemm", "f32[2,3] | f32[3,4] | f32[4]", "f32[2,4] @ {alpha=1.0, beta=1.0, transA=0, transB=0}"},
      {"Gemm{transA=1,transB=1}", "f32[3,2] | f32[4,3]", "f32[2,4]"},
      {"Gemm{transB=5}", "f32[N,3] | f32[4,3] | f32[N,1]", "f32[N,4] @ {alpha=1.0, beta=1.0, transA=0, transB=1}"},
      {"Gemm", "f32[2,3] | f32[4,5]", "! Gemm: inner dimensions differ"},
      {"Gemm", "f32[2,3] | f32[3,4] | f32[5]", "! the addend does not broadcast"},
      {"Gemm", "f32[2,3,4] | f32[3,4]", "! expected rank 2"},
      {"Gemm", "any | f32[3,4]", "f32[?,4]"},
      {"Det", "f32[5,3,3]", "f32[5]"},
      {"Det", "f32[5,3,4]", "! the last two dimensions differ"},
  };
  run_cases(cases);
}

TEST(ops_attention) {
  static const Case cases[] = {
      {"Attention", "f32[2,3,5,8] | f32[2,3,7,8] | f32[2,3,7,4]", "f32[2,3,5,4] @ {is_causal=0, softcap=0.0}"},
      {"Attention{scale=0.5}", "f32[B,6,S,8] | f32[B,2,T,8] | f32[B,2,T,4] | f32[S,T]", "f32[B,6,S,4]"},
      {"Attention{kv_num_heads=2,q_num_heads=4}", "f32[2,5,32] | f32[2,7,16] | f32[2,7,12]", "f32[2,5,24]"},
      {"Attention{kv_num_heads=2,q_num_heads=4}", "f32[2,3,5,8] | f32[2,3,7,8] | f32[2,3,7,4]", "f32[2,3,5,4] @ {is_causal=0, softcap=0.0}"},
      {"Attention{kv_num_heads=2,q_num_heads=4}", "f32[2,5,N] | f32[2,7,16] | f32[2,7,N]", "f32[2,5,?]"},
      {"Attention", "any | f32[2,3,7,8] | f32[2,3,7,4]", "f32[*]"},
      {"Attention", "f32[2,5,32] | f32[2,7,16] | f32[2,7,12]", "! need q_num_heads and kv_num_heads"},
      {"Attention{kv_num_heads=3,q_num_heads=3}", "f32[2,5,32] | f32[2,7,32] | f32[2,7,33]", "! do not divide into 3 heads"},
      {"Attention{kv_num_heads=3,q_num_heads=4}", "f32[2,5,32] | f32[2,7,24] | f32[2,7,24]", "! heads of keys do not divide 4"},
      {"Attention", "f32[2,3,5,8] | f32[2,3,7,9] | f32[2,3,7,4]", "! the sizes of a head"},
      {"Attention", "f32[2,3,5,8] | f32[2,3,7,8] | f32[2,3,6,4]", "! the lengths of keys and values"},
      {"Attention", "f32[2,3,5,8] | f32[2,3,7,8] | f32[2,7,4]", "! differ in rank"},
      {"Attention", "f32[2,3,5,8] | f32[2,3,7,8] | f32[2,3,7,4] | f32[2,4,5,7]", "! the mask does not broadcast"},
      {"Attention", "f32[2,3,5,8] | f16[2,3,7,8] | f32[2,3,7,4]", "! element types differ"},
      {"RotaryEmbedding", "f32[2,3,S,8] | f32[2,S,4] | f32[2,S,4]", "f32[2,3,S,8] @ {interleaved=0, num_heads=0, rotary_embedding_dim=0}"},
      {"RotaryEmbedding{num_heads=2,rotary_embedding_dim=6}", "f32[2,5,32] | f32[9,3] | f32[9,3] | i64[2,5]", "f32[2,5,32]"},
      {"RotaryEmbedding", "any | f32[2,5,4] | f32[2,5,4]", "f32[*]"},
      {"RotaryEmbedding", "f32[2,3,5,7] | f32[2,5,4] | f32[2,5,4]", "! an odd number of columns, 7"},
      {"RotaryEmbedding", "f32[2,3,5,8] | f32[2,5,4] | f32[2,5,8]", "! tables of 8 columns for 8 that are rotated"},
      {"RotaryEmbedding", "f32[2,3,5,8] | f32[5,4] | f32[5,4]", "! expected rank 3"},
      {"RotaryEmbedding", "f32[2,3,5,8] | f16[2,5,4] | f32[2,5,4]", "! element types differ"},
  };
  run_cases(cases);
}

TEST(ops_einsum) {
  static const Case cases[] = {
      {"Einsum{equation=\"ij,jk->ik\"}", "f32[2,3] | f32[3,4]", "f32[2,4]"},
      {"Einsum{equation=\"ij, jk\"}", "f32[2,3] | f32[3,4]", "f32[2,4] @ {equation=\"ab,bc->ac\"}"},
      {"Einsum{equation=\"bhqd,bhkd->bhqk\"}", "f32[B,12,S,64] | f32[B,12,T,64]", "f32[B,12,S,T]"},
      {"Einsum{equation=\"ii->i\"}", "f32[3,3]", "f32[3]"},
      {"Einsum{equation=\"ij->\"}", "f32[3,4]", "f32[]"},
      {"Einsum{equation=\"...ij,...jk->...ik\"}", "f32[5,1,2,3] | f32[7,3,4]", "f32[5,7,2,4]"},
      {"Einsum{equation=\"...id,...jd->...ij\"}", "f32[B,3,4,5] | f32[B,3,6,5]", "f32[B,3,4,6] @ {equation=\"abcd,abed->abce\"}"},
      {"Einsum{equation=\"...ij->...ji\"}", "f32[2,3]", "f32[3,2] @ {equation=\"ab->ba\"}"},
      {"Einsum{equation=\"...i,...i->...i\"}", "f32[5,1,2] | f32[1,7,2]", "f32[5,7,2] @ {equation=\"...a,...a->...a\"}"},
      {"Einsum{equation=\"...ij,jk->...ik\"}", "f32[*] | f32[3,4]", "f32[*]"},
      {"Einsum{equation=\"i,i\"}", "f32[3] | f32[*]", "f32[] @ {equation=\"a,a->\"}"},
      {"Einsum{equation=\"ij,jk->ik\"}", "f32[2,3] | f32[5,4]", "! label 'j' has two extents"},
      {"Einsum{equation=\"ij,jk->ik\"}", "f32[2,3]", "! has 2 operands, found 1 inputs"},
      {"Einsum{equation=\"ij->iz\"}", "f32[2,3]", "! output label 'z' is in no operand"},
      {"Einsum{equation=\"ij->ii\"}", "f32[2,3]", "! output label 'i' occurs twice"},
      {"Einsum{equation=\"i2->i\"}", "f32[2,3]", "! unexpected '2'"},
      {"Einsum{equation=\"ijk->i\"}", "f32[2,3]", "! names 3 axes of rank 2"},
      {"Einsum{equation=\"...ijk->i\"}", "f32[2,3]", "! names 3 axes of rank 2"},
  };
  run_cases(cases);
}

// ---- windows ----------------------------------------------------------------------------------------------------------------
TEST(ops_convolution) {
  static const Case cases[] = {
      {"Conv{pads=[3,3,3,3],strides=[2,2]}", "f32[1,3,224,224] | f32[64,3,7,7] | f32[64]",
       "f32[1,64,112,112] @ {dilations=[1,1], group=1, kernel_shape=[7,7], pads=[3,3,3,3], strides=[2,2]}"},
      {"Conv", "f32[N,3,H,W] | f32[8,3,1,1]", "f32[N,8,H,W]"},
      {"Conv", "f32[N,3,H,9] | f32[8,3,3,3]", "f32[N,8,H-2,7]"},
      {"Conv{strides=[2,2]}", "f32[N,3,H,2*W+1] | f32[8,3,3,3]", "f32[N,8,?,W]"},
      {"Conv{group=8}", "f32[1,8,5] | f32[16,1,3]", "f32[1,16,3]"},
      {"Conv{dilations=[2,2,2]}", "f32[1,2,9,9,9] | f32[4,2,3,3,3]", "f32[1,4,5,5,5]"},
      {"Conv{auto_pad=\"SAME_UPPER\",strides=[2]}", "f32[1,2,6] | f32[4,2,3]",
       "f32[1,4,3] @ {dilations=[1], group=1, kernel_shape=[3], pads=[0,1], strides=[2]}"},
      {"Conv{auto_pad=\"SAME_LOWER\",strides=[2]}", "f32[1,2,6] | f32[4,2,3]",
       "f32[1,4,3] @ {dilations=[1], group=1, kernel_shape=[3], pads=[1,0], strides=[2]}"},
      {"Conv{auto_pad=\"SAME_UPPER\"}", "f32[1,2,H] | f32[4,2,3]",
       "f32[1,4,H] @ {dilations=[1], group=1, kernel_shape=[3], pads=[1,1], strides=[1]}"},
      {"Conv{auto_pad=\"SAME_UPPER\",strides=[2]}", "f32[1,2,2*H] | f32[4,2,3]",
       "f32[1,4,H] @ {auto_pad=\"SAME_UPPER\", dilations=[1], group=1, kernel_shape=[3], strides=[2]}"},
      {"Conv{auto_pad=\"VALID\"}", "f32[1,2,6] | f32[4,2,3]", "f32[1,4,4] @ {dilations=[1], group=1, kernel_shape=[3], pads=[0,0], strides=[1]}"},
      {"Conv{auto_pad=\"FULL\"}", "f32[1,2,6] | f32[4,2,3]", "! auto_pad is \"FULL\""},
      {"Conv", "f32[*] | f32[4,2,3]", "f32[?,4,?] @ {dilations=[1], group=1, kernel_shape=[3], pads=[0,0], strides=[1]}"},
      {"Conv", "f32[1,2,6] | any", "f32[1,?,?]"},
      {"Conv", "any | any", "any"},
      {"Conv", "f32[0,2,6] | f32[4,2,3]", "f32[0,4,4]"},
      {"Conv", "f32[1,3,6] | f32[4,2,3]", "! Conv: channels differ: f32[1,3,6] x f32[4,2,3] with group 1 (3 against 2)"},
      {"Conv{group=3}", "f32[1,6,6] | f32[4,2,3]", "! 4 output channels do not divide into 3 groups"},
      {"Conv", "f32[1,2,6] | f32[4,2,3] | f32[5]", "! bias length and output channels differ"},
      {"Conv", "f32[1,2,6,6] | f32[4,2,3]", "! ranks differ"},
      {"Conv", "f32[1,2,2] | f32[4,2,3]", "! the window does not fit"},
      {"Conv{kernel_shape=[5]}", "f32[1,2,9] | f32[4,2,3]", "! kernel_shape and the weight's extents differ"},
      {"Conv{pads=[1]}", "f32[1,2,9] | f32[4,2,3]", "! pads=[1] has 1 entries, expected 2"},
      {"Conv{strides=[0]}", "f32[1,2,9] | f32[4,2,3]", "! strides=[0] must be positive"},
      {"Conv{group=0}", "f32[1,2,9] | f32[4,2,3]", "! group is 0"},
      {"ConvInteger", "u8[1,2,6] | u8[4,2,3] | u8[]", "i32[1,4,4]"},
      {"ConvTranspose{strides=[2,2],pads=[1,1,1,1],output_padding=[1,1]}", "f32[1,8,7,7] | f32[8,4,3,3]", "f32[1,4,14,14]"},
      {"ConvTranspose{strides=[2]}", "f32[1,8,N] | f32[8,4,3]", "f32[1,4,N*2+1]"},
      {"ConvTranspose{group=2}", "f32[1,8,7] | f32[8,4,3]", "f32[1,8,9]"},
      {"ConvTranspose{strides=[3],output_shape=[10]}", "f32[1,1,3] | f32[1,2,5]",
       "f32[1,2,10] @ {dilations=[1], group=1, kernel_shape=[5], output_padding=[0], pads=[1,0], strides=[3]}"},
      {"ConvTranspose{auto_pad=\"SAME_UPPER\",strides=[2]}", "f32[1,1,3] | f32[1,2,3]",
       "f32[1,2,6] @ {dilations=[1], group=1, kernel_shape=[3], output_padding=[0], pads=[0,1], strides=[2]}"},
      {"ConvTranspose", "f32[1,7,7] | f32[8,4,3]", "! channels differ"},
  };
  run_cases(cases);
}

TEST(ops_pooling) {
  static const Case cases[] = {
      {"MaxPool{kernel_shape=[3,3],strides=[2,2]}", "f32[1,64,55,55]",
       "f32[1,64,27,27] @ {ceil_mode=0, dilations=[1,1], kernel_shape=[3,3], pads=[0,0,0,0], storage_order=0, strides=[2,2]}"},
      {"MaxPool{kernel_shape=[3,3],strides=[2,2],ceil_mode=1}", "f32[1,64,56,56]", "f32[1,64,28,28]"},
      {"MaxPool{kernel_shape=[1],strides=[2],ceil_mode=1}", "f32[1,1,2]", "f32[1,1,1]"},  // a window that would start outside
      {"MaxPool{kernel_shape=[2]}", "f32[1,2,N]", "f32[1,2,N-1] | i64[1,2,N-1]"},
      {"MaxPool{kernel_shape=[2]}:3", "f32[1,2,8]", "!! MaxPool: found 3 outputs, expected at most 2"},
      {"AveragePool{kernel_shape=[2]}:2", "f32[1,2,8]", "!! AveragePool: found 2 outputs, expected 1"},
      {"MaxPool{kernel_shape=[2,2]}", "f32[*]", "f32[?,?,?,?]"},
      {"MaxPool", "f32[1,2,8]", "! attribute 'kernel_shape' is absent"},
      {"MaxPool{kernel_shape=[2,2]}", "f32[1,2,8]", "! has 2 entries for f32[1,2,8], expected 1"},
      {"AveragePool{kernel_shape=[2],auto_pad=\"SAME_LOWER\"}", "f32[1,2,8]", "f32[1,2,8]"},
      {"LpPool{kernel_shape=[2]}", "f32[1,2,8]", "f32[1,2,7] @ {ceil_mode=0, dilations=[1], kernel_shape=[2], p=2, pads=[0,0], strides=[1]}"},
      {"GlobalAveragePool", "f32[N,C,7,7]", "f32[N,C,1,1]"},
      {"GlobalMaxPool", "f32[*]", "f32[*]"},
      {"GlobalLpPool", "f32[3]", "! expected rank 2 or more"},
      {"GridSample", "f32[N,3,8,8] | f32[N,5,6,2]", "f32[N,3,5,6]"},
  };
  run_cases(cases);
}

// ---- normalisation and reduction --------------------------------------------------------------------------------------------
TEST(ops_normalisation) {
  static const Case cases[] = {
      {"BatchNormalization{momentum=0.9}", "f32[2,3,4] | f32[3] | f32[3] | f32[3] | f32[3]", "f32[2,3,4] @ {epsilon=1e-05}"},
      {"BatchNormalization{training_mode=1}", "f32[2,3] | f32[3] | f32[3] | f32[3] | f32[3]", "! training_mode is 1"},
      {"BatchNormalization", "f32[2,3] | f32[4] | f32[4] | f32[4] | f32[4]", "! channels and the length of a parameter differ"},
      {"InstanceNormalization", "f32[2,C,4] | f32[C] | f32[C]", "f32[2,C,4]"},
      {"LayerNormalization", "f32[B,S,768] | f32[768] | f32[768]", "f32[B,S,768] @ {axis=2, epsilon=1e-05, stash_type=1}"},
      {"LayerNormalization{axis=1}", "f16[B,S,768] | f16[S,768]", "f16[B,S,768] | f32[B,1,1] | f32[B,1,1]"},
      {"LayerNormalization", "f32[B,S,768] | f32[767]", "! a parameter does not broadcast to the data"},
      {"LayerNormalization{axis=3}", "f32[B,S,768] | f32[768]", "! axis 3 is out of range for rank 3"},
      {"LayerNormalization", "f32[*] | f32[768]", "f32[*] @ {axis=-1, epsilon=1e-05, stash_type=1}"},
      {"RMSNormalization", "f32[2,8] | f32[8]", "f32[2,8]"},
      {"GroupNormalization{num_groups=4}", "f32[2,8,3] | f32[8] | f32[8]", "f32[2,8,3]"},
      {"GroupNormalization{num_groups=3}", "f32[2,8,3] | f32[8] | f32[8]", "! 8 channels do not divide into 3 groups"},
      {"Softmax", "f32[2,3,4]", "f32[2,3,4] @ {axis=2}"},
      {"Softmax{axis=-3}", "f32[2,3,4]", "f32[2,3,4] @ {axis=0}"},
      {"Softmax{axis=5}", "f32[2,3,4]", "! axis 5 is out of range"},
      {"LogSoftmax", "f32[*]", "f32[*] @ {axis=-1}"},
      {"MeanVarianceNormalization", "f32[1,2,3,4]", "f32[1,2,3,4] @ {axes=[0,2,3]}"},
      {"LRN{size=5}", "f32[1,8,2,2]", "f32[1,8,2,2] @ {alpha=1e-04, beta=0.75, bias=1.0, size=5}"},
      {"LpNormalization{axis=1}", "f32[2,3]", "f32[2,3] @ {axis=1, p=2}"},
  };
  run_cases(cases);
}

TEST(ops_reduction) {
  static const Case cases[] = {
      {"ReduceSum{axes=[-1]}", "f32[2,N,4]", "f32[2,N,1] @ {axes=[2], keepdims=1}"},
      {"ReduceMean{axes=[2,1],keepdims=0}", "f32[2,N,4]", "f32[2] @ {axes=[1,2], keepdims=0}"},
      {"ReduceMax", "f32[2,3]", "f32[1,1] @ {axes=[0,1], keepdims=1}"},
      {"ReduceMax{keepdims=0}", "f32[*]", "f32[] @ {keepdims=0}"},
      {"ReduceMin{noop_with_empty_axes=1}", "f32[2,3]", "f32[2,3] @ {axes=[], keepdims=1}"},
      {"ReduceL2{axes=[0,-2]}", "f32[2,3]", "! an axis is named twice"},
      {"ReduceL1{axes=[2]}", "f32[2,3]", "! axis 2 is out of range for rank 2"},
      {"ReduceSum", "f32[2,3,4] | i64[1]=[1]", "f32[2,1,4]"},
      {"ReduceSum{keepdims=0}", "f32[2,3,4] | i64[2]", "f32[?]"},
      {"ReduceSum", "f32[2,3,4] | i64[?]", "f32[?,?,?]"},
      {"ReduceSum{keepdims=0}", "f32[2,3,4] | i64[?]", "f32[*]"},
      {"ReduceSum{noop_with_empty_axes=1}", "f32[2,3] | i64[0]=[]", "f32[2,3]"},
      {"ReduceSum", "f32[2,3] | i64[0]=[]", "f32[1,1]"},
      {"ReduceProd{keepdims=0}", "i64[3]=[2,N,4]", "i64[]=[N*8]"},
      {"ReduceSum", "i64[3]=[2,N,4]", "i64[1]=[N+6]"},
      {"ReduceLogSumExp{axes=[0]}", "f32[0,3]", "f32[1,3]"},
      {"ArgMax{axis=-1}", "f32[2,N]", "i64[2,1] @ {axis=1, keepdims=1, select_last_index=0}"},
      {"ArgMin{keepdims=0}", "f32[2,N]", "i64[N]"},
      {"CumSum", "f32[2,3] | i64[]=[1]", "f32[2,3]"},
      {"CumSum", "f32[2,3] | i64[]=[2]", "! axis 2 is out of range"},
      {"TopK", "f32[2,100] | i64[1]=[5]", "f32[2,5] | i64[2,5]"},
      {"TopK{axis=0}", "f32[2,N] | i64[1]", "f32[?,N] | i64[?,N]"},
      {"TopK", "f32[2,3] | i64[1]=[5]", "! k is 5 on an axis of 3"},
  };
  run_cases(cases);
}

TEST(ops_constant_row) {
  AttrSet attrs;
  attrs.set("value", ConstRef{ints_const({3, 4})});
  std::vector<InferOutput> out;
  infer(kOpConstant, attrs, {}, out, 0);
  CHECK_EQ(spelled(out), std::string("i64[2]=[3,4]"));
  attrs.set("value", ConstRef{ints_const({INT64_MIN})});  // no plain Int; must not be mistaken for an unknown one
  infer(kOpConstant, attrs, {}, out, 0);
  CHECK_EQ(spelled(out), std::string("i64[1]"));
  attrs.set("value", ConstRef{scalar_const(kF32, 0.5)});
  infer(kOpConstant, attrs, {}, out, 0);
  CHECK_EQ(spelled(out), std::string("f32[]"));
  AttrSet none;
  CHECK_THROWS_WITH(ErrorKind::kType, "'value' is absent or not a constant", infer(kOpConstant, none, {}, out, 0));
}

// ---- cost -------------------------------------------------------------------------------------------------------------------
namespace {
NodeCost cost(const std::string& call, const std::string& inputs) {
  size_t brace = call.find('{');
  AttrSet attrs = attrs_in(brace == std::string::npos ? "" : call.substr(brace));
  OpId op = find_op(call.substr(0, brace));
  Inputs in(inputs);
  std::vector<InferOutput> outputs;
  infer(op, attrs, in.items, outputs, 0);
  std::vector<TypeId> ins, outs;
  for (const InferInput& i : in.items) ins.push_back(i.type);
  for (const InferOutput& o : outputs) outs.push_back(o.type);
  return node_cost(op, attrs, ins, outs);
}
}  // namespace

TEST(ops_cost_flops) {
  CHECK_EQ(cost("MatMul", "f32[7,2,3] | f32[3,4]").flops, 2.0 * 7 * 2 * 3 * 4);
  CHECK_EQ(cost("MatMul", "f32[3] | f32[3]").flops, 6.0);
  CHECK_EQ(cost("Gemm{transA=1}", "f32[3,2] | f32[3,4] | f32[4]").flops, 2.0 * 2 * 3 * 4 + 8);
  CHECK_EQ(cost("Conv{pads=[1,1,1,1]}", "f32[1,8,5,5] | f32[16,8,3,3]").flops, 2.0 * 16 * 25 * 8 * 9);
  CHECK_EQ(cost("Conv{group=8}", "f32[1,8,5] | f32[8,1,3] | f32[8]").flops, 8.0 * 3 * (2 * 3 + 1));
  CHECK_EQ(cost("ConvTranspose{strides=[2]}", "f32[1,8,5] | f32[8,4,3]").flops, 8.0 * 5 * 2 * 4 * 3);
  CHECK_EQ(cost("Einsum{equation=\"ij,jk->ik\"}", "f32[2,3] | f32[3,4]").flops, 2.0 * 24);
  double attended = 2.0 * 2 * 3 * 5 * 7 * (8 + 4) + 12.0 * 2 * 3 * 5 * 7;
  CHECK_EQ(cost("Attention", "f32[2,3,5,8] | f32[2,3,7,8] | f32[2,3,7,4]").flops, attended);
  CHECK_EQ(cost("Attention{kv_num_heads=3,q_num_heads=3}", "f32[2,5,24] | f32[2,7,24] | f32[2,7,12]").flops, attended);
  CHECK_EQ(cost("Add", "f32[2,3] | f32[3]").flops, 6.0);
  CHECK_EQ(cost("Tanh", "f32[2,3]").flops, 48.0);
  CHECK_EQ(cost("ReduceSum{axes=[1]}", "f32[2,3]").flops, 6.0);
  CHECK_EQ(cost("Sum", "f32[4] | f32[4] | f32[4]").flops, 8.0);
  CHECK_EQ(cost("MaxPool{kernel_shape=[2]}", "f32[1,1,5]").flops, 8.0);
  CHECK_EQ(cost("QLinearMatMul", "u8[2,3] | f32[] | u8[] | u8[3,4] | f32[] | u8[] | f32[] | u8[]").flops, 48.0);
  CHECK_EQ(cost("MatMul", "f32[N,3] | f32[3,4]").flops, 24.0);  // an unknown extent counts as 1
}

TEST(ops_cost_bytes) {
  NodeCost add = cost("Add", "f16[2,3] | f16[3]");
  CHECK_EQ(add.bytes_in, 18.0);
  CHECK_EQ(add.bytes_out, 12.0);
  for (const char* view : {"Reshape{shape=[6]}", "Flatten", "Unsqueeze{axes=[0]}", "Identity"}) {
    NodeCost c = cost(view, "f32[2,3]");
    CHECK_EQ(c.bytes_in + c.bytes_out + c.flops, 0.0);
  }
  CHECK_EQ(cost("Transpose", "f32[2,3]").bytes_in, 24.0);
  CHECK_EQ(cost("Cast{to=22}", "i8[4]").bytes_out, 2.0);
}
