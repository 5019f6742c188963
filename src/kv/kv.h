// The KV cache as kernels see it, the ops on it, and what a cache format must provide.
//
// A pool holds blocks of kKvBlock tokens for all layers of one geometry. In each block and layer
// a format lays out K and V of its tokens as it likes, under three rules: append is per token and
// final, encoding depends on that token's vector only, and a block is relocatable. So overwriting
// a rejected draft is another append, and rollback is moving a cursor.
#pragma once

#include <array>
#include <string_view>

#include "ops/rows.h"
#include "ops/table.h"

namespace exode {

inline constexpr int32_t kKvBlock = 64;  // tokens per block

struct KvGeometry {
  int32_t layers = 0, heads = 0, head_dim = 0;
  int32_t window = 0;  // 0 = full attention
  bool operator==(const KvGeometry&) const = default;
};

struct KvFormat;

// One layer of a pool. Block b of this layer starts at base + b · block_stride.
struct KvView {
  std::byte* base = nullptr;
  int64_t block_stride = 0;  // bytes
  int32_t heads = 0, head_dim = 0;
  ConstTensorView block_table;  // [seqs, blocks_max] i32: block of tokens [64 j, 64 j + 64)
  const KvFormat* format = nullptr;
};

namespace kv {

// Stores the K and V of each row at its position. K is normed and rotated already.
struct KvAppend {
  KvView cache;
  ConstTensorView k, v;                   // [rows, heads · head_dim]
  ConstTensorView positions, seq_of_row;  // [rows] i32; seq_of_row < 0 = padding
};

// QkNormRope of q and k, then KvAppend of k and v, as one op. q is updated in place; what
// `rotate.k` holds afterwards is unspecified. Rows with seq_of_row < 0 or a negative position are
// left alone.
struct RotateAppend {
  ops::QkNormRope rotate;
  KvView cache;
  ConstTensorView v;           // [rows, heads · head_dim]
  ConstTensorView seq_of_row;  // [rows] i32
};

// out = sigmoid(gate) · softmax(scale · q Kᵀ) V over positions 0…positions[r] of the row's sequence
// (causal; with a window only the last `window` of them). Query head h uses KV head
// h / (q_heads / heads). Rows of one step attend to what KvAppend stored before: store, then
// attend, always. The result of a row does not depend on which other rows are in the step; on
// CUDA, 16-bit caches compute rows of a sequence that brings more than kFewRows of them in another
// order than those of one that brings fewer.
struct Attend {
  KvView cache;
  ConstTensorView q;                      // [rows, q_heads · head_dim]
  TensorView out;                         // [rows, q_heads · head_dim]; not q
  ConstTensorView positions, seq_of_row;  // [rows] i32
  ConstTensorView gate = {};  // [rows, q_heads · head_dim]; empty = none, the factor is 1
  // Lets the rows of one sequence share what they read; empty = each row reads for itself.
  SeqRows seqs = {};
  float scale = 0;
  float soft_cap = 0;  // 0 = none; else cap · tanh(score / cap)
  int32_t window = 0;
};

inline constexpr int32_t kFewRows = 8;  // a draft being verified; more rows are a prompt

KvAppend append_of(const RotateAppend&);  // its appending half

void validate(const KvAppend&);
void validate(const RotateAppend&);
void validate(const Attend&);
Cost cost(const KvAppend&);
Cost cost(const RotateAppend&);
Cost cost(const Attend&);
constexpr std::string_view name(const KvAppend&) { return "kv_append"; }
constexpr std::string_view name(const RotateAppend&) { return "rotate_append"; }
constexpr std::string_view name(const Attend&) { return "attend"; }

}  // namespace kv

// One per cache format (kv/formats/<name>/). Null kernels = the backend cannot run this format.
struct KvFormat {
  std::string_view name;  // "bf16", "f32", …: the value of --kv-cache-dtype
  // Bytes of one block of one layer, K and V of all heads together.
  size_t (*block_bytes)(const KvGeometry&) = nullptr;
  std::array<Kernel<kv::KvAppend>, static_cast<size_t>(Backend::kCount)> append{};
  std::array<Kernel<kv::RotateAppend>, static_cast<size_t>(Backend::kCount)> rotate_append{};
  std::array<Kernel<kv::Attend>, static_cast<size_t>(Backend::kCount)> attend{};
};

// nullptr when unknown; kv_format_names() lists what exists, for error messages.
const KvFormat* find_kv_format(std::string_view name);
std::string kv_format_names();

inline const Kernel<kv::KvAppend>& kernel_for(const OpTable& table, const kv::KvAppend& op) {
  return op.cache.format->append[static_cast<size_t>(table.backend)];
}
inline const Kernel<kv::RotateAppend>& kernel_for(const OpTable& table,
                                                  const kv::RotateAppend& op) {
  return op.cache.format->rotate_append[static_cast<size_t>(table.backend)];
}
inline const Kernel<kv::Attend>& kernel_for(const OpTable& table, const kv::Attend& op) {
  return op.cache.format->attend[static_cast<size_t>(table.backend)];
}

}  // namespace exode
