#include "ops/cuda/cuda.h"
#include "ops/cuda/matmul_stream.h"

namespace exode {
namespace {

template <class Op>
concept HasScratch = requires(const DeviceCaps &caps, const Op &op) {
  cuda::scratch_bytes(caps, op);
};

template <class Op> Kernel<Op> kernel() {
  Kernel<Op> k;
  k.launch = cuda::launch;
  if constexpr (HasScratch<Op>)
    k.scratch_bytes = cuda::scratch_bytes;
  return k;
}

template <class... Ops> void fill(std::tuple<Kernel<Ops>...> &kernels) {
  ((std::get<Kernel<Ops>>(kernels) = kernel<Ops>()), ...);
}

// Layouts without a tensor-core kernel keep the exact one.
Kernel<ops::MatMul> fast_matmul() {
  Kernel<ops::MatMul> k;
  k.launch = [](Stream &stream, const ops::MatMul &op, cuda::Scratch scratch) {
    if (cuda::streams(op.w))
      return cuda::stream_launch(stream, op);
    cuda::launch(stream, op, scratch);
  };
  return k;
}

Kernel<ops::MatMulSwiGlu> fast_matmul_swiglu() {
  Kernel<ops::MatMulSwiGlu> k;
  k.launch = [](Stream &stream, const ops::MatMulSwiGlu &op,
                cuda::Scratch scratch) {
    if (cuda::streams(op.w))
      return cuda::stream_launch(stream, op);
    cuda::launch(stream, op, scratch);
  };
  k.scratch_bytes = [](const DeviceCaps &caps, const ops::MatMulSwiGlu &op) {
    return cuda::streams(op.w) ? size_t{0} : cuda::scratch_bytes(caps, op);
  };
  return k;
}

} // namespace

OpTable cuda_ops(const DeviceCaps &caps, Numerics numerics) {
  OpTable table{.backend = Backend::kCuda, .caps = caps, .kernels = {}};
  fill(table.kernels);
  if (numerics == Numerics::kFast) {
    std::get<Kernel<ops::MatMul>>(table.kernels) = fast_matmul();
    std::get<Kernel<ops::MatMulSwiGlu>>(table.kernels) = fast_matmul_swiglu();
  }
  return table;
}

} // namespace exode
