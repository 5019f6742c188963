// Every op, and which kernels a backend has for it. A backend fills one table in one readable
// initialiser; a missing kernel is found at plan time, before any request.
#pragma once

#include <tuple>

#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/gdn.h"
#include "ops/matmul.h"
#include "ops/memory.h"
#include "ops/moe.h"
#include "ops/qk_norm_rope.h"
#include "ops/rms_norm.h"
#include "ops/sample.h"

namespace exode {

struct OpTable {
  Backend backend = Backend::kRef;
  DeviceCaps caps;
  std::tuple<Kernel<ops::Embedding>, Kernel<ops::TakeTokens>, Kernel<ops::RmsNorm>,
             Kernel<ops::AddRmsNorm>, Kernel<ops::MatMul>, Kernel<ops::MatMulSwiGlu>,
             Kernel<ops::SwiGlu>, Kernel<ops::SigmoidGate>, Kernel<ops::AddGated>, Kernel<ops::Add>,
             Kernel<ops::GatherRows>, Kernel<ops::QkNormRope>, Kernel<ops::CausalConv>,
             Kernel<ops::GdnGates>, Kernel<ops::GatedDelta>, Kernel<ops::GatedRmsNorm>,
             Kernel<ops::GatedDeltaNet>, Kernel<ops::MoeRoute>, Kernel<ops::MoeExperts>,
             Kernel<ops::Sample>, Kernel<ops::FillRandom>, Kernel<ops::ReadWords>,
             Kernel<ops::CopyBytes>>
      kernels;
};

// kv/ overloads this for its two ops: there the cache view names the format.
template <class Op>
const Kernel<Op>& kernel_for(const OpTable& table, const Op&) {
  return std::get<Kernel<Op>>(table.kernels);
}

OpTable ref_ops(const DeviceCaps& caps);  // slow, obvious, double-accumulating: the judge in tests

// kFast: operands of matrix products in 16 bits where a kernel gains by it; sums stay in f32.
enum class Numerics : uint8_t { kExact, kFast };
OpTable cpu_ops(const DeviceCaps& caps, Numerics numerics = Numerics::kExact);
OpTable cuda_ops(const DeviceCaps& caps, Numerics numerics);  // no kernels in builds without CUDA

}  // namespace exode
