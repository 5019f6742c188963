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

struct HostWeight {
  WeightLayout layout = WeightLayout::kDense;
  DType dtype = DType::kF32;  // of dense codes
  int32_t rows = 0, cols = 0, group = 0;
  bool has_zeros = false;
  // kDense: [rows, cols] of dtype; kFp8Block: e4m3 codes. Points into the mapped checkpoint, which
  // must outlive the HostWeight; any alignment.
  std::span<const std::byte> dense = {};
  std::vector<uint8_t> codes = {};  // kInt4Group: one code 0…15 per byte, [rows, cols]
  std::vector<float> scales = {};   // as tensor/weight.h
  std::vector<uint8_t> zeros = {};  // as tensor/weight.h, when has_zeros

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
  ThreadPool* pool = nullptr;               // optional, for decoding
  std::vector<uint8_t>* scratch = nullptr;  // optional, moved into HostWeight::codes for reuse
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
