// Digests, symbolic integers, element and tensor types, constants and attribute sets.
#include <cmath>
#include <limits>
#include <thread>

#include "check.h"
#include "rlflow/attrs.h"
#include "rlflow/hash.h"
#include "rlflow/types.h"

using namespace rlflow;

namespace {
Int P(std::string_view s) { return int_parse(s); }
std::string T(Int v) { return int_text(v); }
}  // namespace

TEST(hash_hex_round_trip) {
  Hash128 h{0x0123456789abcdefULL, 0xfedcba9876543210ULL};
  CHECK_EQ(to_hex(h), std::string("0123456789abcdeffedcba9876543210"));
  CHECK(from_hex(to_hex(h)) == h);
  CHECK(from_hex("0123456789ABCDEFFEDCBA9876543210") == h);
  CHECK_THROWS_WITH(ErrorKind::kUsage, "32 hexadecimal digits", from_hex("12"));
  CHECK_THROWS_WITH(ErrorKind::kUsage, "32 hexadecimal digits", from_hex("g123456789abcdeffedcba9876543210"));
}

TEST(hash_bytes_sees_length_and_every_byte) {
  CHECK(hash_bytes("") != hash_bytes(std::string_view("\0", 1)));
  CHECK(hash_bytes("abcdefgh") != hash_bytes("abcdefgi"));
  CHECK(hash_bytes("abcdefghi") != hash_bytes("abcdefgh"));
  CHECK(hash_bytes("abc") == hash_bytes(std::string("abc")));
}

TEST(tri_tables) {
  constexpr Tri t = Tri::kTrue, f = Tri::kFalse, m = Tri::kMaybe;
  CHECK(tri_and(t, t) == t && tri_and(t, f) == f && tri_and(m, f) == f && tri_and(m, t) == m && tri_and(m, m) == m);
  CHECK(tri_or(t, f) == t && tri_or(f, f) == f && tri_or(m, t) == t && tri_or(m, f) == m && tri_or(m, m) == m);
  CHECK(tri_not(t) == f && tri_not(f) == t && tri_not(m) == m);
}

TEST(int_plain_arithmetic_and_overflow) {
  CHECK_EQ(int_add(2, 3), Int{5});
  CHECK_EQ(int_div(-7, 2), Int{-4});
  CHECK_EQ(int_mod(-7, 2), Int{1});
  CHECK_EQ(int_mod(7, -2), Int{-1});
  CHECK_EQ(int_div(7, 0), kUnknown);
  CHECK_EQ(int_mod(7, 0), kUnknown);
  CHECK_EQ(int_add(INT64_MAX, 1), kUnknown);
  CHECK_EQ(int_mul(Int{1} << 40, Int{1} << 40), kUnknown);
  CHECK_EQ(int_sub(-(Int{1} << 61), Int{1} << 62), kUnknown);  // below the plain range, though no int64 overflow
  CHECK_EQ(int_add(kUnknown, 1), kUnknown);
  CHECK_EQ(int_mul(kUnknown, 0), kUnknown);
}

TEST(int_symbolic_canonical_text) {
  CHECK_EQ(T(P("64*N+1")), std::string("N*64+1"));
  CHECK_EQ(T(P("1 + M*N + N*M")), std::string("M*N*2+1"));
  CHECK_EQ(T(P("(N+1)*(N-1)")), std::string("N*N-1"));
  CHECK_EQ(T(P("M-N*2")), std::string("M-N*2"));
  CHECK_EQ(T(P("-N")), std::string("-N"));
  CHECK_EQ(T(P("N-N")), std::string("0"));
  CHECK_EQ(T(P("(2*N+6)/2")), std::string("N+3"));
  CHECK_EQ(T(P("2*N//2")), std::string("N"));
  CHECK_EQ(T(P("'batch size'*2")), std::string("'batch size'*2"));
  CHECK_EQ(T(int_symbol("it's")), std::string("'it''s'"));
  CHECK_EQ(P("'it''s'"), int_symbol("it's"));
  CHECK_EQ(P("?"), kUnknown);
  CHECK_EQ(P("-5"), Int{-5});
  CHECK_EQ(P("9223372036854775807"), INT64_MAX);
  for (const char* s : {"N*64+1", "M*N*2+1", "N*N-1", "-N*3+M*M", "a.b+_c"}) CHECK_EQ(P(T(P(s))), P(s));
}

