// How a warp reads a weight row: units of 256 inputs, eight per lane. Lane and index j give the
// input; values are scaled f32. Inputs past K read as zero.
#pragma once

#include "ops/cuda/common.cuh"

namespace exode::cuda {

constexpr int kUnit = 256;
constexpr int kPerLane = kUnit / kWarp;

template <class Code>
__device__ float to_float(Code code);
template <>
__device__ inline float to_float(float code) {
  return code;
}
template <>
__device__ inline float to_float(__nv_bfloat16 code) {
  return __bfloat162float(code);
}
template <>
__device__ inline float to_float(__half code) {
  return __half2float(code);
}

template <class Code>
struct DenseWeight {
  const Code* codes;
  int64_t stride;
  int cols;
  explicit DenseWeight(const WeightView& w)
      : codes(reinterpret_cast<const Code*>(w.codes.data)),
        stride(w.codes.row_stride),
        cols(w.cols) {}

  // Two-byte codes are read 16 bytes at a time, so a lane's inputs are neighbours; f32 lanes are.
  __device__ static int input(int unit, int lane, int j) {
    return unit * kUnit + (sizeof(Code) == 2 ? lane * kPerLane + j : j * kWarp + lane);
  }
  __device__ void read(int64_t row, int unit, int lane, float (&v)[kPerLane]) const {
    if constexpr (sizeof(Code) == 2) {
      if (cols % kPerLane == 0 && stride % kPerLane == 0) {
        const int k = input(unit, lane, 0);
        uint4 raw{};
        if (k < cols) raw = __ldg(reinterpret_cast<const uint4*>(codes + row * stride + k));
        const Code* code = reinterpret_cast<const Code*>(&raw);
#pragma unroll
        for (int j = 0; j < kPerLane; ++j) v[j] = to_float(code[j]);
        return;
      }
    }
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int k = input(unit, lane, j);
      v[j] = k < cols ? to_float(codes[row * stride + k]) : 0.0f;
    }
  }
};

struct Fp8Weight {
  const uint8_t* codes;
  const float* scales;
  int64_t stride, scale_stride;
  int cols, block;
  explicit Fp8Weight(const WeightView& w)
      : codes(reinterpret_cast<const uint8_t*>(w.codes.data)),
        scales(w.scales.row<float>(0)),
        stride(w.codes.row_stride),
        scale_stride(w.scales.row_stride),
        cols(w.cols),
        block(w.group) {}

  __device__ static int input(int unit, int lane, int j) { return unit * kUnit + j * kWarp + lane; }
  // Exponent and mantissa moved into place; subnormal codes counted in their unit.
  __device__ static float decode(uint32_t bits) {
    const uint32_t code = bits & 0x7fu;
    const float magnitude = code < 8 ? static_cast<float>(code) * 0x1p-9f
                                     : __uint_as_float((code << 20) + (120u << 23));
    return (bits & 0x80u) != 0 ? -magnitude : magnitude;
  }
  __device__ void read(int64_t row, int unit, int lane, float (&v)[kPerLane]) const {
    const float* scale = scales + row / block * scale_stride;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int k = input(unit, lane, j);
      v[j] = k < cols ? decode(codes[row * stride + k]) * scale[k / block] : 0.0f;
    }
  }
};

// Lane l reads word l % 16 of block l / 16 of the unit (tensor/weight.h).
struct Int4Weight {
  const uint8_t* codes;
  const float* scales;
  const uint8_t* zeros;
  int64_t stride, scale_stride, zero_stride;
  int cols, group, groups, strip;
  explicit Int4Weight(const WeightView& w)
      : codes(reinterpret_cast<const uint8_t*>(w.codes.data)),
        scales(w.scales.row<float>(0)),
        zeros(w.zeros.empty() ? nullptr : w.zeros.row<uint8_t>(0)),
        stride(w.codes.row_stride),
        scale_stride(w.scales.row_stride),
        zero_stride(w.zeros.row_stride),
        cols(w.cols),
        group(w.group),
        groups(w.scales.cols()),
        strip(w.strip) {}

