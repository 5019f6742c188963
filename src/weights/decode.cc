#include "weights/decode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/half.h"

namespace exode {
namespace {

constexpr int32_t kGroupMultiple = 128;

Error wrong_tensor(const std::string& name, const RawTensor& tensor, std::string_view expected) {
  return invalid(fmt::format("tensor {} is {} {}, expected {}", name, file_dtype_name(tensor.dtype),
                             shape_text(tensor.shape), expected));
}

template <class T, class Convert>
void convert_all(const std::byte* data, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    out[i] = convert(value);
  }
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<const RawTensor*> require_tensor(const Checkpoint& checkpoint, const TensorSpec& spec) {
  const RawTensor* tensor = checkpoint.find(spec.name);
  if (tensor == nullptr) return not_found(fmt::format("tensor {} is missing", spec.name));
  if (tensor->dtype != spec.dtype || tensor->shape != spec.shape) {
    return wrong_tensor(spec.name, *tensor,
                        fmt::format("{} {}", file_dtype_name(spec.dtype), shape_text(spec.shape)));
  }
  return tensor;
}

Result<const RawTensor*> require_float(const Checkpoint& checkpoint, const std::string& name,
                                       const std::vector<int64_t>& shape) {
  const RawTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) return not_found(fmt::format("tensor {} is missing", name));
  if (!float_dtype(tensor->dtype) || tensor->shape != shape) {
    return wrong_tensor(name, *tensor, fmt::format("F16, BF16 or F32 {}", shape_text(shape)));
  }
  return tensor;
}

std::optional<DType> float_dtype(FileDType dtype) {
  switch (dtype) {
    case FileDType::kF32:
      return DType::kF32;
    case FileDType::kF16:
      return DType::kF16;
    case FileDType::kBF16:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

bool convert_to_f32(const RawTensor& tensor, std::span<float> out) {
  const std::byte* data = tensor.data.data();
  switch (tensor.dtype) {
    case FileDType::kF32:
      if (!out.empty()) std::memcpy(out.data(), data, out.size_bytes());
      return true;
    case FileDType::kF16:
      convert_all<uint16_t>(data, out, f16_to_float);
      return true;
    case FileDType::kBF16:
      convert_all<uint16_t>(data, out, bf16_to_float);
      return true;
    case FileDType::kF64:
      convert_all<double>(data, out, [](double v) { return static_cast<float>(v); });
      return true;
    default:
      return false;
  }
}

std::vector<float> values_f32(const RawTensor& tensor, ThreadPool* pool) {
  std::vector<float> out(static_cast<size_t>(tensor.elements()));
  constexpr int32_t kGrain = 1 << 16;
  const size_t bytes = file_dtype_bytes(tensor.dtype);
  for_ranges(pool, static_cast<int32_t>((out.size() + kGrain - 1) / kGrain), 1,
             [&](int32_t begin, int32_t end) {
               const size_t first = static_cast<size_t>(begin) * kGrain;
               const size_t last = std::min(static_cast<size_t>(end) * kGrain, out.size());
               const RawTensor part{tensor.dtype, {}, tensor.data.subspan(first * bytes)};
               EXODE_CHECK(convert_to_f32(part, std::span(out).subspan(first, last - first)),
                           "scales were checked to be floats");
             });
  return out;
}

std::vector<float> transposed_f32(const RawTensor& tensor, const ReadRequest& request,
                                  int32_t cols) {
  const std::vector<float> flat = values_f32(tensor, request.pool);
  const auto n = static_cast<size_t>(request.rows), k = static_cast<size_t>(cols);
  std::vector<float> out(n * k);
  constexpr size_t kTile = 16;  // values of a cache line
  for_ranges(request.pool, request.rows, 256, [&](int32_t begin, int32_t end) {
    for (auto tile = static_cast<size_t>(begin); tile < static_cast<size_t>(end); tile += kTile) {
      const size_t last = std::min(tile + kTile, static_cast<size_t>(end));
      for (size_t c = 0; c < k; ++c) {
        for (size_t r = tile; r < last; ++r) out[r * k + c] = flat[c * n + r];
      }
    }
  });
  return out;
}

Result<int32_t> int4_group(const ReadRequest& request, int64_t groups, int64_t stated) {
  const int64_t cols = request.cols;
  const auto refuse = [&](std::string_view why) {
    return unsupported(
        fmt::format("{}: {} ({} scales per row of {} inputs, group_size {}); "
                    "supported are 32, 64, multiples of 128 and whole rows",
                    request.module, why, groups, cols, stated));
  };
  if (groups < 1 || groups > cols) return refuse("no valid group size");
  int64_t group = 0;
  if (groups == 1) {
    group = (cols + kGroupMultiple - 1) / kGroupMultiple * kGroupMultiple;
  } else if (stated > 0 && stated <= cols && (cols + stated - 1) / stated == groups) {
    group = stated;
  } else if (cols % groups == 0) {
    group = cols / groups;
  } else {
    return refuse("the group size is not clear");
  }
  if (group != 32 && group != 64 && group % kGroupMultiple != 0) {
    return refuse(fmt::format("groups of {} inputs", group));
  }
  return static_cast<int32_t>(group);
}

Status require_trivial_group_index(const ReadRequest& request, const RawTensor& g_idx,
                                   int32_t group) {
  for (int32_t k = 0; k < request.cols; ++k) {
    const uint32_t index = load_u32(g_idx.data.data() + static_cast<size_t>(k) * 4);
    if (index != static_cast<uint32_t>(k / group)) {
      return unsupported(
          fmt::format("{}: group index {} of input {}: activation order (desc_act) "
                      "is not supported",
                      request.module, index, k));
    }
  }
  return Done{};
}

Status require_zeros_of_8(const std::string& module, std::span<const uint8_t> zeros) {
  if (std::all_of(zeros.begin(), zeros.end(), [](uint8_t z) { return z == 8; })) return Done{};
  return invalid(
      fmt::format("{}: quantization_config says symmetric, but the stored zero points "
                  "are not all 8; set \"sym\" to false in config.json",
                  module));
}

}  // namespace exode
