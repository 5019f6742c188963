// Reference append and attention: double precision, no blocking, no online softmax.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kv/formats/dense/layout.h"
#include "ops/ref/access.h"

namespace exode::kv_dense {
namespace {

TensorView element(const KvView& cache, DType dtype, int32_t sequence, int32_t position,
                   bool is_key, int32_t head) {
  std::byte* block = block_data<std::byte>(cache, sequence, position / kKvBlock);
  const int32_t token = position % kKvBlock;
  const int64_t offset = is_key ? k_offset(cache, head, token) : v_offset(cache, head, token);
  return dense_view(block + offset * static_cast<int64_t>(dtype_bytes(dtype)), dtype,
                    {1, cache.head_dim});
}

double score(const kv::Attend& op, DType dtype, int32_t row, int32_t head, int32_t position) {
  const int32_t d = op.cache.head_dim;
  const int32_t group = op.q.cols() / (op.cache.heads * d);
  const TensorView k =
      element(op.cache, dtype, ref::index_at(op.seq_of_row, row), position, true, head / group);
  double sum = 0;
  for (int32_t i = 0; i < d; ++i) sum += ref::load(op.q, row, head * d + i) * ref::load(k, 0, i);
  sum *= op.scale;
  return op.soft_cap > 0 ? op.soft_cap * std::tanh(sum / op.soft_cap) : sum;
}

void attend_head(const kv::Attend& op, DType dtype, int32_t row, int32_t head) {
  const int32_t d = op.cache.head_dim, last = ref::index_at(op.positions, row);
  const int32_t group = op.q.cols() / (op.cache.heads * d);
  const int32_t first = op.window > 0 ? std::max(0, last - op.window + 1) : 0;
  std::vector<double> p;
  for (int32_t t = first; t <= last; ++t) p.push_back(score(op, dtype, row, head, t));
  const double peak = *std::max_element(p.begin(), p.end());
  double total = 0;
  for (double& x : p) total += x = std::exp(x - peak);
  std::vector<double> out(static_cast<size_t>(d));
  for (int32_t t = first; t <= last; ++t) {
    const TensorView v =
        element(op.cache, dtype, ref::index_at(op.seq_of_row, row), t, false, head / group);
    for (int32_t i = 0; i < d; ++i) {
      out[static_cast<size_t>(i)] += p[static_cast<size_t>(t - first)] / total * ref::load(v, 0, i);
    }
  }
  for (int32_t i = 0; i < d; ++i) {
    const int32_t column = head * d + i;
    const double factor =
        op.gate.empty() ? 1.0 : 1.0 / (1.0 + std::exp(-ref::load(op.gate, row, column)));
    ref::store(op.out, row, column, factor * out[static_cast<size_t>(i)]);
  }
}

}  // namespace

void ref_append(Stream&, const kv::KvAppend& op, DType dtype) {
  const int32_t d = op.cache.head_dim;
  for (int32_t r = 0; r < op.k.rows(); ++r) {
    const int32_t sequence = ref::index_at(op.seq_of_row, r),
                  position = ref::index_at(op.positions, r);
    if (sequence < 0) continue;
    for (int32_t h = 0; h < op.cache.heads; ++h) {
      for (int32_t i = 0; i < d; ++i) {
        ref::store(element(op.cache, dtype, sequence, position, true, h), 0, i,
                   ref::load(op.k, r, h * d + i));
        ref::store(element(op.cache, dtype, sequence, position, false, h), 0, i,
                   ref::load(op.v, r, h * d + i));
      }
    }
  }
}

void ref_attend(Stream&, const kv::Attend& op, DType dtype) {
  for (int32_t r = 0; r < op.q.rows(); ++r) {
    if (ref::index_at(op.seq_of_row, r) < 0) continue;
    for (int32_t h = 0; h < op.q.cols() / op.cache.head_dim; ++h) attend_head(op, dtype, r, h);
  }
}

}  // namespace exode::kv_dense