  __device__ static int input(int unit, int lane, int j) {
    return unit * kUnit + lane / 16 * kInt4Block + j * 16 + lane % 16;
  }
  __device__ void read(int64_t row, int unit, int lane, float (&v)[kPerLane]) const {
    const int first = unit * kUnit + lane / 16 * kInt4Block;  // of the lane's block
    if (first >= cols) {
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) v[j] = 0;
      return;
    }
    const int64_t in_strip = row & (strip - 1), top = row - in_strip;
    const int64_t block = (first / kInt4Block * strip + in_strip) * (kInt4Block / 2);
    const uint32_t word =
        *reinterpret_cast<const uint32_t*>(codes + top * stride + block + lane % 16 * 4);
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int g = min((first + j * 16) / group, groups - 1);
      const int64_t at = g * strip + in_strip;
      const int zero = zeros == nullptr ? 8 : zeros[top * zero_stride + at];
      v[j] = static_cast<float>(static_cast<int>(word >> (4 * j) & 15u) - zero) *
             scales[top * scale_stride + at];
    }
  }
};

// Lane l reads inputs 8 l… of the unit.
struct Int8Weight {
  const uint8_t* codes;
  const float* scales;
  int64_t stride, scale_stride;
  int cols, group, strip;
  explicit Int8Weight(const WeightView& w)
      : codes(reinterpret_cast<const uint8_t*>(w.codes.data)),
        scales(w.scales.row<float>(0)),
        stride(w.codes.row_stride),
        scale_stride(w.scales.row_stride),
        cols(w.cols),
        group(w.group),
        strip(w.strip) {}

  __device__ static int input(int unit, int lane, int j) {
    return unit * kUnit + lane * kPerLane + j;
  }
  __device__ void read(int64_t row, int unit, int lane, float (&v)[kPerLane]) const {
    const int first = input(unit, lane, 0);
    uint2 raw = make_uint2(0x80808080u, 0x80808080u);
    float scale = 0;
    if (first < cols) {
      const int64_t in_strip = row & (strip - 1), top = row - in_strip;
      raw = __ldg(reinterpret_cast<const uint2*>(
          codes + top * stride + (first / kStripBytes * strip + in_strip) * kStripBytes +
          first % kStripBytes));
      scale = scales[top * scale_stride + first / group * strip + in_strip];
    }
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const uint32_t word = j < 4 ? raw.x : raw.y;
      v[j] = static_cast<float>(static_cast<int>(word >> (j % 4 * 8) & 255u) - kInt8Zero) * scale;
    }
  }
};

// Dot products of one weight row with R rows of x; every lane gets the sums. The order depends on
// K and the layout only.
template <class Weight, int R>
__device__ void warp_dot(const Weight& w, int64_t weight_row, const ConstRows& x, int64_t first,
                         float (&sum)[R]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int r = 0; r < R; ++r) sum[r] = 0;
  for (int unit = 0; unit * kUnit < w.cols; ++unit) {
    float v[kPerLane];
    w.read(weight_row, unit, lane, v);
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int k = Weight::input(unit, lane, j);
      if (k >= w.cols) continue;
#pragma unroll
      for (int r = 0; r < R; ++r) sum[r] += v[j] * x.row(first + r)[k];
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) sum[r] = warp_sum(sum[r]);
}

// Calls body(reader) with the reader of the weight's layout.
template <class Body>
void with_weight(const WeightView& w, const Body& body) {
  switch (w.layout) {
    case WeightLayout::kInt4Group:
      return body(Int4Weight(w));
    case WeightLayout::kInt8Group:
      return body(Int8Weight(w));
    case WeightLayout::kFp8Block:
      return body(Fp8Weight(w));
    case WeightLayout::kDense:
      if (w.codes.dtype == DType::kBF16) return body(DenseWeight<__nv_bfloat16>(w));
      if (w.codes.dtype == DType::kF16) return body(DenseWeight<__half>(w));
      return body(DenseWeight<float>(w));
  }
}

}  // namespace exode::cuda
