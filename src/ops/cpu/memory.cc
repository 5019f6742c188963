// Bulk memory on the CPU: every thread takes runs of a megabyte.
#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "base/rng.h"
#include "ops/cpu/cpu.h"
#include "ops/require.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/memory.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace exode::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

uint32_t xor_words(const uint32_t* data, int64_t words) {
  const hn::CappedTag<uint32_t, 16> d;
  constexpr int64_t kLine = 16;
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLine <= words; i += kLine) {
    hwy::Prefetch(data + i + 64 * kLine);
    for (int64_t lane = 0; lane < kLine; lane += static_cast<int64_t>(hn::Lanes(d))) {
      sum = hn::Xor(sum, hn::LoadU(d, data + i + lane));
    }
  }
  uint32_t lanes[kLine];
  hn::StoreU(sum, d, lanes);
  uint32_t total = 0;
  for (size_t lane = 0; lane < hn::Lanes(d); ++lane) total ^= lanes[lane];
  for (; i < words; ++i) total ^= data[i];
  return total;
}

}  // namespace exode::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace exode::cpu {
namespace {

HWY_EXPORT(xor_words);

constexpr int64_t kRun = 1 << 18;  // elements

template <class Body>
void for_runs(Stream& stream, int64_t count, const Body& body) {
  const auto runs = static_cast<int32_t>((count + kRun - 1) / kRun);
  stream.pool().parallel_for(runs, 1, [&](int32_t begin, int32_t end) {
    body(begin * kRun, std::min(end * kRun, count));
  });
}

}  // namespace

void launch(Stream& stream, const ops::FillRandom& op, Scratch) {
  const int64_t count = op.out.shape.elements();
  std::byte* out = op.out.data;
  if (op.out.dtype == DType::kU8) {
    for_runs(stream, (count + 3) / 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto word = static_cast<uint32_t>(random_bits(op.seed, static_cast<uint64_t>(i)));
        std::memcpy(out + i * 4, &word, static_cast<size_t>(std::min<int64_t>(4, count - i * 4)));
      }
    });
    return;
  }
  for_runs(stream, count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float value =
          op.low + (op.high - op.low) * random_unit(op.seed, static_cast<uint64_t>(i));
      if (op.out.dtype == DType::kF32) {
        reinterpret_cast<float*>(out)[i] = value;
      } else {
        reinterpret_cast<uint16_t*>(out)[i] =
            op.out.dtype == DType::kBF16 ? float_to_bf16(value) : float_to_f16(value);
      }
    }
  });
}

void launch(Stream& stream, const ops::ReadWords& op, Scratch) {
  const auto words = static_cast<int64_t>(ops::tensor_bytes(op.x) / sizeof(uint32_t));
  const int64_t part = ops::read_part_words(words, op.out.rows());
  stream.pool().parallel_for(op.out.rows(), 1, [&](int32_t begin, int32_t end) {
    for (int32_t p = begin; p < end; ++p) {
      const int64_t first = std::min(p * part, words);
      *op.out.row<uint32_t>(p) = HWY_DYNAMIC_DISPATCH(xor_words)(
          reinterpret_cast<const uint32_t*>(op.x.data) + first, std::min(part, words - first));
    }
  });
}

void launch(Stream& stream, const ops::CopyBytes& op, Scratch) {
  for_runs(stream, static_cast<int64_t>(ops::tensor_bytes(op.x)), [&](int64_t begin, int64_t end) {
    std::memcpy(op.out.data + begin, op.x.data + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace exode::cpu
#endif  // HWY_ONCE
