// A weight matrix on its way from a checkpoint format to a kernel layout: formats decode into
// this, packers (weights/pack.h) turn it into the layouts of tensor/weight.h. A description
// (plan mode) has empty vectors; only its first fields count.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "tensor/weight.h"
#include "weights/checkpoint.h"

namespace exode {

// Some rows of one block of 128 inputs, as the packed layout of kInt4Group has them: row
// `first + i` is 64 bytes at out + i · step. Inputs past the end get code 8.
struct Int4Tile {
  int32_t first = 0, count = 0, block = 0;
  std::byte* out = nullptr;
  size_t step = 0;
};

// Codes of an int4 module as they lie in the mapped checkpoint, which must outlive this.
struct Int4Codes {
  const std::byte* data = nullptr;
  size_t stride = 0;  // bytes of one row of the tensor
  int32_t cols = 0;
  void (*read)(const Int4Codes&, const Int4Tile&) = nullptr;
};

struct HostWeight {
  WeightLayout layout = WeightLayout::kDense;
  DType dtype = DType::kF32;  // of dense codes
  int32_t rows = 0, cols = 0, group = 0;
  bool has_zeros = false;
  // kDense: [rows, cols] of dtype; kFp8Block: e4m3 codes. Points into the mapped checkpoint, which
  // must outlive the HostWeight; any alignment.
  std::span<const std::byte> dense = {};
  Int4Codes codes = {};             // kInt4Group
  std::vector<float> scales = {};   // as tensor/weight.h with strip 1
  std::vector<uint8_t> zeros = {};  // likewise, when has_zeros

  int32_t groups() const { return group == 0 ? 0 : (cols + group - 1) / group; }  // per row
};

enum class ReadMode : uint8_t {
  kDescribe,  // checks names, shapes and dtypes; reads no tensor data
  kDecode,
};

struct ReadRequest {
  const Checkpoint& checkpoint;
  const std::string& module;  // the name without ".weight"
  int32_t rows = 0, cols = 0;
  ReadMode mode = ReadMode::kDescribe;
  ThreadPool* pool = nullptr;  // optional, for decoding
};

// How one checkpoint format stores a linear module.
struct WeightFormat {
  std::string_view name;
  bool (*matches)(const Checkpoint&, const std::string& module);
  // `used` gets the names of the tensors that belong to the module.
  Result<HostWeight> (*read)(const ReadRequest& request, std::vector<std::string>& used);
};

std::span<const WeightFormat> weight_formats();  // first match wins
// The format of the module; nullptr when the checkpoint has no such module.
const WeightFormat* find_format(const Checkpoint& checkpoint, const std::string& module);

// Rows [first, first + count) as f32 [count, cols].
std::vector<float> dequantize_rows(const HostWeight& weight, int32_t first, int32_t count);
std::vector<float> dequantize(const HostWeight& weight);  // all rows

}  // namespace exode
