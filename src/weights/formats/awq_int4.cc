// AWQ "gemm" packing, also AutoRound's auto_awq:
//   X.qweight I32 [K, N/8]    nibble i of word (k, j) is output 8j + {0,2,4,6,1,3,5,7}[i]
//   X.qzeros  I32 [K/G, N/8]  the same order; stored as it is, 0…15
//   X.scales  float [K/G, N]
#include <fmt/format.h>

#include <algorithm>
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

// Eight outputs share the words of a block: their codes of inputs i and i + 8 of every 16 turn into
// words i and i + 8 of each of them.
void read_column(const Int4Codes& codes, size_t column, int32_t block,
                 const std::array<std::byte*, 8>& rows) {
  const std::byte* data = codes.data + column * 4;
  const size_t first = static_cast<size_t>(block) * kInt4Block;
  const auto cols = static_cast<size_t>(codes.cols);
  const auto word = [&](size_t k) -> uint64_t {
    return k < cols ? load_u32(data + k * codes.stride) : kEights;
  };
  for (size_t i = 0; i < 8; ++i) {
    std::array<uint64_t, 8> m;
    for (size_t r = 0; r < 8; ++r) {
      const size_t k = first + 16 * r + i;
      m[r] = word(k) | word(k + 8) << 32;
    }
    transpose_nibbles(m);
    for (size_t n = 0; n < 8; ++n) {
      std::byte* row = rows[kOrder[n]];
      if (row == nullptr) continue;
      const auto low = static_cast<uint32_t>(m[n]), high = static_cast<uint32_t>(m[n] >> 32);
      std::memcpy(row + i * 4, &low, sizeof(low));
      std::memcpy(row + (i + 8) * 4, &high, sizeof(high));
    }
  }
}

void read_tile(const Int4Codes& codes, const Int4Tile& tile) {
  const int32_t last = tile.first + tile.count;
  for (int32_t column = tile.first / 8; column * 8 < last; ++column) {
    std::array<std::byte*, 8> rows{};
    for (int32_t n = 0; n < 8; ++n) {
      const int32_t row = column * 8 + n;
      if (row < tile.first || row >= last) continue;
      rows[static_cast<size_t>(n)] = tile.out + static_cast<size_t>(row - tile.first) * tile.step;
    }
    read_column(codes, static_cast<size_t>(column), tile.block, rows);
  }
}

std::vector<uint8_t> decode_zeros(const ReadRequest& request, const RawTensor& qzeros) {
  const auto groups = static_cast<size_t>(qzeros.shape[0]);
  const auto words = static_cast<size_t>(qzeros.shape[1]);
  std::vector<uint8_t> zeros(static_cast<size_t>(request.rows) * groups);
  for_ranges(request.pool, static_cast<int32_t>(words), 32, [&](int32_t begin, int32_t end) {
    for (auto w = static_cast<size_t>(begin); w < static_cast<size_t>(end); ++w) {
      for (size_t g = 0; g < groups; ++g) {
        const uint32_t word = load_u32(qzeros.data.data() + (g * words + w) * 4);
        for (size_t i = 0; i < 8; ++i) {
          zeros[(8 * w + kOrder[i]) * groups + g] = static_cast<uint8_t>((word >> (4 * i)) & 15u);
        }
      }
    }
  });
  return zeros;
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

  weight.scales = transposed_f32(*t.scales, request, weight.groups());
  weight.zeros = decode_zeros(request, *t.qzeros);
  if (!weight.has_zeros) {
    EXODE_TRY(require_zeros_of_8(request.module, weight.zeros));
    weight.zeros.clear();
  }
  weight.codes = {.data = t.qweight->data.data(),
                  .stride = static_cast<size_t>(t.qweight->shape[1]) * 4,
                  .cols = request.cols,
                  .read = read_tile};
  return weight;
}

}  // namespace

const WeightFormat kAwqInt4Format{.name = "awq_int4", .matches = matches, .read = read};

}  // namespace exode
