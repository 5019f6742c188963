// GPTQ and AutoRound (auto_gptq packing):
//   X.qweight I32 [K/8, N]       nibble k % 8 of word (k/8, n)
//   X.qzeros  I32 [K/G, N/8]     nibble n % 8 of word (g, n/8); v1 stores zero - 1
//   X.scales  float [K/G, N]     any sign
//   X.g_idx   I32 [K], optional  k/G; anything else is activation order and refused
#include <fmt/format.h>

#include <algorithm>

#include "weights/decode.h"
#include "weights/formats/formats.h"
#include "weights/quant_config.h"

namespace exode {
namespace {

// The column count of qweight tells GPTQ [K/8, N] from AWQ [K, N/8].
bool matches(const Checkpoint& checkpoint, const std::string& module) {
  const RawTensor* qweight = checkpoint.find(module + ".qweight");
  const RawTensor* scales = checkpoint.find(module + ".scales");
  return qweight != nullptr && (scales == nullptr || qweight->shape.size() != 2 ||
                                scales->shape.size() != 2 || qweight->shape[1] == scales->shape[1]);
}

struct Tensors {
  const RawTensor* qweight;
  const RawTensor* qzeros;
  const RawTensor* scales;
  const RawTensor* g_idx;  // nullptr when absent
  QuantConfig config;
};

Result<Tensors> find_tensors(const ReadRequest& r, std::vector<std::string>& used) {
  const std::string& m = r.module;
  Tensors t{};
  EXODE_ASSIGN(t.config, quant_config_for(r.checkpoint, m));
  if (r.cols % 8 != 0) {
    return unsupported(fmt::format("{}: {} inputs, not a multiple of 8", m, r.cols));
  }
  const RawTensor* scales = r.checkpoint.find(m + ".scales");
  if (scales == nullptr || scales->shape.size() != 2) {
    return invalid(fmt::format("{}: has qweight but no scales [groups, outputs]", m));
  }
  const int64_t groups = scales->shape[0], n = r.rows;
  EXODE_ASSIGN(t.scales, require_float(r.checkpoint, m + ".scales", {groups, n}));
  const RawTensor* qweight = r.checkpoint.find(m + ".qweight");
  if (qweight->shape.size() == 2 && qweight->shape[0] != r.cols / 8 &&
      (qweight->shape[0] == r.cols / 4 || qweight->shape[0] == r.cols / 16 ||
       qweight->shape[0] == r.cols / 32 * 3)) {
    return unsupported(fmt::format("{}: quantised with {} bits, only 4 bits are supported", m,
                                   qweight->shape[0] * 32 / r.cols));
  }
  EXODE_ASSIGN(t.qweight, require_tensor(r.checkpoint, {.name = m + ".qweight",
                                                        .dtype = FileDType::kI32,
                                                        .shape = {r.cols / 8, n}}));
  EXODE_ASSIGN(t.qzeros, require_tensor(r.checkpoint, {.name = m + ".qzeros",
                                                       .dtype = FileDType::kI32,
                                                       .shape = {groups, (n + 7) / 8}}));
  used.insert(used.end(), {m + ".qweight", m + ".qzeros", m + ".scales"});
  if (r.checkpoint.find(m + ".g_idx") != nullptr) {
    EXODE_ASSIGN(t.g_idx, require_tensor(
                              r.checkpoint,
                              {.name = m + ".g_idx", .dtype = FileDType::kI32, .shape = {r.cols}}));
    used.push_back(m + ".g_idx");
  }
  return t;
}

void read_tile(const Int4Codes& codes, const Int4Tile& tile) {
  const auto words = static_cast<size_t>(codes.cols) / 8;
  for (int32_t i = 0; i < tile.count; ++i) {
    const std::byte* column = codes.data + static_cast<size_t>(tile.first + i) * 4;
    const auto word = [&](size_t at) -> uint64_t {
      return at < words ? load_u32(column + at * codes.stride) : kEights;
    };
    std::array<uint64_t, 8> m;
    for (size_t r = 0; r < 8; ++r) {
      const size_t at = static_cast<size_t>(tile.block) * 16 + 2 * r;
      m[r] = word(at) | word(at + 1) << 32;
    }
    store_block(m, tile.out + static_cast<size_t>(i) * tile.step);
  }
}

std::vector<uint8_t> decode_zeros(const ReadRequest& request, const RawTensor& qzeros,
                                  bool plus_one) {
  const auto n = static_cast<size_t>(request.rows);
  const auto groups = static_cast<size_t>(qzeros.shape[0]);
  const auto row_words = static_cast<size_t>(qzeros.shape[1]);
  std::vector<uint8_t> zeros(n * groups);
  // By words: eight rows of a group lie together.
  for_ranges(request.pool, static_cast<int32_t>(row_words), 32, [&](int32_t begin, int32_t end) {
    for (auto w = static_cast<size_t>(begin); w < static_cast<size_t>(end); ++w) {
      for (size_t g = 0; g < groups; ++g) {
        const uint32_t word = load_u32(qzeros.data.data() + (g * row_words + w) * 4);
        for (size_t i = 0; i < 8 && 8 * w + i < n; ++i) {
          // After the mask: stored 15 means 16.
          const uint32_t stored = (word >> (4 * i)) & 15u;
          zeros[(8 * w + i) * groups + g] = static_cast<uint8_t>(stored + (plus_one ? 1u : 0u));
        }
      }
    }
  });
  return zeros;
}

Result<HostWeight> read(const ReadRequest& request, std::vector<std::string>& used) {
  EXODE_ASSIGN(const Tensors t, find_tensors(request, used));
  HostWeight weight;
  weight.layout = WeightLayout::kInt4Group;
  weight.rows = request.rows;
  weight.cols = request.cols;
  EXODE_ASSIGN(weight.group, int4_group(request, t.scales->shape[0], t.config.group_size));
  // Zeros cannot be read while planning, so a symmetric config is taken at its word and verified.
  weight.has_zeros = t.config.sym != true;
  if (request.mode == ReadMode::kDescribe) return weight;

  if (t.g_idx != nullptr) {
    EXODE_TRY(require_trivial_group_index(request, *t.g_idx, weight.group));
  }
  weight.scales = transposed_f32(*t.scales, request, weight.groups());
  weight.zeros = decode_zeros(request, *t.qzeros, t.config.zero_plus_one);
  if (!weight.has_zeros) {
    EXODE_TRY(require_zeros_of_8(request.module, weight.zeros));
    weight.zeros.clear();
  }
  weight.codes = {.data = t.qweight->data.data(),
                  .stride = static_cast<size_t>(request.rows) * 4,
                  .cols = request.cols,
                  .read = read_tile};
  return weight;
}

}  // namespace

const WeightFormat kGptqInt4Format{.name = "gptq_int4", .matches = matches, .read = read};

}  // namespace exode