TEST(int_symbolic_identity) {
  CHECK_EQ(int_add(int_symbol("N"), int_symbol("M")), int_add(int_symbol("M"), int_symbol("N")));
  CHECK_EQ(int_mul(P("N+1"), P("M+2")), P("M*N + 2*N + M + 2"));
  CHECK_EQ(int_sub(P("N+3"), P("N")), Int{3});
  CHECK_EQ(int_mul(P("N"), 0), Int{0});
  CHECK(is_symbolic(P("N")) && !is_plain(P("N")) && is_plain(P("3")) && !is_symbolic(kUnknown));
}

TEST(int_symbolic_division) {
  CHECK_EQ(int_div(P("N*64"), 64), P("N"));
  CHECK_EQ(int_div(P("N*64"), P("N")), Int{64});
  CHECK_EQ(int_div(P("N*N-1"), P("N+1")), P("N-1"));
  CHECK_EQ(int_div(P("M*N*6"), P("2*M")), P("3*N"));
  CHECK_EQ(int_div(P("2*N+1"), 2), P("N"));        // floor((2N+1)/2)
  CHECK_EQ(int_div(P("2*N-1"), 2), P("N-1"));
  CHECK_EQ(int_mod(P("2*N+1"), 2), Int{1});
  CHECK_EQ(int_div(P("3*N"), 2), kUnknown);
  CHECK_EQ(int_div(P("N"), P("M")), kUnknown);
  CHECK_EQ(int_div(P("N+1"), P("N")), kUnknown);
  CHECK_EQ(int_mod(P("N"), P("M")), kUnknown);
  CHECK_EQ(int_div(5, P("N")), kUnknown);
}

TEST(int_symbolic_overflow) {
  Int big = int_mul(P("N"), INT64_MAX);
  CHECK(is_symbolic(big));
  CHECK_EQ(int_add(big, P("N")), kUnknown);
  CHECK_EQ(int_mul(big, 2), kUnknown);
  CHECK_EQ(int_add(P("N"), INT64_MAX), int_add(INT64_MAX, P("N")));
}

TEST(int_comparisons) {
  CHECK(int_eq(3, 3) == Tri::kTrue && int_eq(3, 4) == Tri::kFalse);
  CHECK(int_eq(P("N"), P("N")) == Tri::kTrue);
  CHECK(int_eq(P("N"), P("M")) == Tri::kMaybe);
  CHECK(int_eq(P("N+1"), P("N")) == Tri::kFalse);
  CHECK(int_eq(P("N+1"), 0) == Tri::kFalse);
  CHECK(int_eq(P("2*N"), 3) == Tri::kFalse);       // parity
  CHECK(int_eq(P("2*N"), 4) == Tri::kMaybe);
  CHECK(int_eq(kUnknown, 1) == Tri::kMaybe && int_eq(kUnknown, kUnknown) == Tri::kMaybe);
  CHECK(int_lt(P("N"), P("N+1")) == Tri::kTrue);
  CHECK(int_lt(P("N+M"), P("N")) == Tri::kFalse);  // M >= 0
  CHECK(int_lt(0, P("N")) == Tri::kMaybe);
  CHECK(int_lt(P("N"), 0) == Tri::kFalse);
  CHECK(int_lt(-1, P("N")) == Tri::kTrue);
  CHECK(int_lt(P("N"), P("M")) == Tri::kMaybe);
}

TEST(int_substitution_and_symbols) {
  std::vector<std::pair<std::string, Int>> values{{"N", 5}, {"M", P("K+1")}};
  CHECK_EQ(int_substitute(P("N*N+1"), values), Int{26});
  CHECK_EQ(int_substitute(P("N*M+L"), values), P("5*K+5+L"));
  CHECK_EQ(int_substitute(7, values), Int{7});
  CHECK_EQ(int_substitute(kUnknown, values), kUnknown);
  std::vector<std::string> names{"N"};
  int_symbols(P("N*M+Z"), names);
  std::vector<std::string> expected{"N", "M", "Z"};
  CHECK_EQ(names, expected);
}

TEST(int_parse_errors) {
  for (const char* s : {"", "N+", "(N", "N M", "3x", "*2", "'open", "99999999999999999999", "N)", "$"})
    CHECK_THROWS_WITH(ErrorKind::kUsage, "integer expression", int_parse(s));
  CHECK_THROWS_WITH(ErrorKind::kUsage, "less nesting", int_parse(std::string(5000, '(')));
}

TEST(int_digest_is_by_content) {
  CHECK(int_digest(P("N+M")) == int_digest(P("M+N")));
  CHECK(int_digest(P("N")) != int_digest(P("M")));
  CHECK(int_digest(3) != int_digest(4));
}

