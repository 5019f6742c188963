// A tensor is a pointer with a description; it owns nothing and is copied freely. The last
// dimension is dense and there is one row stride: kernels stay readable, and 4-D stride soup cannot
// start.
//
//   TensorView q = qkv.slice_cols(0, q_width);          // [rows, q_width], stride of qkv
//   const float* row = q.row<float>(3);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "tensor/dtype.h"

namespace exode {

struct Shape {
  std::array<int32_t, 4> dim{1, 1, 1, 1};
  int32_t rank = 0;

  Shape() = default;
  Shape(std::initializer_list<int32_t> dims) {
    for (int32_t d : dims) dim[static_cast<size_t>(rank++)] = d;
  }
  int64_t elements() const {
    int64_t n = 1;
    for (int32_t i = 0; i < rank; ++i) n *= dim[static_cast<size_t>(i)];
    return n;
  }
  bool operator==(const Shape&) const = default;
};

template <class Byte>
struct BasicTensorView {
  Byte* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t row_stride = 0;  // in elements, between consecutive values of dimension 0

  int32_t rows() const { return shape.rank == 0 ? 0 : shape.dim[0]; }
  // Elements of one row: the product of all dimensions after the first (1 for a vector).
  int32_t cols() const { return shape.dim[1] * shape.dim[2] * shape.dim[3]; }
  bool empty() const { return data == nullptr; }

  template <class T>
  auto* row(int64_t index) const {
    using Typed = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return reinterpret_cast<Typed*>(data) + index * row_stride;
  }
  BasicTensorView slice_rows(int32_t first, int32_t count) const {
    BasicTensorView v = *this;
    v.data = data == nullptr ? nullptr : data + first * row_stride * bytes_per_element();
    v.shape.dim[0] = count;
    return v;
  }
  BasicTensorView slice_cols(int32_t first, int32_t count) const {  // rank 2
    BasicTensorView v = *this;
    v.data = data == nullptr ? nullptr : data + first * bytes_per_element();
    v.shape.dim[1] = count;
    return v;
  }
  int64_t bytes_per_element() const { return static_cast<int64_t>(dtype_bytes(dtype)); }

  operator BasicTensorView<const std::byte>() const  // NOLINT(google-explicit-constructor)
      requires(!std::is_const_v<Byte>) {
    return {data, dtype, shape, row_stride};
  }
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

// Describes dense memory: row stride = product of the trailing dimensions.
template <class T>
auto dense_view(T* data, DType dtype, Shape shape) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  int64_t stride = 1;
  for (int32_t i = 1; i < shape.rank; ++i) stride *= shape.dim[static_cast<size_t>(i)];
  return BasicTensorView<Byte>{reinterpret_cast<Byte*>(data), dtype, shape, stride};
}

}  // namespace exode
