// What a matmul kernel sees of a weight matrix W [rows = outputs N, cols = inputs K], y = x Wᵀ.
// Checkpoint formats are gone by now; the packers of weights/pack.h produce these layouts.
//
//   kDense      codes [N, K] in f32, f16 or bf16.
//   kInt4Group  codes u8 [N, Kp/2] with Kp = K rounded up to 128. Each row is a run of 64-byte
//               blocks, one per 128 inputs, read as 16 little-endian u32 words: bits 4j…4j+3 of
//               word i hold the code of input k = 16 j + i of the block. So one 64-byte load
//               shifted by 4j gives 16 consecutive inputs in 32-bit lanes. Padding codes are 8.
//               scales f32 [N, ceil(K/group)], any sign. zeros u8 [N, ceil(K/group)], 0…16, or
//               empty: every zero is 8.  W[n,k] = scale[n, k/group] · (code − zero).
//               group is 32, 64, 128 or a multiple of 128.
//               With strip > 1 the rows of a strip of that many lie block by block, so that a strip
//               is read as one stream: block b of row r is the 64 bytes at
//               (r − r % strip) · Kp/2 + (b · strip + r % strip) · 64, and scales (and zeros)
//               likewise with one element a group. N is then a multiple of strip.
//   kInt8Group  codes u8 [N, Kp], in the order of inputs; padding codes are 128. scales f32
//               [N, ceil(K/group)].  W[n,k] = scale[n, k/group] · (code − 128).
//               group is a multiple of 128; Kp is K rounded up to 128. strip as above: the
//               blocks are of 64 bytes here too, and hold 64 inputs.
//   kFp8Block   codes e4m3 [N, K]; scales f32 [ceil(N/block), ceil(K/block)], block = group (128).
//               W[n,k] = e4m3(code) · scale[n/block, k/block].
//
// A stack of E expert matrices is one WeightView with rows = E·N (experts one after another).
#pragma once

#include "tensor/tensor.h"

namespace exode {

inline constexpr int32_t kInt4Block = 128;  // inputs per 64-byte block of kInt4Group
inline constexpr int32_t kInt8Block = 128;  // inputs to a multiple of which kInt8Group is padded
inline constexpr int32_t kInt8Zero = 128;   // its code of zero
inline constexpr int32_t kStripBytes = 64;  // of one row, before the next row of a strip

enum class WeightLayout : uint8_t { kDense, kInt4Group, kInt8Group, kFp8Block };

struct WeightView {
  WeightLayout layout = WeightLayout::kDense;
  int32_t rows = 0, cols = 0;  // N, K
  int32_t group = 0;           // inputs per scale; 0 for kDense
  int32_t strip = 1;           // kInt4Group, kInt8Group: rows interleaved; a power of two
  ConstTensorView codes, scales, zeros;

  bool empty() const { return codes.empty(); }
  // Rows [first, first + count). `first` must be a multiple of strip, and for kFp8Block of the
  // block.
  WeightView slice_rows(int32_t first, int32_t count) const {
    WeightView w = *this;
    w.rows = count;
    w.codes = codes.slice_rows(first, count);
    const int32_t per = layout == WeightLayout::kFp8Block ? group : 1;
    if (!scales.empty()) w.scales = scales.slice_rows(first / per, (count + per - 1) / per);
    if (!zeros.empty()) w.zeros = zeros.slice_rows(first, count);
    return w;
  }
};

}  // namespace exode
