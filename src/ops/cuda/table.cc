#include "ops/cuda/cuda.h"

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

}  // namespace

OpTable cuda_ops(const DeviceCaps& caps) {
  OpTable table{.backend = Backend::kCuda, .caps = caps, .kernels = {}};
  fill(table.kernels);
  return table;
}

}  // namespace exode
