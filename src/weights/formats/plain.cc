// X.weight [N, K] in F32, F16 or BF16. Last in the table: every other format is more specific.
#include <fmt/format.h>

#include "weights/decode.h"
#include "weights/formats/formats.h"

namespace exode {
namespace {

bool matches(const Checkpoint& checkpoint, const std::string& module) {
  return checkpoint.find(module + ".weight") != nullptr;
}

Result<HostWeight> read(const ReadRequest& request, std::vector<std::string>& used) {
  const std::string name = request.module + ".weight";
  const RawTensor& tensor = *request.checkpoint.find(name);
  const auto dtype = float_dtype(tensor.dtype);
  if (!dtype) {
    return unsupported(
        fmt::format("tensor {} is {}, which is none of the supported weight formats "
                    "(BF16, F16, F32, int4 of AutoRound, GPTQ, AWQ or "
                    "compressed-tensors, FP8 with 128×128 blocks)",
                    name, file_dtype_name(tensor.dtype)));
  }
  EXODE_TRY(require_float(request.checkpoint, name, {request.rows, request.cols}));
  used.push_back(name);
  HostWeight weight;
  weight.dtype = *dtype;
  weight.rows = request.rows;
  weight.cols = request.cols;
  if (request.mode == ReadMode::kDecode) weight.dense = tensor.data;
  return weight;
}

}  // namespace

const WeightFormat kPlainFormat{.name = "plain", .matches = matches, .read = read};

}  // namespace exode
