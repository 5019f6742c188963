#include "kv/formats.h"
#include "kv/formats/dense/layout.h"
#include "ops/cpu/cpu.h"
#include "ops/ref/ref.h"

namespace exode {
namespace {

template <DType kType>
size_t block_bytes(const KvGeometry& g) {
  return size_t{2} * static_cast<size_t>(g.heads) * kKvBlock * static_cast<size_t>(g.head_dim) *
         dtype_bytes(kType);
}

template <DType kType>
KvFormat make_format() {
  using Scratch = std::span<std::byte>;
  KvFormat f;
  f.name = dtype_name(kType);
  f.block_bytes = block_bytes<kType>;
  const auto ref = static_cast<size_t>(Backend::kRef), cpu = static_cast<size_t>(Backend::kCpu);
  f.append[ref].launch = [](Stream& s, const kv::KvAppend& op, Scratch) {
    kv_dense::ref_append(s, op, kType);
  };
  f.rotate_append[ref].launch = [](Stream& s, const kv::RotateAppend& op, Scratch scratch) {
    exode::ref::launch(s, op.rotate, scratch);
    kv_dense::ref_append(s, kv::append_of(op), kType);
  };
  f.rotate_append[cpu].launch = [](Stream& s, const kv::RotateAppend& op, Scratch scratch) {
    exode::cpu::launch(s, op.rotate, scratch);
    kv_dense::cpu_append(s, kv::append_of(op), kType);
  };
  f.attend[ref].launch = [](Stream& s, const kv::Attend& op, Scratch) {
    kv_dense::ref_attend(s, op, kType);
  };
  f.append[cpu].launch = [](Stream& s, const kv::KvAppend& op, Scratch) {
    kv_dense::cpu_append(s, op, kType);
  };
  f.attend[cpu].launch = [](Stream& s, const kv::Attend& op, Scratch) {
    kv_dense::cpu_attend(s, op, kType);
  };
  kv_dense::add_cuda_kernels(f, kType);
  return f;
}

}  // namespace

const KvFormat& kv_format_f32() {
  static const KvFormat format = make_format<DType::kF32>();
  return format;
}

const KvFormat& kv_format_bf16() {
  static const KvFormat format = make_format<DType::kBF16>();
  return format;
}

const KvFormat& kv_format_f16() {
  static const KvFormat format = make_format<DType::kF16>();
  return format;
}

}  // namespace exode
