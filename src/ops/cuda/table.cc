#include "ops/cuda/cuda.h"
#include "ops/cuda/matmul_int4.h"

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
    if (cuda::int4_tensor_cores_apply(op.w)) return cuda::int4_launch(stream, op, scratch);
    cuda::launch(stream, op, scratch);
  };
  k.scratch_bytes = [](const DeviceCaps&, const ops::MatMul& op) {
    return cuda::int4_tensor_cores_apply(op.w) ? cuda::int4_scratch_bytes(op) : size_t{0};
  };
  return k;
}

}  // namespace

OpTable cuda_ops(const DeviceCaps& caps, Numerics numerics) {
  OpTable table{.backend = Backend::kCuda, .caps = caps, .kernels = {}};
  fill(table.kernels);
  if (numerics == Numerics::kFast) std::get<Kernel<ops::MatMul>>(table.kernels) = fast_matmul();
  return table;
}

}  // namespace exode