TEST(dtype_names) {
  for (int i = 1; i <= 23; ++i) CHECK_EQ(dtype_parse(dtype_name(i)), i);
  CHECK_EQ(dtype_name(24), std::string_view("dt24"));
  CHECK_EQ(dtype_parse("dt24"), 24);
  CHECK_THROWS_WITH(ErrorKind::kUsage, "float33", dtype_parse("float33"));
  CHECK_EQ(dtype_bytes(kI4), 0.5);
  CHECK_EQ(dtype_bytes(kString), 0.0);
  CHECK(dtype_is_float(kBF16) && dtype_is_float(kF8E5M2) && !dtype_is_float(kI8) && dtype_is_int(kU4) && !dtype_is_int(kBool));
}

TEST(type_text_round_trip) {
  for (const char* s : {"f32[2,N]", "f32[]", "i64[*]", "any", "any[2,?]", "bool[N*64+1,3]", "dt24[7]", "f16['a b',1]"}) {
    CHECK_EQ(type_text(type_parse(s)), std::string(s));
  }
  CHECK_EQ(type_parse(" f32[ 2 , N ] "), type_parse("f32[2,N]"));
  CHECK_EQ(type_parse("any"), TypeId{0});
  CHECK_EQ(intern_type(TensorType{}), TypeId{0});
  CHECK(type_parse("f32[2,N]") != type_parse("f32[2,M]"));
  CHECK(type_digest(type_parse("f32[2,N]")) != type_digest(type_parse("f32[2,M]")));
  CHECK(type_digest(type_parse("f32[]")) != type_digest(type_parse("f32[*]")));
  for (const char* s : {"f32", "f32[2", "f99[2]", "f32[2,]", "f32[a b]"}) CHECK_THROWS_WITH(ErrorKind::kUsage, "reading", type_parse(s));
}

TEST(type_element_count) {
  CHECK_EQ(*element_count(type_of(type_parse("f32[2,3]"))), int64_t{6});
  CHECK_EQ(*element_count(type_of(type_parse("f32[]"))), int64_t{1});
  CHECK_EQ(*element_count(type_of(type_parse("f32[0,9223372036854775807,4]"))), int64_t{0});
  CHECK(!element_count(type_of(type_parse("f32[N,3]"))));
  CHECK(!element_count(type_of(type_parse("f32[*]"))));
  CHECK(!element_count(type_of(type_parse("f32[9223372036854775807,4]"))));
}

