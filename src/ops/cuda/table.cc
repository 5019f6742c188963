#include "ops/cuda/cuda.h"
#include "ops/cuda/matmul_int4.h"
#include "ops/cuda/matmul_stream.h"

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
    if (cuda::streams(op)) return cuda::stream_launch(stream, op, scratch);
    if (cuda::int4_tensor_cores_apply(op.w)) return cuda::int4_launch(stream, op, scratch);
    cuda::launch(stream, op, scratch);
  };
  k.scratch_bytes = [](const DeviceCaps& caps, const ops::MatMul& op) {
    if (cuda::streams(op)) return cuda::stream_scratch_bytes(caps, op);
    return cuda::int4_tensor_cores_apply(op.w) ? cuda::int4_scratch_bytes(op) : size_t{0};
  };
  return k;
}

// Products of both halves in scratch, then the gate, where the fused kernel does not apply.
ops::MatMul both_halves(const ops::MatMulSwiGlu& op, std::byte* memory) {
  return {.x = op.x, .w = op.w, .out = dense_view(memory, DType::kF32, {op.x.rows(), op.w.rows})};
}

Kernel<ops::MatMulSwiGlu> fast_matmul_swiglu() {
  Kernel<ops::MatMulSwiGlu> k;
  k.launch = [](Stream& stream, const ops::MatMulSwiGlu& op, cuda::Scratch scratch) {
    if (cuda::streams(op)) return cuda::stream_launch(stream, op, scratch);
    const ops::MatMul product = both_halves(op, scratch.data());
    const size_t halves = cuda::scratch_bytes({}, op);
    fast_matmul().launch(stream, product, scratch.subspan(halves));
    cuda::launch(stream, ops::SwiGlu{.gate_up = product.out, .out = op.out}, {});
  };
  k.scratch_bytes = [](const DeviceCaps& caps, const ops::MatMulSwiGlu& op) {
    if (cuda::streams(op)) return cuda::stream_scratch_bytes(caps, op);
    return cuda::scratch_bytes(caps, op) +
           fast_matmul().scratch_bytes(caps, both_halves(op, nullptr));
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
  }
  return table;
}

}  // namespace exode
