// Shared parts of the checkpoint formats: shape checks with messages, scales, nibbles.
#pragma once

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

// Nibble i of the word (LSB first) becomes byte i.
inline uint64_t spread_nibbles(uint32_t word) {
  uint64_t x = word;
  x = (x | (x << 16)) & 0x0000ffff0000ffffu;
  x = (x | (x << 8)) & 0x00ff00ff00ff00ffu;
  return (x | (x << 4)) & 0x0f0f0f0f0f0f0f0fu;
}

// Space for one code per byte. Fresh pages cost as much as decoding, so the request's scratch
// buffer is used again when there is one.
inline std::vector<uint8_t> take_codes(const ReadRequest& request) {
  std::vector<uint8_t> codes;
  if (request.scratch != nullptr) codes = std::move(*request.scratch);
  codes.resize(static_cast<size_t>(request.rows) * static_cast<size_t>(request.cols));
  return codes;
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

// [rows, cols] f32 of a transposed float tensor [cols, rows].
std::vector<float> transposed_f32(const RawTensor& tensor, int32_t rows, int32_t cols);

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
