// FP8 with square blocks:
//   X.weight           F8_E4M3 [N, K]
//   X.weight_scale_inv float [ceil(N/128), ceil(K/128)]   multiplies, despite its name
// Activations are not quantised here, so an input_scale would be unused and is refused with the
// per-tensor and per-channel variants that carry it.
#include <fmt/format.h>

#include "weights/decode.h"
#include "weights/formats/formats.h"
#include "weights/quant_config.h"

namespace exode {
namespace {

constexpr int32_t kBlock = 128;

bool matches(const Checkpoint& checkpoint, const std::string& module) {
  const RawTensor* weight = checkpoint.find(module + ".weight");
  return weight != nullptr && weight->dtype == FileDType::kF8E4M3;
}

Result<HostWeight> read(const ReadRequest& request, std::vector<std::string>& used) {
  const std::string& m = request.module;
  EXODE_TRY(quant_config_for(request.checkpoint, m));
  const std::string scale_name = m + ".weight_scale_inv";
  if (request.checkpoint.find(scale_name) == nullptr) {
    const bool other = request.checkpoint.find(m + ".weight_scale") != nullptr;
    return unsupported(
        fmt::format("{}: FP8 weights {}; supported is weight_scale_inv with blocks "
                    "of 128×128",
                    m, other ? "with weight_scale (per tensor or channel)" : "without scales"));
  }
  const int64_t n = request.rows, k = request.cols;
  EXODE_ASSIGN(
      const RawTensor* codes,
      require_tensor(request.checkpoint,
                     {.name = m + ".weight", .dtype = FileDType::kF8E4M3, .shape = {n, k}}));
  EXODE_ASSIGN(const RawTensor* scales,
               require_float(request.checkpoint, scale_name,
                             {(n + kBlock - 1) / kBlock, (k + kBlock - 1) / kBlock}));
  used.insert(used.end(), {m + ".weight", scale_name});
  HostWeight weight;
  weight.layout = WeightLayout::kFp8Block;
  weight.dtype = DType::kFp8E4M3;
  weight.rows = request.rows;
  weight.cols = request.cols;
  weight.group = kBlock;
  if (request.mode == ReadMode::kDescribe) return weight;
  weight.dense = codes->data;
  weight.scales.resize(static_cast<size_t>(scales->elements()));
  EXODE_CHECK(convert_to_f32(*scales, weight.scales), "scales were checked to be floats");
  return weight;
}

}  // namespace

const WeightFormat kFp8BlockFormat{.name = "fp8_block", .matches = matches, .read = read};

}  // namespace exode
