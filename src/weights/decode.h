// Shared parts of the checkpoint formats: shape checks with messages, scales, nibbles.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "weights/checkpoint.h"
#include "weights/host_weight.h"

namespace exode {

// Runs body(begin, end) over [0, count), on the pool when there is one.
template <class Body>
void for_ranges(ThreadPool* pool, int32_t count, int32_t grain, Body&& body) {
  if (pool != nullptr) {
    pool->parallel_for(count, grain, body);
  } else if (count > 0) {
    body(0, count);
  }
}

inline uint32_t load_u32(const std::byte* data) {
  uint32_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

inline uint64_t load_u64(const std::byte* data) {
  uint64_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

constexpr uint32_t kEights = 0x88888888u;  // codes of inputs past the end

// Nibble c of either half of word r becomes nibble r of that half of word c.
inline void transpose_nibbles(std::array<uint64_t, 8>& m) {
  const auto swap = [&m](size_t distance, int shift, uint64_t mask) {
#pragma GCC unroll 8
    for (size_t r = 0; r < 8; ++r) {
      if ((r & distance) != 0) continue;
      const uint64_t t = ((m[r] >> shift) ^ m[r + distance]) & mask;
      m[r + distance] ^= t;
      m[r] ^= t << shift;
    }
  };
  swap(4, 16, 0x0000ffff0000ffffu);
  swap(2, 8, 0x00ff00ff00ff00ffu);
  swap(1, 4, 0x0f0f0f0f0f0f0f0fu);
}

// A block of which word r of `m` holds inputs 16 r … 16 r + 7 and 16 r + 8 … 16 r + 15.
inline void store_block(std::array<uint64_t, 8> m, std::byte* out) {
  transpose_nibbles(m);
  std::array<uint32_t, 16> words;
#pragma GCC unroll 8
  for (size_t i = 0; i < 8; ++i) {
    words[i] = static_cast<uint32_t>(m[i]);
    words[8 + i] = static_cast<uint32_t>(m[i] >> 32);
  }
  std::memcpy(out, words.data(), sizeof(words));
}

std::string shape_text(const std::vector<int64_t>& shape);  // "[512, 256]"

// The tensor with exactly this dtype and shape, or an error naming it.
struct TensorSpec {
  std::string name;
  FileDType dtype;
  std::vector<int64_t> shape;
};
Result<const RawTensor*> require_tensor(const Checkpoint& checkpoint, const TensorSpec& spec);
// As above for scales: any float dtype of at most 32 bits.
Result<const RawTensor*> require_float(const Checkpoint& checkpoint, const std::string& name,
                                       const std::vector<int64_t>& shape);

// F32, F16, BF16 or F64 to f32; false for other dtypes. `out` has elements() places.
bool convert_to_f32(const RawTensor& tensor, std::span<float> out);
std::optional<DType> float_dtype(FileDType dtype);  // F32, F16 and BF16

// [rows, cols] f32 of the transposed float tensor [cols, rows].
std::vector<float> transposed_f32(const RawTensor& tensor, const ReadRequest& request,
                                  int32_t cols);
// The tensor's values as f32.
std::vector<float> values_f32(const RawTensor& tensor, ThreadPool* pool);

// Inputs per scale of a module with `groups` scales per row of `cols` inputs: the stated size when
// it fits, else what the shapes imply. Refuses sizes the kernels do not have. A single group is
// widened to a multiple of 128, which changes nothing.
Result<int32_t> int4_group(const ReadRequest& request, int64_t groups, int64_t stated);

// Accepts g_idx[k] = k / group only: activation order would permute the inputs of every layer.
Status require_trivial_group_index(const ReadRequest& request, const RawTensor& g_idx,
                                   int32_t group);

// For symmetric modules, which get no zeros: refuses stored zeros other than 8.
Status require_zeros_of_8(const std::string& module, std::span<const uint8_t> zeros);

}  // namespace exode
