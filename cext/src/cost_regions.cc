#include "cost_regions.h"

#include <limits>

namespace rlflow::detail {
namespace {

bool plain_dim(const TensorType& t, size_t axis, Int& dim) {
  if (t.rank <= static_cast<int>(axis) || !is_plain(t.dims[axis])) return false;
  dim = t.dims[axis];
  return true;
}

// [C,1,1] or [1,C,1,1] against a result [N,C,...].
bool along_channels(const TensorType& c, const TensorType& result) {
  if (result.rank < 3 || c.rank < 1 || c.rank > result.rank) return false;
  int channel = c.rank - (result.rank - 1);
  if (channel < 0 || c.dims[static_cast<size_t>(channel)] != result.dims[1]) return false;
  for (int i = 0; i < c.rank; ++i)
    if (i != channel && c.dims[static_cast<size_t>(i)] != 1) return false;
  return true;
}

bool rest_constant(const Graph& g, std::span<const ValueId> in) {
  for (size_t i = 1; i < in.size(); ++i)
    if (in[i] != kNoValue && !g.is_const(in[i])) return false;
  return true;
}

bool gemm_bias(const TensorType& bias, const TensorType& result) {
  if (result.rank != 2) return false;
  if (bias.rank == 1) return bias.dims[0] == result.dims[1];
  if (bias.rank != 2) return false;
  bool rows = bias.dims[0] == 1 || bias.dims[0] == result.dims[0];
  return rows && (bias.dims[1] == result.dims[1] || (bias.dims[1] == 1 && bias.dims[0] == result.dims[0]));
}

bool swaps_last(const Graph& g, NodeId n) {
  const IntVec* perm = g.attrs(n).find_ints("perm");
  if (!perm || perm->size() < 2) return false;
  Int rank = static_cast<Int>(perm->size());
  for (Int i = 0; i + 2 < rank; ++i)
    if ((*perm)[static_cast<size_t>(i)] != i) return false;
  return (*perm)[static_cast<size_t>(rank - 2)] == rank - 1 && (*perm)[static_cast<size_t>(rank - 1)] == rank - 2;
}

bool keeps_axes(const Graph& g, NodeId n) {
  const IntVec* perm = g.attrs(n).find_ints("perm");
  if (!perm) return false;
  for (size_t i = 0; i < perm->size(); ++i)
    if ((*perm)[i] != static_cast<Int>(i)) return false;
  return true;
}

// Products read the value, or exchanges of its last axes, and nothing else does: each of them takes a scale and an exchange of axes as
// flags of its own.
bool feeds_products(const Graph& g, NodeId n) {
  ValueId v = first_output(g, n);
  auto users = g.users(v);
  return users.size() > 1 && !g.output_uses(v) && std::all_of(users.begin(), users.end(), [&](const Graph::Use& u) {
           return g.node(u.node).op == op_ids().matmul || (g.node(u.node).op == op_ids().transpose && swaps_last(g, u.node));
         });
}

bool spatial_zero_pad(const Graph& g, NodeId n) {
  const AttrSet& a = g.attrs(n);
  const IntVec* pads = a.find_ints("pads");
  if (!pads || g.inputs(n).size() != 1 || pads->size() < 6 || pads->size() % 2) return false;
  if (a.get_string("mode", "constant") != "constant" || a.get_float("value", 0.0) != 0.0) return false;
  size_t rank = pads->size() / 2;
  for (size_t i : {size_t{0}, size_t{1}, rank, rank + 1})
    if ((*pads)[i] != 0) return false;
  return std::all_of(pads->begin(), pads->end(), [](Int p) { return is_plain(p) && p >= 0; });
}

// The type with symbolic dims replaced.
TypeId bound_type(TypeId id, const Bindings& bindings) {
  const TensorType& t = type_of(id);
  if (std::none_of(t.dims.begin(), t.dims.end(), is_symbolic)) return id;
  TensorType bound = t;
  for (Int& d : bound.dims) d = int_substitute(d, bindings);
  return intern_type(bound);
}

Int group_of(const Graph& g, NodeId n) { return g.attrs(n).get_int("group", 1); }

}  // namespace

const OpIds& op_ids() {
  static const OpIds ids = [] {
    auto id = [](const char* name) { return has_op(name) ? find_op(name) : std::numeric_limits<OpId>::max(); };
    return OpIds{id("Add"),     id("Mul"),        id("Div"),        id("Sub"),    id("Pow"),      id("Sqrt"),           id("Erf"),
                 id("Sigmoid"), id("Reciprocal"), id("ReduceMean"), id("Gather"), id("GatherND"), id("GatherElements"), id("Slice"),
                 id("MatMul"),  id("Transpose")};
  }();
  return ids;
}

const Hash128& op_name_hash(OpId op) {
  static const std::vector<Hash128>& hashes = *[] {
    auto* v = new std::vector<Hash128>;
    for (const OpInfo& row : op_table()) v->push_back(hash_bytes(row.name));
    return v;
  }();
  return hashes[op];
}

bool guard_holds(const FusionRules& rules, const Graph& g, NodeId n, uint32_t slot, Guard guard, bool blocked0, bool blocked1) {
  if (guard == Guard::kAlways) return true;
  auto in = g.inputs(n);
  if (slot >= in.size() || in[slot] == kNoValue) return false;
  const TensorType& result = type_at(g, first_output(g, n));
  const TensorType& operand = type_at(g, in[slot]);
  bool pair = in.size() == 2 && slot < 2 && in[1 - slot] != kNoValue;
  ValueId rest = pair ? in[1 - slot] : kNoValue;
  bool rest_const = pair && g.is_const(rest);
  switch (guard) {
    case Guard::kAlways: return true;
    case Guard::kFirst: return slot == 0 && rest_constant(g, in);
    case Guard::kLeading: return slot == 0;
    case Guard::kEither: return slot < 2;
    case Guard::kChannelConst: {
      if (!rest_const) return false;
      const TensorType& c = type_at(g, rest);
      return along_channels(c, result) || (c.rank == 0 && g.node(n).op == op_ids().mul);
    }
    case Guard::kBlockedChannelConst: return rest_const && (slot == 0 ? blocked0 : blocked1) && along_channels(type_at(g, rest), result);
    case Guard::kBlocked: return slot == 0 && blocked0 && rest_constant(g, in);
    case Guard::kBlockedSum: return rules.block > 0 && pair && !rest_const && blocked0 && blocked1 && g.type(in[0]) == g.type(in[1]);
    case Guard::kGemmBias: return pair && same_shape(operand, result) && gemm_bias(type_at(g, rest), result);
    case Guard::kRowBias: {
      if (!pair || result.rank < 3 || !same_shape(operand, result)) return false;
      const TensorType& bias = type_at(g, rest);
      auto factors = g.inputs(g.producer(in[slot]));
      return bias.rank == 1 && bias.dims[0] == result.dims[static_cast<size_t>(result.rank - 1)] && factors.size() == 2 &&
             type_at(g, factors[1]).rank == 2;
    }
    case Guard::kRank2: return slot == 0 && result.rank == 2 && rest_constant(g, in);
    case Guard::kScalar: {
      if (!rest_const || (g.node(n).op == op_ids().div && slot != 0)) return false;
      auto count = element_count(type_at(g, rest));
      return count && *count == 1 && dtype_is_float(result.dtype) && same_shape(operand, result);
    }
    case Guard::kSwapLast: return swaps_last(g, n);
    case Guard::kKeepsAxes: return keeps_axes(g, n);
    case Guard::kScalarForProducts: return feeds_products(g, n) && guard_holds(rules, g, n, slot, Guard::kScalar, blocked0, blocked1);
    case Guard::kSwapForProducts: return swaps_last(g, n) && feeds_products(g, n);
    case Guard::kOneAxis: return slot == 0 && std::count_if(operand.dims.begin(), operand.dims.end(), [](Int d) { return d != 1; }) <= 1;
    case Guard::kSpatialZeroPad: return spatial_zero_pad(g, n);
    case Guard::kPlainSum: return pair && !rest_const && !g.is_const(in[slot]) && result.rank == 3 && g.type(in[0]) == g.type(in[1]);
    case Guard::kRowConst: {
      if (!rest_const || g.is_const(in[slot]) || result.rank < 1 || !same_shape(operand, result)) return false;
      const TensorType& c = type_at(g, rest);
      return c.rank == 1 && c.dims[0] == result.dims[static_cast<size_t>(result.rank - 1)];
    }
    case Guard::kKeepsShape: return same_shape(operand, result);
  }
  return false;
}

bool convolution_blocks(const FusionRules& rules, const Graph& g, NodeId n) {
  auto in = g.inputs(n);
  if (in.size() < 2 || in[0] == kNoValue || in[1] == kNoValue || !g.is_const(in[1])) return false;
  if (in.size() > 2 && in[2] != kNoValue && !g.is_const(in[2])) return false;
  const TensorType &x = type_at(g, in[0]), &w = type_at(g, in[1]);
  Int out = 0, depth = 0, group = group_of(g, n);
  if (x.dtype != kF32 || x.rank != 4 || !plain_dim(w, 0, out) || !plain_dim(w, 1, depth) || group < 1) return false;
  if (group == 1) return depth < rules.block || depth % 4 == 0;
  if (depth == 1 && out == group) return out % 4 == 0;
  return depth % rules.block == 0 && (out / group) % rules.block == 0;
}

// Few input channels: the kernel reads the plain layout and writes the blocked one.
bool convolution_reads_plain(const FusionRules& rules, const Graph& g, NodeId n) {
  auto in = g.inputs(n);
  Int depth = 0;
  return in.size() > 1 && in[1] != kNoValue && plain_dim(type_at(g, in[1]), 1, depth) && depth < rules.block && group_of(g, n) == 1;
}

bool pool_blocks(const FusionRules& rules, const Graph& g, NodeId n) {
  auto in = g.inputs(n);
  Int channels = 0;
  if (in.empty() || in[0] == kNoValue || g.node(n).out_count != 1) return false;
  const TensorType& x = type_at(g, in[0]);
  return x.dtype == kF32 && x.rank == 4 && plain_dim(x, 1, channels) && channels % rules.block == 0;
}

bool concat_blocks(const FusionRules& rules, const Graph& g, NodeId n) {
  if (g.attrs(n).get_int("axis", -1) != 1) return false;
  for (ValueId v : g.inputs(n)) {
    Int channels = 0;
    if (v == kNoValue) return false;
    const TensorType& t = type_at(g, v);
    if (t.rank != 4 || !plain_dim(t, 1, channels) || channels % rules.block != 0) return false;
  }
  return true;
}

bool resize_blocks(const Graph& g, NodeId n) {
  const AttrSet& a = g.attrs(n);
  std::string mode = a.get_string("mode", "nearest");
  if (mode == "linear") return true;
  return mode == "nearest" && a.get_string("coordinate_transformation_mode", "half_pixel") == "asymmetric" &&
         a.get_string("nearest_mode", "round_prefer_floor") == "floor";
}

Hash128 base_signature(const Graph& g, const std::vector<NodeId>& members) {
  Hasher h(0x7265676eULL);
  constexpr size_t kTracked = 48;  // beyond that, repeated operands count as different ones
  std::array<ValueId, kTracked> external;
  uint64_t externals = 0;
  h.add(members.size());
  for (NodeId n : members) {
    const Node& node = g.node(n);
    h.add(op_name_hash(node.op));
    h.add(attrs_digest(node.attrs));
    h.add(static_cast<uint64_t>(node.in_count) << 16 | node.out_count);
    for (ValueId v : g.inputs(n)) {
      if (v == kNoValue) {
        h.add(1);
        continue;
      }
      auto producer = members.size() > 1 ? std::find(members.begin(), members.end(), g.producer(v)) : members.end();
      if (producer != members.end()) {
        h.add(2 | static_cast<uint64_t>(producer - members.begin()) << 8 | static_cast<uint64_t>(g.output_index(v)) << 32);
        continue;
      }
      size_t tracked = std::min<size_t>(externals, kTracked);
      auto seen = std::find(external.begin(), external.begin() + tracked, v);
      if (seen != external.begin() + tracked) {
        h.add(3 | static_cast<uint64_t>(seen - external.begin()) << 8);
        continue;
      }
      if (externals < kTracked) external[externals] = v;
      ++externals;
      h.add(g.is_const(v) ? 5 : 4);
      h.add(type_digest(g.type(v)));
    }
    if (node.op == op_ids().pow && node.in_count == 2) {  // squares and square roots have kernels of their own
      const ConstInfo* exponent = g.constant(g.inputs(n)[1]);
      if (exponent && exponent->inline_values && exponent->floats.size() == 1) h.add_double(exponent->floats[0]);
    }
  }
  const Node& head = g.node(members.back());
  uint64_t read = 0;
  for (uint32_t o = 0; o < head.out_count && o < 64; ++o)
    if (!g.users(head.out_begin + o).empty() || g.output_uses(head.out_begin + o)) read |= uint64_t{1} << o;
  h.add(read);
  return h.finish();
}

Hash128 with_context(const Hash128& base, const RegionContext& c) {
  if (!c.blocked) return base;
  Hasher h(0x626c6b64ULL);
  h.add(base);
  h.add(static_cast<uint64_t>(c.reorder_inputs) << 1 | (c.reorder_output ? 1 : 0));
  return h.finish();
}

Work work_of(const Graph& g, const std::vector<NodeId>& members, const Bindings& bindings) {
  Work work;
  const OpIds& ops = op_ids();
  auto type = [&](ValueId v) { return bindings.empty() ? g.type(v) : bound_type(g.type(v), bindings); };
  auto bytes_of = [&](ValueId v) {
    const TensorType& t = type_of(type(v));
    double count = 1;
    for (Int d : t.dims)
      if (is_plain(d)) count *= static_cast<double>(d);
    return count * dtype_bytes(t.dtype);
  };
  std::array<TypeId, 16> small_in;
  std::vector<TypeId> large_in;
  for (NodeId n : members) {
    const Node& node = g.node(n);
    const OpInfo& op = op_info(node.op);
    auto in = g.inputs(n);
    std::span<TypeId> types;
    if (in.size() <= small_in.size()) {
      types = std::span(small_in).first(in.size());
    } else {
      large_in.resize(in.size());
      types = large_in;
    }
    for (size_t i = 0; i < in.size(); ++i) types[i] = in[i] == kNoValue ? TypeId{0} : type(in[i]);
    std::array<TypeId, 8> out;
    std::vector<TypeId> many_out;
    std::span<TypeId> out_types = std::span(out).first(std::min<size_t>(node.out_count, out.size()));
    if (node.out_count > out.size()) {
      many_out.resize(node.out_count);
      out_types = many_out;
    }
    for (uint32_t o = 0; o < node.out_count; ++o) out_types[o] = type(node.out_begin + o);
    NodeCost cost = node_cost(node.op, attrs_of(node.attrs), types, out_types);
    bool picks = node.op == ops.gather || node.op == ops.gather_nd || node.op == ops.gather_elements || node.op == ops.slice;
    if (picks && !in.empty() && in[0] != kNoValue) cost.bytes_in += std::min(0.0, cost.bytes_out - bytes_of(in[0]));  // reads what it returns
    (op.fusion == FusionClass::kAnchor ? work.flops : work.vector_flops) += cost.flops;
    work.bytes += cost.bytes_in + cost.bytes_out;
    if (members.size() == 1) break;
    const bool view = op.fusion == FusionClass::kView;
    if (!view)  // what stays inside is neither read ...
      for (ValueId v : in)
        if (v != kNoValue && std::find(members.begin(), members.end(), g.producer(v)) != members.end()) work.bytes -= bytes_of(v);
    if (!view && n != members.back())  // ... nor written
      for (uint32_t o = 0; o < node.out_count; ++o) work.bytes -= bytes_of(node.out_begin + o);
  }
  work.bytes = std::max(0.0, work.bytes);
  return work;
}

}  // namespace rlflow::detail
