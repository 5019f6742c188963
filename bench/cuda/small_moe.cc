// Experts on CUDA: the fast kernels against the exact ones, rows alone against rows together, and
// times of a Qwen3.6-35B-A3B layer.
#include "cuda/small_ops.h"

namespace exode::bench {
namespace {

struct Layer {
  int32_t hidden = 2048, inner = 512, shared_inner = 512, experts = 256, top_k = 8;
  WeightLayout layout = WeightLayout::kInt4Group, shared_layout = WeightLayout::kInt4Group;
  bool zeros = false;
  int32_t strip = 1;
  std::string name() const {
    const auto of = [](WeightLayout l) {
      return l == WeightLayout::kDense ? "bf16" : l == WeightLayout::kFp8Block ? "fp8" : "int4";
    };
    return fmt::format("{}{} strip {} hidden {} inner {} shared {} {}", of(layout),
                       zeros ? "z" : "", strip, hidden, inner, shared_inner, of(shared_layout));
  }
};

struct Matrix {
  Buffer codes, scales, zeros;
  WeightView view;
};

std::vector<uint32_t> random_words(size_t count, uint64_t seed, WeightLayout layout) {
  std::vector<uint32_t> words(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = random_bits(seed, i);
    words[i] = static_cast<uint32_t>(bits);
    if (layout == WeightLayout::kFp8Block) words[i] &= 0xb7b7b7b7u;  // below 4
    if (layout != WeightLayout::kDense) continue;
    const auto bf16 = [](float x) { return std::bit_cast<uint32_t>(x) >> 16; };
    words[i] = bf16(random_unit(seed, 2 * i) * 0.1f - 0.05f) |
               bf16(random_unit(seed, 2 * i + 1) * 0.1f - 0.05f) << 16;
  }
  return words;
}

Matrix make_matrix(Lab& lab, WeightLayout layout, bool zeros, int32_t rows, int32_t cols,
                   uint64_t seed) {
  Matrix m;
  WeightView& w = m.view;
  w.layout = layout;
  w.rows = rows;
  w.cols = cols;
  const int32_t blocks = (cols + kInt4Block - 1) / kInt4Block;
  const int32_t row_bytes = layout == WeightLayout::kDense       ? 2 * cols
                            : layout == WeightLayout::kInt4Group ? 64 * blocks
                                                                 : cols;
  // A period of random words repeats: the kernels cannot tell, and the host is slow.
  const size_t words = static_cast<size_t>(rows) * static_cast<size_t>(row_bytes) / 4;
  const size_t period = std::min<size_t>(words, 4 << 20);
  const std::vector<uint32_t> values = random_words(period, seed, layout);
  m.codes = lab.take(words * 4);
  for (size_t at = 0; at < words; at += period) {
    const size_t count = std::min(period, words - at);
    lab.device().copy_in(m.codes.bytes().subspan(at * 4, count * 4),
                         std::as_bytes(std::span(values)).first(count * 4));
  }
  const bool dense = layout == WeightLayout::kDense;
  w.codes = dense_view(std::as_const(m.codes).bytes().data(), dense ? DType::kBF16 : DType::kU8,
                       {rows, dense ? cols : row_bytes});
  if (layout == WeightLayout::kFp8Block) w.codes.dtype = DType::kFp8E4M3;
  if (dense) return m;
  w.group = 128;
  const int32_t scale_rows = layout == WeightLayout::kFp8Block ? (rows + 127) / 128 : rows;
  const float scale = layout == WeightLayout::kFp8Block ? 0.2f : 0.01f;  // weights of about 0.04
  m.scales = lab.uniform(static_cast<size_t>(scale_rows) * static_cast<size_t>(blocks), seed + 1,
                         -scale, scale);
  w.scales = dense_view(std::as_const(m.scales).bytes().data(), DType::kF32, {scale_rows, blocks});
  if (!zeros) return m;
  std::vector<uint8_t> z(static_cast<size_t>(rows) * static_cast<size_t>(blocks));
  for (size_t i = 0; i < z.size(); ++i) z[i] = static_cast<uint8_t>(random_bits(seed + 2, i) % 17);
  m.zeros = lab.upload(z);
  w.zeros = dense_view(std::as_const(m.zeros).bytes().data(), DType::kU8, {rows, blocks});
  return m;
}

// Owns a layer's weights and inputs for up to `rows` rows.
class Moe {
 public:
  Moe(Lab& lab, const Layer& layer, int32_t rows)
      : lab_(lab),
        layer_(layer),
        gate_up_(make_matrix(lab, layer.layout, layer.zeros, layer.experts * 2 * layer.inner,
                             layer.hidden, 1)),
        down_(make_matrix(lab, layer.layout, layer.zeros, layer.experts * layer.hidden, layer.inner,
                          2)),
        x_(lab.uniform(static_cast<size_t>(rows) * static_cast<size_t>(layer.hidden), 5, -1, 1)),
        gate_(lab.uniform(static_cast<size_t>(rows), 6, -1, 1)),
        weights_(lab.uniform(static_cast<size_t>(rows * layer.top_k), 7, 0, 1)),
        out_(lab.take(static_cast<size_t>(rows) * static_cast<size_t>(layer.hidden) * 4)) {
    if (layer.shared_inner > 0) {
      shared_gate_up_ =
          make_matrix(lab, layer.shared_layout, false, 2 * layer.shared_inner, layer.hidden, 3);
      shared_down_ =
          make_matrix(lab, layer.shared_layout, false, layer.hidden, layer.shared_inner, 4);
    }
    for (Matrix* m : {&gate_up_, &down_, &shared_gate_up_, &shared_down_}) {
      if (m->view.layout == WeightLayout::kInt4Group) m->view.strip = layer.strip;
    }
    std::vector<int32_t> ids;
    for (int32_t r = 0; r < rows; ++r) {
      std::vector<bool> taken(static_cast<size_t>(layer.experts));
      for (uint64_t i = 0; ids.size() < static_cast<size_t>((r + 1) * layer.top_k); ++i) {
        const auto id =
            random_bits(8 + static_cast<uint64_t>(r), i) % static_cast<uint64_t>(layer.experts);
        if (taken[id]) continue;
        taken[id] = true;
        ids.push_back(static_cast<int32_t>(id));
      }
    }
    ids_ = lab.upload(ids);
  }

