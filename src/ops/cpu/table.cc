#include "ops/cpu/cpu.h"

namespace exode {
namespace {

template <class Op>
concept HasScratch = requires(const DeviceCaps& caps, const Op& op) {
  cpu::scratch_bytes(caps, op);
};

template <class Op>
Kernel<Op> kernel() {
  Kernel<Op> k;
  k.launch = cpu::launch;
  if constexpr (HasScratch<Op>) k.scratch_bytes = cpu::scratch_bytes;
  return k;
}

template <class... Ops>
void fill(std::tuple<Kernel<Ops>...>& kernels) {
  ((std::get<Kernel<Ops>>(kernels) = kernel<Ops>()), ...);
}

}  // namespace

OpTable cpu_ops(const DeviceCaps& caps) {
  OpTable table{.backend = Backend::kCpu, .caps = caps, .kernels = {}};
  fill(table.kernels);
  return table;
}

}  // namespace exode