TEST(types_stay_put_under_concurrent_interning) {
  const TensorType& early = type_of(type_parse("f32[12345]"));
  std::vector<std::vector<TypeId>> ids(4);
  std::vector<std::thread> threads;
  for (auto& mine : ids)
    threads.emplace_back([&mine] {
      for (Int i = 0; i < 3000; ++i) {
        IntVec dims{i, int_add(int_symbol("N"), i)};
        mine.push_back(make_type(kF32, dims));
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& other : ids) CHECK(other == ids[0]);
  CHECK_EQ(type_text(ids[0][2999]), std::string("f32[2999,N+2999]"));
  CHECK_EQ(early.dims, (IntVec{12345}));
}

TEST(constants_by_content) {
  double half = 0.5;
  CHECK_EQ(scalar_const(kF32, 0.5), inline_const(kF32, {}, {&half, 1}));
  CHECK(scalar_const(kF32, 0.5) != scalar_const(kF64, 0.5));
  CHECK(scalar_const(kF32, 0.0) != scalar_const(kF32, -0.0));
  CHECK_EQ(scalar_const(kF32, 0.1), scalar_const(kF32, static_cast<double>(0.1f)));
  CHECK_EQ(scalar_const(kF16, 0.1), scalar_const(kF16, 0.0999755859375));
  CHECK_EQ(const_of(scalar_const(kBF16, 0.1)).floats[0], 0.10009765625);
  CHECK_EQ(const_of(scalar_const(kF16, 1e-7)).floats[0], 1.1920928955078125e-07);  // the second subnormal
  CHECK(std::isinf(const_of(scalar_const(kF16, 65520)).floats[0]));
  CHECK_EQ(const_of(scalar_const(kF16, 65519)).floats[0], 65504.0);
  CHECK(std::isnan(const_of(scalar_const(kF16, std::nan(""))).floats[0]));
  const ConstInfo& c = const_of(ints_const({3, -1, 7}));
  CHECK_EQ(type_text(c.type), std::string("i64[3]"));
  CHECK(c.has_facts && c.min == -1 && c.max == 7 && !c.uniform && c.finite);
  CHECK(const_of(ints_const({})).ints.empty());
  CHECK_THROWS_WITH(ErrorKind::kUsage, "expected an integer", scalar_const(kI64, 0.5));
  CHECK_THROWS_WITH(ErrorKind::kUsage, "no inline values", scalar_const(kString, 1));
  Int three = 3;
  CHECK_THROWS_WITH(ErrorKind::kUsage, "1 values", inline_const(kF32, {&three, 1}, {&half, 1}));
}

TEST(constants_digest_of_bytes) {
  float values[2] = {1.5f, -2.0f};
  Int two = 2;
  double same[2] = {1.5, -2.0};
  std::string_view bytes(reinterpret_cast<const char*>(values), sizeof values);
  CHECK(const_of(inline_const(kF32, {&two, 1}, same)).digest == tensor_digest(kF32, {&two, 1}, bytes));
  int64_t ints[2] = {5, -6};
  CHECK(const_of(ints_const({5, -6})).digest == tensor_digest(kI64, {&two, 1}, {reinterpret_cast<const char*>(ints), sizeof ints}));
  CHECK(const_of(scalar_const(kBool, 1)).digest == tensor_digest(kBool, {}, std::string_view("\1", 1)));
  CHECK_THROWS_WITH(ErrorKind::kUsage, "neither a digest nor inline values", intern_const(ConstInfo{}));
}

TEST(attributes_set_find_erase) {
  AttrSet a;
  a.set("pads", IntVec{1, 2});
  a.set("axis", Int{1});
  a.set("alpha", 0.5);
  a.set("axis", Int{2});
  CHECK_EQ(a.items.size(), size_t{3});
  CHECK_EQ(a.get_int("axis"), Int{2});
  CHECK_EQ(a.get_float("axis"), 2.0);
  CHECK_EQ(a.get_float("alpha"), 0.5);
  CHECK_EQ(a.get_ints("pads"), (IntVec{1, 2}));
  CHECK_EQ(a.get_int("none", Int{9}), Int{9});
  CHECK(a.find_ints("none") == nullptr);
  CHECK_EQ(a.get_string("none", "x"), std::string("x"));
  CHECK_THROWS_WITH(ErrorKind::kType, "'none' is absent, expected an integer", a.get_int("none"));
  CHECK_THROWS_WITH(ErrorKind::kType, "'pads' is a list of integers ([1,2]), expected an integer", a.get_int("pads"));
  CHECK_THROWS_WITH(ErrorKind::kType, "expected a list of integers", a.find_ints("axis"));
  CHECK_THROWS_WITH(ErrorKind::kType, "expected a string", a.get_string("axis"));
  AttrId before = intern_attrs(a);
  a.erase("axis");
  a.erase("axis");
  CHECK_EQ(a.items.size(), size_t{2});
  CHECK(intern_attrs(a) != before);
  CHECK_EQ(intern_attrs(AttrSet{}), AttrId{0});
}

TEST(attributes_text_and_identity) {
  AttrSet a;
  a.set("split", IntVec{2, int_parse("N+1")});
  a.set("axis", Int{1});
  a.set("f", std::vector<double>{1, 0.1, 1e30});
  a.set("s", std::string("a\"b\n"));
  a.set("l", std::vector<std::string>{"x"});
  CHECK_EQ(attrs_text(intern_attrs(a)), std::string("{axis=1, f=[1.0,0.1,1e+30], l=[\"x\"], s=\"a\\\"b\\x0a\", split=[2,N+1]}"));
  CHECK_EQ(attrs_text(0), std::string());
  AttrSet b = a;
  CHECK_EQ(intern_attrs(a), intern_attrs(b));
  CHECK(attrs_of(intern_attrs(a)) == a);
  AttrSet ints, floats;
  ints.set("v", Int{1});
  floats.set("v", 1.0);
  CHECK(attrs_digest(intern_attrs(ints)) != attrs_digest(intern_attrs(floats)));
  CHECK_EQ(attr_text(AttrValue(ConstRef{scalar_const(kF32, 0.5)})), std::string("f32[] 0.5"));
  CHECK_EQ(attr_text(AttrValue(ConstRef{ints_const({1, 2})})), std::string("i64[2] [1,2]"));
  CHECK_EQ(attr_text(AttrValue(-std::numeric_limits<double>::infinity())), std::string("-inf"));
}
