#include "ops/cpu/cpu.h"

namespace exode {
namespace {

template <class Op>
concept HasScratch = requires(const DeviceCaps& caps, const Op& op) {
  cpu::scratch_bytes(caps, op);
};

template <class Op>
concept HasFast = requires(Stream& stream, const Op& op) {
  cpu::launch_fast(stream, op, {});
};

template <class Op>
Kernel<Op> kernel(Numerics numerics) {
  Kernel<Op> k;
  k.launch = cpu::launch;
  if (numerics == Numerics::kFast) {
    if constexpr (HasFast<Op>) k.launch = cpu::launch_fast;
  }
  if constexpr (HasScratch<Op>) k.scratch_bytes = cpu::scratch_bytes;
  return k;
}

template <class... Ops>
void fill(std::tuple<Kernel<Ops>...>& kernels, Numerics numerics) {
  ((std::get<Kernel<Ops>>(kernels) = kernel<Ops>(numerics)), ...);
}

}  // namespace

OpTable cpu_ops(const DeviceCaps& caps, Numerics numerics) {
  OpTable table{.backend = Backend::kCpu, .caps = caps, .kernels = {}};
  fill(table.kernels, numerics);
  return table;
}

}  // namespace exode
