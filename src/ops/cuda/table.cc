#include <algorithm>

#include "ops/cuda/cuda.h"
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

// Layouts without a tensor-core kernel keep the exact one.
Kernel<ops::MatMul> fast_matmul() {
  Kernel<ops::MatMul> k;
  k.launch = [](Stream& stream, const ops::MatMul& op, cuda::Scratch scratch) {
    if (cuda::streams(op.w)) return cuda::stream_launch(stream, op);
    cuda::launch(stream, op, scratch);
  };
  return k;
}

Kernel<ops::MatMulSwiGlu> fast_matmul_swiglu() {
  Kernel<ops::MatMulSwiGlu> k;
  k.launch = [](Stream& stream, const ops::MatMulSwiGlu& op, cuda::Scratch scratch) {
    if (cuda::streams(op.w)) return cuda::stream_launch(stream, op);
    cuda::launch(stream, op, scratch);
  };
  k.scratch_bytes = [](const DeviceCaps& caps, const ops::MatMulSwiGlu& op) {
    return cuda::streams(op.w) ? size_t{0} : cuda::scratch_bytes(caps, op);
  };
  return k;
}

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
    const size_t rest = fast_matmul_swiglu().scratch_bytes(caps, shared.gate_up);
    return std::max(exact, ops::shared_expert_bytes(op) + rest);
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
  }
  return table;
}

}  // namespace exode
