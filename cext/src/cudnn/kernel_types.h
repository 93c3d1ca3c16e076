// What the planner tells the kernels. Included twice: as C++, and as text that NVRTC compiles (kernels.h says how). No preprocessor lines
// inside. Structures of fixed parameters consist of `long long` alone, so that one can be written out as a flat list of constants.
RLFLOW_KERNEL_TEXT(
constexpr int kMaxDims = 6;
constexpr int kMaxIns = 14;
constexpr int kMaxOuts = 4;
constexpr int kMaxCode = 56;
constexpr int kMaxSizes = 3;
constexpr long long kGiven = -1;

enum Kind : long long { kF32 = 1, kU8 = 2, kI8 = 3, kU16 = 4, kI16 = 5, kI32 = 6, kI64 = 7, kBool = 9, kF16 = 10, kF64 = 11, kU32 = 12,
                        kU64 = 13, kBF16 = 16 };

enum Code : long long {
  kConst, kAbs, kNeg, kExp, kLog, kSqrt, kRecip, kErf, kTanh, kSigmoid, kFloor, kCeil, kRound, kSign, kSin, kCos, kTan, kAsin, kAcos,
  kAtan, kSinh, kCosh, kAsinh, kAcosh, kAtanh, kNot, kIsNan, kIsInf, kSoftplus, kTrunc, kToBool, kToHalf, kToBFloat, kAdd, kSub, kMul, kDiv,
  kPow, kMax, kMin, kMod, kFmod, kIntDiv, kAnd, kOr, kXor, kEq, kGt, kGe, kLt, kLe, kSelect
};

enum Reduction : long long { kSum, kMean, kMaximum, kMinimum, kProduct, kL1, kL2, kLogSum, kLogSumExp, kSumSquare, kArgMax, kArgMin,
                             kArgMaxLast, kArgMinLast };

// What a launch hands over. An extent that is kGiven among the fixed parameters is one of `size`, so that one kernel serves all extents.
struct Pointers {
  void* out[kMaxOuts];
  const void* in[kMaxIns];
  long long size[kMaxSizes];
};

// Register r < ins is operand r, register ins + i the result of code[i]. `bits`: a double.
struct Instruction {
  long long op; long long a; long long b; long long c; long long bits;
};
struct Operand {
  long long dtype; long long offset; long long stride[kMaxDims];
};
struct Pointwise {  // size: count. A thread computes `lanes` neighbours along the last axis; the strides there are 1 or 0 where it is more than one
  long long count; long long wide; long long lanes; long long dims; long long extent[kMaxDims];
  long long ins; long long outs; long long steps;
  Operand in[kMaxIns];
  Operand out[kMaxOuts];
  long long result[kMaxOuts];
  Instruction code[kMaxCode];
};
struct Transposition {  // [batch, rows, columns], the sizes, to [batch, columns, rows]
  long long bytes; long long batch; long long rows; long long columns;
};
struct Reducing {  // together: threads that make one output: 1, a warp, or (kGiven) all of a block
  long long kind; long long dtype; long long out_dtype; long long wide; long long outputs; long long together; long long count;
  long long kept; long long kept_extent[kMaxDims]; long long kept_stride[kMaxDims];
  long long reduced; long long reduced_extent[kMaxDims]; long long reduced_stride[kMaxDims];
};
struct Softening {  // by_warp: a warp takes a row, which it keeps in registers: up to 1024 elements
  long long dtype; long long rows; long long extent; long long inner; long long log; long long by_warp;
};
struct Normalising {  // rows of `extent`; scale and shift by element of the row, or (by_row) one for each of `channels` rows
  long long dtype; long long rows; long long extent; long long centred; long long by_row; long long channels; long long epsilon;
  long long scaled; long long shifted;
};
struct Gathering {  // out[o, i, k] = in[o, index[i], k]
  long long bytes; long long index_dtype; long long outer; long long extent; long long inner; long long indices;
};
struct Joining {  // [outer, pitch] and its parts [outer, end[k] - end[k - 1]], in units of `bytes`; `apart`: cut into them, else put together
  long long bytes; long long apart; long long outer; long long pitch; long long parts; long long end[kMaxIns];
};
struct Remapping {  // out[i...] = in[sum of table_d[i_d]], or the fill where one of them is negative; tables lie one behind the other
  long long dtype; long long count; long long dims; long long extent[kMaxDims]; long long start[kMaxDims]; long long fill;
};
struct Pooling {
  long long dtype; long long maximum; long long planes; long long count; long long in[3]; long long out[3]; long long window[3];
  long long stride[3]; long long dilation[3]; long long pad[3]; long long limit[3]; long long with_pad;
};
)
