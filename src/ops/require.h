// Shape and dtype requirements of ops, as messages a model author can act on.
#pragma once

#include <string>

#include "base/check.h"
#include "ops/op.h"

namespace exode::ops {

inline std::string describe(const ConstTensorView& t) {
  std::string out(dtype_name(t.dtype));
  out += " [";
  for (int32_t i = 0; i < t.shape.rank; ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(t.shape.dim[static_cast<size_t>(i)]);
  }
  return out + "]";
}

// Rows × cols, whatever the rank; `what` names op and argument ("matmul: x").
inline void require_size(const char* what, const ConstTensorView& t, int64_t rows, int64_t cols) {
  EXODE_CHECK(t.rows() == rows && t.cols() == cols, std::string(what) + " is " + describe(t) +
                                                        ", expected [" + std::to_string(rows) +
                                                        ", " + std::to_string(cols) + "]");
}

inline bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

inline void require_activation(const char* what, const ConstTensorView& t, int64_t rows,
                               int64_t cols) {
  require_size(what, t, rows, cols);
  EXODE_CHECK(is_float(t.dtype),
              std::string(what) + " is " + describe(t) + ", expected a float type");
}

// An activation that shares the dtype of the op's other activations.
inline void require_like(const char* what, const ConstTensorView& t, int64_t rows, int64_t cols,
                         DType dtype) {
  require_activation(what, t, rows, cols);
  EXODE_CHECK(t.dtype == dtype, std::string(what) + " is " + describe(t) + ", expected " +
                                    std::string(dtype_name(dtype)));
}

inline void require_dtype(const char* what, const ConstTensorView& t, DType dtype) {
  EXODE_CHECK(t.dtype == dtype, std::string(what) + " is " + describe(t) + ", expected " +
                                    std::string(dtype_name(dtype)));
}

inline void require_vector(const char* what, const ConstTensorView& t, int64_t count, DType dtype) {
  require_size(what, t, count, 1);
  require_dtype(what, t, dtype);
}

// Bytes of the described elements (not of the stride between them).
inline uint64_t tensor_bytes(const ConstTensorView& t) {
  return t.empty() ? 0 : static_cast<uint64_t>(t.shape.elements()) * dtype_bytes(t.dtype);
}

inline uint64_t weight_bytes(const WeightView& w) {
  return tensor_bytes(w.codes) + tensor_bytes(w.scales) + tensor_bytes(w.zeros);
}

inline uint64_t product(int64_t a, int64_t b, int64_t c = 1) {
  return static_cast<uint64_t>(a * b * c);
}

}  // namespace exode::ops
