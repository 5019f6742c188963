// Times of a Gated DeltaNet layer between its projections, at the shapes of published models. Each
// launch of a graph has a state of its own, as the layers of a model have.
#include "cuda/small_ops.h"

namespace exode::bench {
namespace {

constexpr int32_t kWidth = 4;

struct Model {
  const char* name;
  GdnShape shape;
  int32_t layers;
};

struct Slices {
  int32_t short_ones, short_rows;  // decoding, or verifying a draft
  int32_t long_ones, long_rows;    // prompts
  int32_t seqs() const { return short_ones + long_ones; }
  int32_t rows() const { return short_ones * short_rows + long_ones * long_rows; }
};

class Layers {
 public:
  Layers(Lab& lab, const Model& model, const Slices& slices, int32_t count)
      : shape_(model.shape),
        seqs_(slices.seqs()),
        rows_(slices.rows()),
        qkvz_(uniform(lab, rows_, shape_.conv_channels() + shape_.value_width(), 1)),
        ba_(uniform(lab, rows_, 2 * shape_.value_heads, 2)),
        conv_(uniform(lab, shape_.conv_channels(), kWidth, 3)),
        heads_(uniform(lab, 2, shape_.value_heads, 4)),
        norm_(uniform(lab, 1, shape_.value_dim, 5)),
        base_(uniform(lab, count * seqs_ * shape_.value_width(), shape_.key_dim, 6)),
        tail_(uniform(lab, count * seqs_ * (kWidth - 1), shape_.conv_channels(), 7)),
        out_(uniform(lab, rows_, shape_.value_width(), 8)) {
    std::vector<int32_t> first, rows, slot, fresh, positions;
    for (int32_t s = 0; s < seqs_; ++s) {
      first.push_back(static_cast<int32_t>(positions.size()));
      rows.push_back(s < slices.short_ones ? slices.short_rows : slices.long_rows);
      slot.push_back(s);
      fresh.push_back(0);
      for (int32_t i = 0; i < rows.back(); ++i) positions.push_back(64 + i);
    }
    for (const auto* list : {&first, &rows, &slot, &fresh, &positions}) {
      lists_.push_back(lab.upload(*list));
    }
  }

  ops::GatedDeltaNet op(int32_t layer) {
    const GdnShape& s = shape_;
    const auto list = [&](size_t i, int32_t count) {
      return dense_view(lists_[i].bytes().data(), DType::kI32, {count});
    };
    const auto slots = [&](const Buffer& b, int32_t rows, int32_t cols) {
      return dense_view(b.bytes().data(), DType::kF32, {1 << 20, rows, cols})
          .slice_rows(layer * seqs_, seqs_);
    };
    const auto floats = [](const Buffer& b, Shape shape) {
      return dense_view(b.bytes().data(), DType::kF32, shape);
    };
    const TensorView heads = floats(heads_, {2 * s.value_heads});
    return {.qkvz = floats(qkvz_, {rows_, s.conv_channels() + s.value_width()}),
            .ba = floats(ba_, {rows_, 2 * s.value_heads}),
            .conv = floats(conv_, {s.conv_channels(), kWidth}),
            .a_log = heads.slice_rows(0, s.value_heads),
            .dt_bias = heads.slice_rows(s.value_heads, s.value_heads),
            .norm = floats(norm_, {s.value_dim}),
            .positions = list(4, rows_),
            .state = {.base = slots(base_, s.value_width(), s.key_dim),
                      .conv_tail = slots(tail_, kWidth - 1, s.conv_channels())},
            .seqs = {list(0, seqs_), list(1, seqs_), list(2, seqs_), list(3, seqs_)},
            .shape = s,
            .out = floats(out_, {rows_, s.value_width()})};
  }

 private:
  static Buffer uniform(Lab& lab, int64_t rows, int64_t cols, uint64_t seed) {
    return lab.uniform(static_cast<size_t>(rows * cols), seed, -1, 1);
  }

  GdnShape shape_;
  int32_t seqs_, rows_;
  Buffer qkvz_, ba_, conv_, heads_, norm_, base_, tail_, out_;
  std::vector<Buffer> lists_;
};

void time_case(Lab& lab, const Model& model, const Slices& slices, int32_t layers) {
  Layers states(lab, model, slices, layers);
  const double us = lab.time(layers, [&](int i) { lab.run(lab.fast(), states.op(i)); });
  const uint64_t bytes = cost(states.op(0)).bytes;
  fmt::print("gdn {:<8} {} x {} rows, {} x {} rows: {:8.2f} us {:6.0f} GB/s\n", model.name,
             slices.short_ones, slices.short_rows, slices.long_ones, slices.long_rows, us,
             static_cast<double>(bytes) / us / 1e3);
}

}  // namespace

void time_gdn(Lab& lab) {
  for (const Model& model :
       {Model{"27B", {16, 48, 128, 128}, 24}, Model{"35B-A3B", {16, 32, 128, 128}, 30}}) {
    for (const int32_t rows : {1, 2, 4, 8}) time_case(lab, model, {1, rows, 0, 0}, model.layers);
    time_case(lab, model, {8, 1, 0, 0}, 4);
    for (const int32_t rows : {128, 512, 2048, 4096}) time_case(lab, model, {0, 0, 1, rows}, 2);
    time_case(lab, model, {8, 1, 1, 2040}, 2);
    time_case(lab, model, {0, 0, 4, 512}, 2);
  }
}

}  // namespace exode::bench
