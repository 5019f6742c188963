#include <cstring>

#include "base/rng.h"
#include "ops/ref/access.h"
#include "ops/ref/ref.h"
#include "ops/require.h"

namespace exode::ref {

void launch(Stream&, const ops::FillRandom& op, Scratch) {
  if (op.out.dtype == DType::kU8) {
    for (int64_t i = 0; i < op.out.shape.elements(); ++i) {
      const auto word = static_cast<uint32_t>(random_bits(op.seed, static_cast<uint64_t>(i / 4)));
      op.out.data[i] = static_cast<std::byte>(word >> (8 * (i % 4)));
    }
    return;
  }
  const int64_t cols = op.out.cols();
  for (int64_t i = 0; i < op.out.shape.elements(); ++i) {
    const float value =
        op.low + (op.high - op.low) * random_unit(op.seed, static_cast<uint64_t>(i));
    store(op.out, i / cols, i % cols, value);
  }
}

void launch(Stream&, const ops::ReadWords& op, Scratch) {
  const auto words = static_cast<int64_t>(ops::tensor_bytes(op.x) / sizeof(uint32_t));
  const int64_t part = ops::read_part_words(words, op.out.rows());
  for (int32_t p = 0; p < op.out.rows(); ++p) *op.out.row<uint32_t>(p) = 0;
  for (int64_t i = 0; i < words; ++i) {
    uint32_t word;
    std::memcpy(&word, op.x.data + i * 4, sizeof(word));
    *op.out.row<uint32_t>(i / part) ^= word;
  }
}

void launch(Stream&, const ops::CopyBytes& op, Scratch) {
  std::memcpy(op.out.data, op.x.data, ops::tensor_bytes(op.x));
}

}  // namespace exode::ref
