#include "ops/ref/ref.h"

namespace exode {
namespace {

template <class... Ops>
void fill(std::tuple<Kernel<Ops>...>& kernels) {
  ((std::get<Kernel<Ops>>(kernels).launch =
        static_cast<void (*)(Stream&, const Ops&, ref::Scratch)>(ref::launch)),
   ...);
}

}  // namespace

OpTable ref_ops(const DeviceCaps& caps) {
  OpTable table{.backend = Backend::kRef, .caps = caps, .kernels = {}};
  fill(table.kernels);
  return table;
}

}  // namespace exode
