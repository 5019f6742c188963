// AWQ "gemm" packing, also AutoRound's auto_awq:
//   X.qweight I32 [K, N/8]    nibble i of word (k, j) is output 8j + {0,2,4,6,1,3,5,7}[i]
//   X.qzeros  I32 [K/G, N/8]  the same order; stored as it is, 0…15
//   X.scales  float [K/G, N]
#include <fmt/format.h>

#include <array>

#include "weights/decode.h"
#include "weights/formats/formats.h"
#include "weights/quant_config.h"

namespace exode {
namespace {

constexpr std::array<size_t, 8> kOrder{0, 2, 4, 6, 1, 3, 5, 7};

// GPTQ comes before in the table and takes the qweight [K/8, N].
bool matches(const Checkpoint& checkpoint, const std::string& module) {
  return checkpoint.find(module + ".qweight") != nullptr;
}

struct Tensors {
  const RawTensor* qweight;
  const RawTensor* qzeros;
  const RawTensor* scales;
};

Result<Tensors> find_tensors(const ReadRequest& r, std::vector<std::string>& used) {
  const std::string& m = r.module;
  if (r.rows % 8 != 0) {
    return unsupported(fmt::format("{}: {} outputs, not a multiple of 8", m, r.rows));
  }
  const RawTensor* scales = r.checkpoint.find(m + ".scales");
  if (scales == nullptr || scales->shape.size() != 2) {
    return invalid(fmt::format("{}: has qweight but no scales [groups, outputs]", m));
  }
  const int64_t groups = scales->shape[0], words = r.rows / 8;
  Tensors t{};
  EXODE_ASSIGN(t.scales, require_float(r.checkpoint, m + ".scales", {groups, r.rows}));
  EXODE_ASSIGN(t.qweight, require_tensor(r.checkpoint, {.name = m + ".qweight",
                                                        .dtype = FileDType::kI32,
                                                        .shape = {r.cols, words}}));
  EXODE_ASSIGN(t.qzeros, require_tensor(r.checkpoint, {.name = m + ".qzeros",
                                                       .dtype = FileDType::kI32,
                                                       .shape = {groups, words}}));
  used.insert(used.end(), {m + ".qweight", m + ".qzeros", m + ".scales"});
  return t;
}

// Transposes packed [inner, rows/8] into bytes [rows, inner].
std::vector<uint8_t> unpack(const RawTensor& packed, ThreadPool* pool) {
  const auto inner = static_cast<size_t>(packed.shape[0]);
  const auto words = static_cast<size_t>(packed.shape[1]);
  std::vector<uint8_t> out(words * 8 * inner);
  const std::byte* data = packed.data.data();
  for_ranges(pool, static_cast<int32_t>(words), 8, [&](int32_t begin, int32_t end) {
    for (auto j = static_cast<size_t>(begin); j < static_cast<size_t>(end); ++j) {
      for (size_t k = 0; k < inner; ++k) {
        const uint64_t bytes = spread_nibbles(load_u32(data + (k * words + j) * 4));
        for (size_t i = 0; i < 8; ++i) {
          out[(8 * j + kOrder[i]) * inner + k] = static_cast<uint8_t>(bytes >> (8 * i));
        }
      }
    }
  });
  return out;
}

Result<HostWeight> read(const ReadRequest& request, std::vector<std::string>& used) {
  EXODE_ASSIGN(const QuantConfig config, quant_config_for(request.checkpoint, request.module));
  EXODE_ASSIGN(const Tensors t, find_tensors(request, used));
  HostWeight weight;
  weight.layout = WeightLayout::kInt4Group;
  weight.rows = request.rows;
  weight.cols = request.cols;
  EXODE_ASSIGN(weight.group, int4_group(request, t.scales->shape[0], config.group_size));
  weight.has_zeros = config.sym != true;
  if (request.mode == ReadMode::kDescribe) return weight;

  weight.scales = transposed_f32(*t.scales, request.rows, weight.groups());
  weight.zeros = unpack(*t.qzeros, nullptr);
  if (!weight.has_zeros) {
    EXODE_TRY(require_zeros_of_8(request.module, weight.zeros));
    weight.zeros.clear();
  }
  weight.codes = unpack(*t.qweight, request.pool);
  return weight;
}

}  // namespace

const WeightFormat kAwqInt4Format{.name = "awq_int4", .matches = matches, .read = read};

}  // namespace exode
