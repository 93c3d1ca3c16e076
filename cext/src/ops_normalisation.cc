// Normalisations and the operators that share their shape rule: the output looks like the input.
#include "ops_common.h"

namespace rlflow::detail {
namespace {

// A per-channel parameter: rank 1, as long as axis 1 of the data.
void check_channel(const Ctx& c, size_t i, Int channels) {
  if (!present(c, i)) return;
  require_rank(c, i, 1, 1);
  if (ranked(in(c, i))) unify(c, in(c, i).dims[0], channels, "channels and the length of a parameter");
}
Int channels_of(const Ctx& c) {
  const TensorType& x = in(c, 0);
  return x.rank >= 2 ? x.dims[1] : kUnknown;
}

void infer_batch_norm(Ctx& c) {
  if (c.attrs.get_int("training_mode", Int{0}) != 0) fail(c, "training_mode is 1; the table holds the inference form only");
  c.attrs.erase("training_mode");
  c.attrs.erase("momentum");  // means nothing outside training
  for (size_t i = 1; i < 5; ++i) check_channel(c, i, channels_of(c));
  infer_like_first(c);
}

void infer_instance_norm(Ctx& c) {
  require_rank(c, 0, 3);
  for (size_t i = 1; i < 3; ++i) check_channel(c, i, channels_of(c));
  infer_like_first(c);
}

void infer_group_norm(Ctx& c) {
  Int groups = c.attrs.get_int("num_groups"), channels = channels_of(c);
  if (!is_plain(groups) || groups < 1) fail(c, "num_groups is " + int_text(groups) + ", expected a positive integer");
  if (is_plain(channels) && channels % groups != 0)
    fail(c, int_text(channels) + " channels do not divide into " + int_text(groups) + " groups (" + shapes(c) + ")");
  for (size_t i = 1; i < 3; ++i) check_channel(c, i, channels);
  infer_like_first(c);
}

// Scale and bias broadcast one way to the data; an extent of 1 may stand for anything.
void check_trailing(const Ctx& c, size_t i) {
  const TensorType &x = in(c, 0), &p = in(c, i);
  if (!present(c, i) || !ranked(x) || !ranked(p)) return;
  if (p.rank > x.rank) fail(c, "a parameter has a higher rank than the data (" + shapes(c) + ")");
  for (size_t k = 1; k <= p.dims.size(); ++k) {
    Int a = p.dims[p.dims.size() - k], b = x.dims[x.dims.size() - k];
    if (is_plain(a) && is_plain(b) && a != 1 && a != b)
      fail(c, "a parameter does not broadcast to the data: " + shapes(c) + " (" + int_text(a) + " against " + int_text(b) + ")");
  }
}

int stash_dtype(const Ctx& c) { return c.attrs.get_int("stash_type") == kBF16 ? kBF16 : kF32; }

void infer_layer_norm(Ctx& c) {
  require_outputs(c, 3);
  const TensorType& x = in(c, 0);
  for (size_t i = 1; i < 3; ++i) check_trailing(c, i);
  c.outputs[0].type = c.inputs[0].type;
  if (!ranked(x)) {
    for (size_t i : {size_t{1}, size_t{2}}) set_unranked(c, i, stash_dtype(c));
    return;
  }
  Int axis = canonical_axis(c, "axis", x.rank);
  IntVec reduced = x.dims;
  for (size_t i = static_cast<size_t>(axis); i < reduced.size(); ++i) reduced[i] = 1;
  for (size_t i : {size_t{1}, size_t{2}}) set(c, i, stash_dtype(c), reduced);
}

void infer_along_axis(Ctx& c) {
  if (ranked(in(c, 0)) && in(c, 0).rank > 0) canonical_axis(c, "axis", in(c, 0).rank);
  infer_like_first(c);
}

void infer_mean_variance(Ctx& c) {
  if (ranked(in(c, 0))) canonical_axes(c, "axes", in(c, 0).rank);
  infer_like_first(c);
}

void infer_lrn(Ctx& c) {
  require_rank(c, 0, 2);
  Int size = c.attrs.get_int("size");
  if (!is_plain(size) || size < 1) fail(c, "size is " + int_text(size) + ", expected a positive integer");
  infer_like_first(c);
}

double lrn_flops(const AttrSet& attrs, std::span<const TypeId>, std::span<const TypeId> out) {
  return count(out[0]) * (2.0 * static_cast<double>(attrs.get_int("size", Int{1})) + 16);
}

}  // namespace

// clang-format off
void add_normalisation_rows(Table& t) {
  constexpr auto norm = FusionClass::kNormalisation;
  auto row = [&](const char* name, int since, int least, int most, InferFn rule, std::vector<AttrDefault> defaults,
                 std::vector<const char*> extra = {}, double flops = 8) {
    t.add({.name = name, .since = since, .min_inputs = least, .max_inputs = most, .outputs = 1, .flags = kPure, .fusion = norm,
           .infer = rule, .defaults = std::move(defaults), .extra = std::move(extra), .flops_per_input = flops});
  };
  const AttrDefault last{"axis", Int{-1}}, epsilon{"epsilon", 1e-5}, stash{"stash_type", Int{1}};
  row("BatchNormalization", 7, 5, 5, infer_batch_norm, {epsilon}, {"momentum", "training_mode"}, 4);
  row("InstanceNormalization", 1, 3, 3, infer_instance_norm, {epsilon});
  row("LayerNormalization", 17, 2, 3, infer_layer_norm, {last, epsilon, stash});
  t.rows.back().flags |= kVariadicOutputs;  // mean and inverse deviation, where they are used
  row("GroupNormalization", 21, 3, 3, infer_group_norm, {epsilon, stash}, {"num_groups"});
  row("RMSNormalization", 23, 2, 2, infer_layer_norm, {last, epsilon, stash});
  row("LpNormalization", 1, 1, 1, infer_along_axis, {last, {"p", Int{2}}});
  row("MeanVarianceNormalization", 9, 1, 1, infer_mean_variance, {{"axes", IntVec{0, 2, 3}}});
  row("Softmax", 1, 1, 1, infer_along_axis, {last}, {}, 12);  // per axis, as opset 13 says
  row("LogSoftmax", 1, 1, 1, infer_along_axis, {last}, {}, 12);
  row("Hardmax", 1, 1, 1, infer_along_axis, {last}, {}, 2);
  t.add({.name = "LRN", .since = 1, .min_inputs = 1, .max_inputs = 1, .outputs = 1, .flags = kPure, .fusion = norm, .infer = infer_lrn,
         .defaults = {{"alpha", 1e-4}, {"beta", 0.75}, {"bias", 1.0}}, .extra = {"size"}, .flops = lrn_flops});
}
// clang-format on

}  // namespace rlflow::detail
