#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/cpu/cpu.h"

namespace exode::cpu {
namespace {

struct Angles {
  float cosine[256];
  float sine[256];
};

// sin and cos once per row: they are shared by all heads.
void fill_angles(const ops::QkNormRope& op, int32_t position, Angles& a) {
  const float* inv_freq = op.inv_freq.row<float>(0);
  for (int32_t j = 0; j < op.inv_freq.rows(); ++j) {
    const float angle = static_cast<float>(position) * inv_freq[j];
    a.cosine[j] = std::cos(angle) * op.rope_scale;
    a.sine[j] = std::sin(angle) * op.rope_scale;
  }
}

void norm_head(float* x, const float* weight, const ops::QkNormRope& op) {
  const int32_t d = op.head_dim;
  float sums[8] = {};
  for (int32_t i = 0; i < d; ++i) sums[i % 8] += x[i] * x[i];
  float sum = 0;
  for (float s : sums) sum += s;
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(d) + op.eps);
  for (int32_t i = 0; i < d; ++i) x[i] = x[i] * scale * (weight[i] + op.weight_bias);
}

void rotate_head(float* x, const Angles& a, int32_t half) {
  for (int32_t j = 0; j < half; ++j) {
    const float first = x[j], second = x[j + half];
    x[j] = first * a.cosine[j] - second * a.sine[j];
    x[j + half] = second * a.cosine[j] + first * a.sine[j];
  }
}

void process(const ops::QkNormRope& op, float* row, int32_t width, const ConstTensorView& weight,
             const Angles& a) {
  for (int32_t c = 0; c < width; c += op.head_dim) {
    if (!weight.empty()) norm_head(row + c, weight.row<float>(0), op);
    rotate_head(row + c, a, op.inv_freq.rows());
  }
}

}  // namespace

void launch(Stream& stream, const ops::QkNormRope& op, Scratch) {
  require_f32({op.q, op.k});
  EXODE_CHECK(op.inv_freq.rows() <= 256, "rotary width above 512 is not built");
  stream.pool().parallel_for(op.q.rows(), 4, [&](int32_t begin, int32_t end) {
    Angles angles;
    for (int32_t r = begin; r < end; ++r) {
      const int32_t position = op.positions.row<int32_t>(0)[r];
      if (position < 0) continue;
      fill_angles(op, position, angles);
      process(op, op.q.row<float>(r), op.q.cols(), op.q_weight, angles);
      process(op, op.k.row<float>(r), op.k.cols(), op.k_weight, angles);
    }
  });
}

}  // namespace exode::cpu
