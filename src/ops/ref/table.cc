#include "ops/ref/ref.h"

namespace exode {
namespace {

template <class Op>
concept HasScratch = requires(const DeviceCaps& caps, const Op& op) {
  ref::scratch_bytes(caps, op);
};

template <class Op>
Kernel<Op> kernel() {
  Kernel<Op> k;
  k.launch = ref::launch;
  if constexpr (HasScratch<Op>) k.scratch_bytes = ref::scratch_bytes;
  return k;
}

template <class... Ops>
void fill(std::tuple<Kernel<Ops>...>& kernels) {
  ((std::get<Kernel<Ops>>(kernels) = kernel<Ops>()), ...);
}

}  // namespace

OpTable ref_ops(const DeviceCaps& caps) {
  OpTable table{.backend = Backend::kRef, .caps = caps, .kernels = {}};
  fill(table.kernels);
  return table;
}

}  // namespace exode
