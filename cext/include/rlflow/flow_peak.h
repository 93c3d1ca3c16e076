// What a flow needs with some of its stretches in bands: rlflow/footprint/layout.py and lifetimes.py say the rules in words.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace rlflow {

// What a job does with the runtime's blocked layout.
enum class FlowLayout : int32_t { kPlain, kBlocked, kMakes, kKeeps };

// What a job is, as bits.
enum FlowBits : int32_t { kAlias = 1, kFuses = 2, kHalves = 4, kConvolves = 8, kWhole = 16, kMoves = 32 };

// Jobs in their order, and the values that are theirs. A value below `outer` is one of the whole flow, others are own ones. CSR throughout.
struct FlowPart {
  int32_t outer = 0;
  std::vector<int32_t> input_begin, input, output_begin, output;
  std::vector<int32_t> reuse_begin, reuse_input, reuse_output;  // places of inputs and outputs that may share a buffer
  std::vector<int32_t> bits, layout, node;                      // [jobs]
  std::vector<double> flops;                                    // [jobs]
  std::vector<int64_t> workspace;                               // [jobs]
  // Own values, plain and with their channels filled up to whole blocks. kind: one number for each shape and width; -1: unknown.
  std::vector<int64_t> bytes, filled_bytes;
  std::vector<int32_t> shape, filled_shape, kind, filled_kind;
  std::vector<uint8_t> hidden, scalar;
  std::vector<int32_t> veiled;  // values of the whole that it hides

  int32_t jobs() const { return static_cast<int32_t>(bits.size()); }
  int32_t values() const { return static_cast<int32_t>(bytes.size()); }
  // Throws Error (usage) for arrays whose lengths or numbers do not fit each other.
  void check() const;
};

// A part in the place of the jobs `first` to `last` inclusive.
struct FlowChange {
  int32_t first, last;
  const FlowPart* part;
};

// Bytes of the peak and of what is alive at most; the node of the job there (-1: none has one); the terms of the work.
struct FlowNeeds {
  int64_t peak = 0, live = 0, moved = 0;
  int32_t node = -1, jobs = 0;
  double flops = 0.0;
};

class FlowPeak {
 public:
  // `given`, `taken`: what the caller owns. Throws Error (usage) as FlowPart::check, and for numbers that are no values.
  FlowPeak(FlowPart whole, std::vector<int32_t> given, std::vector<int32_t> taken, int64_t alignment);
  int32_t values() const { return whole_.values(); }
  // Throws Error (usage) for changes that overlap, or do not fit the whole.
  FlowNeeds needs(std::span<const FlowChange> changes) const;

 private:
  FlowPart whole_;
  std::vector<int32_t> given_, taken_;
  int64_t alignment_;
};

}  // namespace rlflow