  ops::MoeExperts op(int32_t first, int32_t rows) {
    const auto view = [&](const Buffer& b, DType dtype, int32_t cols) {
      return ConstTensorView(dense_view(b.bytes().data(), dtype, {first + rows, cols}))
          .slice_rows(first, rows);
    };
    ops::MoeExperts op{.x = view(x_, DType::kF32, layer_.hidden),
                       .ids = view(ids_, DType::kI32, layer_.top_k),
                       .weights = view(weights_, DType::kF32, layer_.top_k),
                       .gate_up = gate_up_.view,
                       .down = down_.view,
                       .shared = {},
                       .experts = layer_.experts,
                       .out = dense_view(out_.bytes().data(), DType::kF32, {rows, layer_.hidden})};
    if (layer_.shared_inner > 0) {
      op.shared = {.gate_up = shared_gate_up_.view,
                   .down = shared_down_.view,
                   .gate_logit = view(gate_, DType::kF32, 1)};
    }
    return op;
  }
  std::vector<float> run(const OpTable& table, int32_t first, int32_t rows) {
    lab_.run(table, op(first, rows));
    return lab_.download<float>(out_,
                                static_cast<size_t>(rows) * static_cast<size_t>(layer_.hidden));
  }
  // The shared expert's weights as those of an expert of the stack, so that they rotate too.
  ops::MoeExperts rotated(int32_t i, int32_t rows) {
    ops::MoeExperts result = op(i * rows, rows);
    const int32_t expert = i * 37 % layer_.experts;
    result.shared.gate_up = gate_up_.view.slice_rows(expert * 2 * layer_.inner, 2 * layer_.inner);
    result.shared.down = down_.view.slice_rows(expert * layer_.hidden, layer_.hidden);
    return result;
  }

