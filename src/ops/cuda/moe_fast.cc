#include "ops/cuda/moe_fast.h"

#include <algorithm>

namespace exode::cuda {
namespace {

constexpr int32_t kBlock = 128, kStrip = 16;

bool has_codec(const WeightView& w) {
  switch (w.layout) {
    case WeightLayout::kInt4Group:
      return w.group % kBlock == 0 && w.cols % kStrip == 0 && w.codes.row_stride % kStrip == 0;
    case WeightLayout::kInt8Group:
      return false;
    case WeightLayout::kFp8Block:
      return w.group == kBlock && w.cols % kBlock == 0 && w.codes.row_stride % kStrip == 0;
    case WeightLayout::kDense:
      return w.codes.dtype == DType::kBF16 && w.cols % kBlock == 0 && w.codes.row_stride % 8 == 0;
  }
  return false;
}

bool has_codecs(const WeightView& gate_up, const WeightView& down) {
  return gate_up.layout == down.layout && has_codec(gate_up) && has_codec(down);
}

bool is_aligned(const ConstTensorView& t) {
  return t.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

}  // namespace

bool fast_experts_apply(const ops::MoeExperts& op) {
  if (!has_codecs(op.gate_up, op.down) || op.x.cols() % kStrip != 0) return false;
  if (!is_aligned(op.x) || !is_aligned(op.out)) return false;
  if (op.shared.empty()) return true;
  const bool codecs_known = op.shared.gate_up.layout == op.gate_up.layout ||
                            op.shared.gate_up.layout == WeightLayout::kDense;
  return codecs_known && has_codecs(op.shared.gate_up, op.shared.down);
}

size_t fast_experts_scratch_bytes(const DeviceCaps&, const ops::MoeExperts& op) {
  return moe::few_rows_apply(op) ? moe::few_rows_scratch_bytes(op) : moe::grouped_scratch_bytes(op);
}

void fast_experts_launch(Stream& stream, const ops::MoeExperts& op, Scratch scratch) {
  if (moe::few_rows_apply(op)) return moe::few_rows_launch(stream, op, scratch);
  moe::grouped_launch(stream, op, scratch);
}

}  // namespace exode::cuda
