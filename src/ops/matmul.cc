#include "ops/matmul.h"

#include "ops/require.h"
#include "ops/weights.h"

namespace exode::ops {

void validate_weight(const char* what, const WeightView& w) {
  const std::string name(what);
  switch (w.layout) {
    case WeightLayout::kDense:
      require_activation(what, w.codes, w.rows, w.cols);
      return;
    case WeightLayout::kInt4Group: {
      const int32_t blocks = (w.cols + kInt4Block - 1) / kInt4Block;
      EXODE_CHECK(w.group == 32 || w.group == 64 || (w.group > 0 && w.group % kInt4Block == 0),
                  name + ": int4 group " + std::to_string(w.group));
      const int32_t groups = (w.cols + w.group - 1) / w.group;
      require_size(what, w.codes, w.rows, int64_t{blocks} * kInt4Block / 2);
      require_size(what, w.scales, w.rows, groups);
      require_dtype(what, w.scales, DType::kF32);
      require_dtype(what, w.codes, DType::kU8);
      if (w.zeros.empty()) return;
      require_size(what, w.zeros, w.rows, groups);
      require_dtype(what, w.zeros, DType::kU8);
      return;
    }
    case WeightLayout::kInt8Group: {
      EXODE_CHECK(w.group > 0 && w.group % kInt8Block == 0,
                  name + ": int8 group " + std::to_string(w.group));
      require_size(what, w.codes, w.rows, (w.cols + kInt8Block - 1) / kInt8Block * kInt8Block);
      require_size(what, w.scales, w.rows, (w.cols + w.group - 1) / w.group);
      require_dtype(what, w.codes, DType::kU8);
      require_dtype(what, w.scales, DType::kF32);
      return;
    }
    case WeightLayout::kFp8Block:
      require_size(what, w.codes, w.rows, w.cols);
      require_dtype(what, w.codes, DType::kFp8E4M3);
      EXODE_CHECK(w.group > 0 && w.group % kInt4Block == 0,
                  name + ": fp8 block " + std::to_string(w.group));
      require_size(what, w.scales, (w.rows + w.group - 1) / w.group,
                   (w.cols + w.group - 1) / w.group);
      require_dtype(what, w.scales, DType::kF32);
      return;
  }
}

void validate(const MatMul& op) {
  require_activation("matmul: x", op.x, op.x.rows(), op.w.cols);
  require_activation("matmul: out", op.out, op.x.rows(), op.w.rows);
  validate_weight("matmul: w", op.w);
}

void validate(const MatMulSwiGlu& op) {
  EXODE_CHECK(op.w.rows % 2 == 0, "matmul_swiglu: w must hold as many gate rows as up rows");
  require_activation("matmul_swiglu: x", op.x, op.x.rows(), op.w.cols);
  require_activation("matmul_swiglu: out", op.out, op.x.rows(), op.w.rows / 2);
  validate_weight("matmul_swiglu: w", op.w);
}

Cost cost(const MatMul& op) {
  return {tensor_bytes(op.x) + tensor_bytes(op.out) + weight_bytes(op.w),
          2 * product(op.x.rows(), op.w.rows, op.w.cols)};
}

Cost cost(const MatMulSwiGlu& op) {
  return {tensor_bytes(op.x) + tensor_bytes(op.out) + weight_bytes(op.w),
          2 * product(op.x.rows(), op.w.rows, op.w.cols)};
}

}  // namespace exode::ops