 private:
  Lab& lab_;
  Layer layer_;
  Matrix gate_up_, down_, shared_gate_up_, shared_down_;
  Buffer x_, gate_, weights_, out_, ids_;
};

void check_layer(Lab& lab, const Layer& layer) {
  constexpr int32_t kRows = 2100;
  Moe moe(lab, layer, kRows);
  for (const int32_t rows : {1, 3, 8, 9, 32, 33, 200, kRows}) {
    if (rows > 200 && layer.hidden > 256) continue;
    const double error = nmse(moe.run(lab.fast(), 0, rows), moe.run(lab.exact(), 0, rows));
    // Many rows: weights, activations and results are rounded to halves, not only inputs.
    lab.check(error < (rows <= 32 ? 3e-7 : 1e-6),
              fmt::format("moe {}: {} rows, error {:.1e}", layer.name(), rows, error));
  }
  for (const int32_t rows : {8, 32}) {
    const std::vector<float> together = moe.run(lab.fast(), 0, rows);
    bool same = true;
    for (int32_t r = 0; r < rows; ++r) {
      const std::vector<float> alone = moe.run(lab.fast(), r, 1);
      same = same &&
             std::equal(alone.begin(), alone.end(), together.begin() + int64_t{r} * layer.hidden);
    }
    lab.check(same,
              fmt::format("moe {}: {} rows have the bits they have alone", layer.name(), rows));
  }
}

void check_route(Lab& lab) {
  constexpr int32_t kRows = 70;
  for (const int32_t experts : {17, 256, 600}) {
    std::vector<float> logits(static_cast<size_t>(kRows * experts));
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = std::round(40 * random_unit(9, i)) / 8 - 2;  // many ties
    }
    const Buffer in = lab.upload(logits);
    Buffer ids = lab.take(kRows * 8 * 4), weights = lab.take(kRows * 8 * 4);
    lab.run(lab.fast(),
            ops::MoeRoute{.logits = dense_view(in.bytes().data(), DType::kF32, {kRows, experts}),
                          .ids = dense_view(ids.bytes().data(), DType::kI32, {kRows, 8}),
                          .weights = dense_view(weights.bytes().data(), DType::kF32, {kRows, 8})});
    std::vector<int32_t> host_ids(kRows * 8);
    std::vector<float> host_weights(kRows * 8);
    const auto cpu = open_device({.name = "cpu", .threads = 1}).value();
    Arena none = Arena::counting();
    Exec(Exec::Mode::kRun, ref_ops(cpu->caps()), cpu->stream(),
         none)(ops::MoeRoute{.logits = dense_view(logits.data(), DType::kF32, {kRows, experts}),
                             .ids = dense_view(host_ids.data(), DType::kI32, {kRows, 8}),
                             .weights = dense_view(host_weights.data(), DType::kF32, {kRows, 8})});
    const bool same = lab.download<int32_t>(ids, host_ids.size()) == host_ids;
    const double error = nmse(lab.download<float>(weights, host_weights.size()), host_weights);
    lab.check(same && error < 1e-12, fmt::format("route {} experts, error {:.1e}", experts, error));
  }
}

}  // namespace

void check_moe(Lab& lab) {
  using enum WeightLayout;
  check_route(lab);
  const Layer small{.hidden = 256, .inner = 128, .shared_inner = 256, .experts = 16, .top_k = 4};
  for (const WeightLayout layout : {kInt4Group, kFp8Block, kDense}) {
    for (const WeightLayout shared : {layout, kDense}) {
      Layer layer = small;
      layer.layout = layout;
      layer.shared_layout = shared;
      check_layer(lab, layer);
    }
  }
  Layer other = small;
  other.zeros = true;
  other.shared_inner = 0;
  other.hidden = 176;
  other.inner = 48;
  check_layer(lab, other);
  other.strip = 16;
  check_layer(lab, other);
  check_layer(lab, {.strip = 32});
}

void time_moe(Lab& lab) {
  constexpr int32_t kLaunches = 40, kRowsMax = 2048;
  const Buffer logits = lab.uniform(size_t{kRowsMax} * 256, 3, -4, 4);
  Buffer ids = lab.take(kRowsMax * 8 * 4), weights = lab.take(kRowsMax * 8 * 4);
  for (const int32_t strip : {1, 32}) {
    Moe moe(lab, {.strip = strip}, kRowsMax);
    for (const int32_t rows : {1, 2, 4, 8, 16, 32, 64, 256, 1024, 2048}) {
      const int32_t places = kRowsMax / rows;
      const ops::MoeRoute route{
          .logits = dense_view(logits.bytes().data(), DType::kF32, {rows, 256}),
          .ids = dense_view(ids.bytes().data(), DType::kI32, {rows, 8}),
          .weights = dense_view(weights.bytes().data(), DType::kF32, {rows, 8})};
      const double layer = lab.time(kLaunches, [&](int i) {
        lab.run(lab.fast(), route);
        lab.run(lab.fast(), moe.rotated(i % places, rows));
      });
      const double routing = lab.time(kLaunches, [&](int) { lab.run(lab.fast(), route); });
      const double cached =
          lab.time(kLaunches, [&](int) { lab.run(lab.fast(), moe.rotated(0, rows)); });
      fmt::print(
          "time  moe strip {:>2} {:>4} rows: with routing {:>7.1f} us, routing {:.1f} us, "
          "experts in cache {:.1f} us\n",
          strip, rows, layer, routing, cached);
    }
  }
}

}  // namespace exode::bench
