#include <algorithm>

#include "ops/cuda/cuda.h"
#include "ops/cuda/gdn_chunk.h"
#include "ops/cuda/gdn_few.h"
#include "ops/cuda/gemm.h"
#include "ops/cuda/matmul_stream.h"
#include "ops/cuda/moe_fast.h"
#include "ops/shared_expert.h"

namespace exode {
namespace {

template <class Op>
concept HasScratch = requires(const DeviceCaps& caps, const Op& op) {
  cuda::scratch_bytes(caps, op);
};

template <class Op>
Kernel<Op> kernel() {
  Kernel<Op> k;
  k.launch = cuda::launch;
  if constexpr (HasScratch<Op>) k.scratch_bytes = cuda::scratch_bytes;
  return k;
}

template <class... Ops>
void fill(std::tuple<Kernel<Ops>...>& kernels) {
  ((std::get<Kernel<Ops>>(kernels) = kernel<Ops>()), ...);
}

// Few rows are bound by the weight stream, many by the tensor cores. Layouts without a tensor-core
// kernel keep the exact one.
bool is_gemm(const ConstTensorView& x, const WeightView& w) {
  return x.rows() >= cuda::kGemmRowsFrom && cuda::gemm_applies(w);
}

template <class Op>
Kernel<Op> fast_matmul_kernel() {
  Kernel<Op> k;
  k.launch = [](Stream& stream, const Op& op, cuda::Scratch scratch) {
    if (is_gemm(op.x, op.w)) return cuda::gemm_launch(stream, op, scratch);
    if (cuda::streams(op.w)) return cuda::stream_launch(stream, op);
    cuda::launch(stream, op, scratch);
  };
  k.scratch_bytes = [](const DeviceCaps& caps, const Op& op) {
    if (is_gemm(op.x, op.w)) return cuda::gemm_scratch_bytes(op.x);
    if constexpr (HasScratch<Op>) {
      if (!cuda::streams(op.w)) return cuda::scratch_bytes(caps, op);
    }
    return size_t{0};
  };
  return k;
}

Kernel<ops::MatMul> fast_matmul() { return fast_matmul_kernel<ops::MatMul>(); }
Kernel<ops::MatMulSwiGlu> fast_matmul_swiglu() { return fast_matmul_kernel<ops::MatMulSwiGlu>(); }

// Experts without a tensor-core kernel keep the exact one; their shared expert need not.
Kernel<ops::MoeExperts> fast_experts() {
  Kernel<ops::MoeExperts> k;
  k.launch = [](Stream& stream, const ops::MoeExperts& op, cuda::Scratch scratch) {
    if (cuda::fast_experts_apply(op)) return cuda::fast_experts_launch(stream, op, scratch);
    cuda::launch(stream, ops::without_shared(op), scratch);
    if (op.shared.empty()) return;
    const ops::SharedExpertOps shared = ops::shared_expert_ops(op, scratch.data());
    const cuda::Scratch rest = scratch.subspan(ops::shared_expert_bytes(op));
    fast_matmul_swiglu().launch(stream, shared.gate_up, rest);
    fast_matmul().launch(stream, shared.down, rest);
    cuda::launch(stream, shared.add, {});
  };
  k.scratch_bytes = [](const DeviceCaps& caps, const ops::MoeExperts& op) {
    if (cuda::fast_experts_apply(op)) return cuda::fast_experts_scratch_bytes(caps, op);
    const size_t exact = cuda::scratch_bytes(caps, ops::without_shared(op));
    if (op.shared.empty()) return exact;
    const ops::SharedExpertOps shared = ops::shared_expert_ops(op, nullptr);
    const size_t rest = std::max(fast_matmul_swiglu().scratch_bytes(caps, shared.gate_up),
                                 fast_matmul().scratch_bytes(caps, shared.down));
    return std::max(exact, ops::shared_expert_bytes(op) + rest);
  };
  return k;
}

// Long slices in chunks; short ones, and steps without long ones, as the exact kernel has them.
Kernel<ops::GatedDeltaNet> fast_gated_delta_net() {
  Kernel<ops::GatedDeltaNet> k;
  k.launch = [](Stream& stream, const ops::GatedDeltaNet& op, cuda::Scratch scratch) {
    if (!cuda::gdn_fuses(op) || cuda::gdn_is_few(op)) return cuda::launch(stream, op, scratch);
    cuda::gdn_few_launch(stream, op, cuda::GdnSlices::kShort);
    cuda::gdn_chunk_launch(stream, op, scratch);
  };
  k.scratch_bytes = [](const DeviceCaps& caps, const ops::GatedDeltaNet& op) {
    if (!cuda::gdn_fuses(op) || cuda::gdn_is_few(op)) return cuda::scratch_bytes(caps, op);
    return cuda::gdn_chunk_scratch_bytes(op);
  };
  return k;
}

}  // namespace

OpTable cuda_ops(const DeviceCaps& caps, Numerics numerics) {
  OpTable table{.backend = Backend::kCuda, .caps = caps, .kernels = {}};
  fill(table.kernels);
  if (numerics == Numerics::kFast) {
    std::get<Kernel<ops::MatMul>>(table.kernels) = fast_matmul();
    std::get<Kernel<ops::MatMulSwiGlu>>(table.kernels) = fast_matmul_swiglu();
    std::get<Kernel<ops::MoeExperts>>(table.kernels) = fast_experts();
    std::get<Kernel<ops::GatedDeltaNet>>(table.kernels) = fast_gated_delta_net();
  }
  return table;
}

}  // namespace exode
