// compressed-tensors, format pack-quantized, 4 bits:
//   X.weight_packed     I32 [N, ceil(K/8)]       nibble k % 8 of word (n, k/8)
//   X.weight_scale      float [N, K/G] or [N, 1]
//   X.weight_zero_point I32 [ceil(N/8), K/G]     optional; nibble n % 8 of word (n/8, g)
//   X.weight_shape      I64 [2]                  [N, K]
//   X.weight_g_idx      I32 [K], optional        k/G; anything else is refused
// Codes and zeros are both stored with 8 added, so the difference needs no correction.
#include <fmt/format.h>

#include <algorithm>

#include "weights/decode.h"
#include "weights/formats/formats.h"
#include "weights/quant_config.h"

namespace exode {
namespace {

bool matches(const Checkpoint& checkpoint, const std::string& module) {
  return checkpoint.find(module + ".weight_packed") != nullptr;
}

struct Tensors {
  const RawTensor* packed;
  const RawTensor* scale;
  const RawTensor* shape;       // nullptr when absent
  const RawTensor* zero_point;  // nullptr when absent
  const RawTensor* g_idx;       // nullptr when absent
};

// Names what else is stored as weight_packed.
Status refuse_relatives(const ReadRequest& r) {
  const RawTensor& packed = *r.checkpoint.find(r.module + ".weight_packed");
  if (packed.dtype == FileDType::kU8) {
    return unsupported(
        fmt::format("{}: weight_packed is U8 (NVFP4 or MXFP4), which is not "
                    "supported; use an int4 checkpoint",
                    r.module));
  }
  if (packed.shape.size() == 2 && packed.shape[0] == r.rows && r.cols >= 8 &&
      (packed.shape[1] == (r.cols + 3) / 4 || packed.shape[1] == (r.cols + 15) / 16)) {
    return unsupported(fmt::format("{}: quantised with {} bits, only 4 bits are supported",
                                   r.module, packed.shape[1] * 32 / r.cols));
  }
  return Done{};
}

// Sets `tensor` and lists its name when the checkpoint has it with that dtype and shape; leaves
// nullptr when it is absent.
Status find_optional(const Checkpoint& checkpoint, const TensorSpec& spec, const RawTensor*& tensor,
                     std::vector<std::string>& used) {
  if (checkpoint.find(spec.name) == nullptr) return Done{};
  EXODE_ASSIGN(tensor, require_tensor(checkpoint, spec));
  used.push_back(spec.name);
  return Done{};
}

Result<Tensors> find_tensors(const ReadRequest& r, std::vector<std::string>& used) {
  const std::string& m = r.module;
  EXODE_TRY(refuse_relatives(r));
  const RawTensor* scale = r.checkpoint.find(m + ".weight_scale");
  if (scale == nullptr || scale->shape.size() != 2) {
    return invalid(fmt::format("{}: has weight_packed but no weight_scale [outputs, groups]", m));
  }
  const int64_t groups = scale->shape[1], n = r.rows, k = r.cols;
  Tensors t{};
  EXODE_ASSIGN(t.scale, require_float(r.checkpoint, m + ".weight_scale", {n, groups}));
  EXODE_ASSIGN(t.packed, require_tensor(r.checkpoint, {.name = m + ".weight_packed",
                                                       .dtype = FileDType::kI32,
                                                       .shape = {n, (k + 7) / 8}}));
  used.insert(used.end(), {m + ".weight_packed", m + ".weight_scale"});
  EXODE_TRY(
      find_optional(r.checkpoint, {m + ".weight_shape", FileDType::kI64, {2}}, t.shape, used));
  EXODE_TRY(find_optional(r.checkpoint,
                          {m + ".weight_zero_point", FileDType::kI32, {(n + 7) / 8, groups}},
                          t.zero_point, used));
  EXODE_TRY(
      find_optional(r.checkpoint, {m + ".weight_g_idx", FileDType::kI32, {k}}, t.g_idx, used));
  return t;
}

Status check_shape(const ReadRequest& r, const RawTensor& shape) {
  int64_t stored[2];
  std::memcpy(stored, shape.data.data(), sizeof(stored));
  if (stored[0] == r.rows && stored[1] == r.cols) return Done{};
  return invalid(fmt::format("{}: weight_shape says [{}, {}], expected [{}, {}]", r.module,
                             stored[0], stored[1], r.rows, r.cols));
}

// Word `at` of a row, with code 8 past the end.
uint64_t word_at(const std::byte* row, size_t at, size_t cols) {
  if (at * 8 >= cols) return kEights;
  const uint32_t word = load_u32(row + at * 4);
  if (at * 8 + 8 <= cols) return word;
  const uint32_t valid = (1u << (4 * (cols % 8))) - 1;
  return (word & valid) | (kEights & ~valid);
}

void read_tile(const Int4Codes& codes, const Int4Tile& tile) {
  const auto cols = static_cast<size_t>(codes.cols);
  const size_t first = static_cast<size_t>(tile.block) * 16;
  const bool is_whole = (first + 16) * 8 <= cols;
  for (int32_t i = 0; i < tile.count; ++i) {
    const std::byte* row = codes.data + static_cast<size_t>(tile.first + i) * codes.stride;
    std::array<uint64_t, 8> m;
    for (size_t r = 0; r < 8; ++r) {
      const size_t at = first + 2 * r;
      m[r] = is_whole ? load_u64(row + at * 4)
                      : word_at(row, at, cols) | word_at(row, at + 1, cols) << 32;
    }
    store_block(m, tile.out + static_cast<size_t>(i) * tile.step);
  }
}

std::vector<uint8_t> decode_zeros(const RawTensor& zero_point, int32_t rows) {
  const auto n = static_cast<size_t>(rows), groups = static_cast<size_t>(zero_point.shape[1]);
  std::vector<uint8_t> zeros(n * groups);
  for (size_t row = 0; row < n; ++row) {
    for (size_t g = 0; g < groups; ++g) {
      const uint32_t word = load_u32(zero_point.data.data() + (row / 8 * groups + g) * 4);
      zeros[row * groups + g] = static_cast<uint8_t>((word >> (4 * (row % 8))) & 15u);
    }
  }
  return zeros;
}

Result<HostWeight> read(const ReadRequest& request, std::vector<std::string>& used) {
  EXODE_ASSIGN(const QuantConfig config, quant_config_for(request.checkpoint, request.module));
  EXODE_ASSIGN(const Tensors t, find_tensors(request, used));
  HostWeight weight;
  weight.layout = WeightLayout::kInt4Group;
  weight.rows = request.rows;
  weight.cols = request.cols;
  EXODE_ASSIGN(weight.group, int4_group(request, t.scale->shape[1], config.group_size));
  weight.has_zeros = t.zero_point != nullptr;
  if (request.mode == ReadMode::kDescribe) return weight;

  if (t.shape != nullptr) {
    EXODE_TRY(check_shape(request, *t.shape));
  }
  if (t.g_idx != nullptr) {
    EXODE_TRY(require_trivial_group_index(request, *t.g_idx, weight.group));
  }
  weight.scales = values_f32(*t.scale, request.pool);
  if (t.zero_point != nullptr) weight.zeros = decode_zeros(*t.zero_point, request.rows);
  weight.codes = {.data = t.packed->data.data(),
                  .stride = static_cast<size_t>(t.packed->shape[1]) * 4,
                  .cols = request.cols,
                  .read = read_tile};
  return weight;
}

}  // namespace

const WeightFormat kCtInt4Format{.name = "ct_int4", .matches = matches, .read = read};

}  // namespace exode
