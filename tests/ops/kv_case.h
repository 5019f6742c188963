// A paged cache with made-up sequences, for tests of the ops on it.
#pragma once

#include "kv/kv.h"
#include "kv/pool.h"
#include "ops/compare.h"

namespace exode::testing {

struct Geometry {
  const char* format = "f32";
  int32_t heads = 1, group = 1, dim = 64;
  float soft_cap = 0;
  int32_t window = 0;
  int32_t kv_width() const { return heads * dim; }
  int32_t q_width() const { return heads * group * dim; }
  // CUDA splits a head over the lanes of a warp.
  bool is_built() const { return !on_cuda() || dim % 32 == 0; }
};

// On CUDA, what is stored in 16 bits is multiplied in 16 bits.
inline double bound(const Geometry& g, double exact, const std::vector<float>& expected) {
  if (!on_cuda() || std::string_view(g.format) == "f32") return exact;
  double most = 0;
  for (const float x : expected) most = std::max(most, std::abs(static_cast<double>(x)));
  return kFastRowError * most;
}

inline DType stored_dtype(std::string_view format) {
  return format == "bf16" ? DType::kBF16 : format == "f16" ? DType::kF16 : DType::kF32;
}

// One sequence per entry of `lengths`; blocks are dealt out so that no sequence has neighbours.
// All bytes start as ones, which is NaN in every dense format.
class Cache {
 public:
  Cache(const Geometry& g, const std::vector<int32_t>& lengths)
      : g_(g), format_(*find_kv_format(g.format)), lengths_(lengths) {
    for (const int32_t length : lengths) width_ = std::max(width_, blocks_for_tokens(length));
    const auto seqs = static_cast<int32_t>(lengths.size());
    const KvGeometry geometry{.layers = 1, .heads = g.heads, .head_dim = g.dim};
    block_bytes_ = format_.block_bytes(geometry);
    const int32_t blocks = width_ * seqs + 1;
    memory_ =
        std::make_unique<HostTensor>(DType::kU8, Shape{blocks, static_cast<int32_t>(block_bytes_)});
    std::memset(memory_->view().data, 0xff, block_bytes_ * static_cast<size_t>(blocks));
    for (int32_t s = 0; s < seqs; ++s) {
      for (int32_t b = 0; b < width_; ++b) table_.push_back((width_ - 1 - b) * seqs + s);
    }
    table_tensor_ = std::make_unique<HostTensor>(indices(table_));
  }

  KvView view() {
    const auto seqs = static_cast<int32_t>(lengths_.size());
    return {.base = memory_->view().data,
            .block_stride = static_cast<int64_t>(block_bytes_),
            .heads = g_.heads,
            .head_dim = g_.dim,
            .block_table = dense_view(table_tensor_->view().data, DType::kI32, {seqs, width_}),
            .format = &format_};
  }
  // Moves block `index` of sequence 0 to the spare block and points the table there.
  void relocate(int32_t index) {
    const int32_t spare = memory_->view().rows() - 1;
    auto* from = memory_->view().row<std::byte>(table_[static_cast<size_t>(index)]);
    std::memcpy(memory_->view().row<std::byte>(spare), from, block_bytes_);
    std::memset(from, 0xff, block_bytes_);
    table_tensor_->set(index, static_cast<float>(spare));
  }
  // All stored values, in the order of memory.
  std::vector<float> floats() const {
    const DType dtype = stored_dtype(g_.format);
    const ConstTensorView bytes = memory_->cview();
    HostTensor values(dtype, {static_cast<int32_t>(bytes.shape.elements() /
                                                   static_cast<int64_t>(dtype_bytes(dtype)))});
    std::memcpy(values.view().data, bytes.data, static_cast<size_t>(bytes.shape.elements()));
    return values.floats();
  }
  const Geometry& geometry() const { return g_; }

 private:
  Geometry g_;
  const KvFormat& format_;
  std::vector<int32_t> lengths_, table_;
  std::unique_ptr<HostTensor> table_tensor_;
  int32_t width_ = 0;
  size_t block_bytes_ = 0;
  std::unique_ptr<HostTensor> memory_;  // [blocks, bytes of a block]
};

struct Rows {
  std::vector<int32_t> sequences, positions;
  int32_t count() const { return static_cast<int32_t>(positions.size()); }
  Rows& add(int32_t sequence, int32_t first, int32_t rows) {
    for (int32_t i = 0; i < rows; ++i) {
      sequences.push_back(sequence);
      positions.push_back(first + i);
    }
    return *this;
  }
};

// A vector that depends on what, sequence and position only.
inline float element(uint64_t what, int32_t sequence, int32_t position, int64_t i) {
  const uint64_t key = what * 1'000'003 + static_cast<uint64_t>(sequence) * 1'000'000'007 +
                       static_cast<uint64_t>(position + 1);
  return 2 * random_unit(key, static_cast<uint64_t>(i)) - 1;
}

inline HostTensor vectors(uint64_t what, const Rows& rows, int32_t width) {
  HostTensor t(DType::kF32, {rows.count(), width});
  for (int32_t r = 0; r < rows.count(); ++r) {
    const auto at = static_cast<size_t>(r);
    for (int32_t i = 0; i < width; ++i) {
      t.set(int64_t{r} * width + i, element(what, rows.sequences[at], rows.positions[at], i));
    }
  }
  return t;
}

inline constexpr uint64_t kQuery = 1, kKey = 2, kValue = 3, kGate = 4;

inline void append(OpRunner& run, Cache& cache, const Rows& rows, uint64_t shift = 0) {
  const int32_t width = cache.geometry().kv_width();
  HostTensor k = vectors(kKey + shift, rows, width), v = vectors(kValue + shift, rows, width);
  HostTensor positions = indices(rows.positions), seqs = indices(rows.sequences);
  run(kv::KvAppend{.cache = cache.view(),
                   .k = k.view(),
                   .v = v.view(),
                   .positions = positions.view(),
                   .seq_of_row = seqs.view()});
}

inline float scale_of(const Geometry& g) { return 4 / std::sqrt(static_cast<float>(g.dim)); }

inline std::vector<float> attend(OpRunner& run, Cache& cache, const Rows& rows) {
  const Geometry& g = cache.geometry();
  HostTensor q = vectors(kQuery, rows, g.q_width()), out(DType::kF32, {rows.count(), g.q_width()});
  out.fill(9);
  HostTensor positions = indices(rows.positions), seqs = indices(rows.sequences);
  run(kv::Attend{.cache = cache.view(),
                 .q = q.view(),
                 .out = out.view(),
                 .positions = positions.view(),
                 .seq_of_row = seqs.view(),
                 .scale = scale_of(g),
                 .soft_cap = g.soft_cap,
                 .window = g.window});
  return out.floats();
}

}  // namespace exode::testing
