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

// Byte c of word r becomes byte r of word c.
void transpose_8x8(std::array<uint64_t, 8>& m) {
  const auto swap = [&m](size_t distance, int shift, uint64_t mask) {
    for (size_t r = 0; r < 8; ++r) {
      if ((r & distance) != 0) continue;
      const uint64_t t = ((m[r] >> shift) ^ m[r + distance]) & mask;
      m[r + distance] ^= t;
      m[r] ^= t << shift;
    }
  };
  swap(4, 32, 0x00000000ffffffffu);
  swap(2, 16, 0x0000ffff0000ffffu);
  swap(1, 8, 0x00ff00ff00ff00ffu);
}

// Inputs [k, k + count) of word column j, count ≤ 8.
void unpack_tile(const RawTensor& packed, size_t j, size_t k, std::vector<uint8_t>& out) {
  const auto inner = static_cast<size_t>(packed.shape[0]);
  const auto words = static_cast<size_t>(packed.shape[1]);
  const size_t count = std::min<size_t>(8, inner - k);
  std::array<uint64_t, 8> tile{};
  for (size_t i = 0; i < count; ++i) {
    tile[i] = spread_nibbles(load_u32(packed.data.data() + ((k + i) * words + j) * 4));
  }
  transpose_8x8(tile);
  for (size_t i = 0; i < 8; ++i) {
    std::memcpy(out.data() + (8 * j + kOrder[i]) * inner + k, &tile[i], count);
  }
}

// Transposes packed [inner, rows/8] into bytes [rows, inner], which `out` has room for.
void unpack(const RawTensor& packed, ThreadPool* pool, std::vector<uint8_t>& out) {
  constexpr int32_t kTile = 16;      // words of one cache line
  constexpr size_t kInnerTile = 64;  // bytes of one cache line of the output
  const auto inner = static_cast<size_t>(packed.shape[0]);
  const auto words = static_cast<size_t>(packed.shape[1]);
  const auto tiles = static_cast<int32_t>((words + kTile - 1) / kTile);
  for_ranges(pool, tiles, 1, [&](int32_t begin, int32_t end) {
    const size_t first = static_cast<size_t>(begin) * kTile;
    const size_t last = std::min(static_cast<size_t>(end) * kTile, words);
    for (size_t tile = first; tile < last; tile += kTile) {
      for (size_t k = 0; k < inner; k += kInnerTile) {
        for (size_t j = tile; j < std::min(tile + kTile, last); ++j) {
          for (size_t i = k; i < std::min(k + kInnerTile, inner); i += 8) {
            unpack_tile(packed, j, i, out);
          }
        }
      }
    }
  });
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
  weight.zeros.resize(static_cast<size_t>(request.rows) * static_cast<size_t>(weight.groups()));
  unpack(*t.qzeros, nullptr, weight.zeros);
  if (!weight.has_zeros) {
    EXODE_TRY(require_zeros_of_8(request.module, weight.zeros));
    weight.zeros.clear();
  }
  weight.codes = take_codes(request);
  unpack(*t.qweight, request.pool, weight.codes);
  return weight;
}

}  // namespace

const WeightFormat kAwqInt4Format{.name = "awq_int4", .matches = matches, .read = read};

}  // namespace exode
