// Random weight matrices of every layout, packed as the loader would.
#pragma once

#include <string>

#include "ops/harness.h"
#include "tensor/weight.h"

namespace exode::testing {

struct WeightCase {
  WeightLayout layout = WeightLayout::kDense;
  DType dtype = DType::kF32;  // dense
  int32_t group = 0;
  bool zeros = false;
  std::string name() const {
    switch (layout) {
      case WeightLayout::kDense:
        return std::string(dtype_name(dtype));
      case WeightLayout::kInt4Group:
        return "int4g" + std::to_string(group) + (zeros ? "z" : "");
      case WeightLayout::kInt8Group:
        return "int8g" + std::to_string(group);
      case WeightLayout::kFp8Block:
        return "fp8";
    }
    return "";
  }
};

inline std::vector<WeightCase> weight_cases() {
  std::vector<WeightCase> cases{{WeightLayout::kDense, DType::kF32},
                                {WeightLayout::kDense, DType::kBF16},
                                {WeightLayout::kDense, DType::kF16},
                                {WeightLayout::kFp8Block, DType::kFp8E4M3, 128}};
  for (int32_t group : {32, 64, 128, 256}) {
    cases.push_back({WeightLayout::kInt4Group, DType::kU8, group, false});
    cases.push_back({WeightLayout::kInt4Group, DType::kU8, group, true});
  }
  for (int32_t group : {128, 256}) cases.push_back({WeightLayout::kInt8Group, DType::kU8, group});
  return cases;
}

// Owns what a WeightView points to.
class RandomWeight {
 public:
  RandomWeight(const WeightCase& c, int32_t rows, int32_t cols, uint64_t seed)
      : codes_(make_codes(c, rows, cols, seed)),
        scales_(make_scales(c, rows, cols, seed)),
        zeros_(DType::kU8, {rows, groups(c, cols)}) {
    view_ = {.layout = c.layout,
             .rows = rows,
             .cols = cols,
             .group = c.group,
             .codes = codes_.cview(),
             .scales = {},
             .zeros = {}};
    if (c.layout != WeightLayout::kDense) view_.scales = scales_.cview();
    if (!c.zeros) return;
    for (int64_t i = 0; i < zeros_.size(); ++i) {
      zeros_.set(i, static_cast<float>(random_bits(seed + 3, static_cast<uint64_t>(i)) % 17));
    }
    view_.zeros = zeros_.cview();
  }
  const WeightView& view() const { return view_; }

 private:
  static int32_t groups(const WeightCase& c, int32_t cols) {
    return c.group > 0 ? (cols + c.group - 1) / c.group : 1;
  }
  static HostTensor make_codes(const WeightCase& c, int32_t rows, int32_t cols, uint64_t seed) {
    if (c.layout == WeightLayout::kInt8Group) return make_int8_codes(rows, cols, seed);
    if (c.layout != WeightLayout::kInt4Group) return HostTensor(c.dtype, {rows, cols}).fill(seed);
    const int32_t blocks = (cols + kInt4Block - 1) / kInt4Block;
    HostTensor t(DType::kU8, {rows, blocks * kInt4Block / 2});
    for (int64_t i = 0; i < t.size(); ++i)
      t.set(i, static_cast<float>(random_bits(seed, static_cast<uint64_t>(i)) & 255));
    pad(t, rows, cols, blocks);
    return t;
  }
  static HostTensor make_int8_codes(int32_t rows, int32_t cols, uint64_t seed) {
    const int32_t width = (cols + kInt8Block - 1) / kInt8Block * kInt8Block;
    HostTensor t(DType::kU8, {rows, width});
    for (int64_t i = 0; i < t.size(); ++i) {
      const auto code = static_cast<float>(random_bits(seed, static_cast<uint64_t>(i)) & 255);
      t.set(i, i % width < cols ? code : static_cast<float>(kInt8Zero));
    }
    return t;
  }
  // Codes of inputs past the end are 8.
  static void pad(HostTensor& t, int32_t rows, int32_t cols, int32_t blocks) {
    for (int32_t r = 0; r < rows; ++r) {
      for (int32_t k = cols; k < blocks * kInt4Block; ++k) {
        const int32_t in_block = k % kInt4Block, nibble = in_block / 16;
        const int64_t at =
            int64_t{r} * blocks * 64 + k / kInt4Block * 64 + in_block % 16 * 4 + nibble / 2;
        const int old = static_cast<int>(t.get(at));
        t.set(at, static_cast<float>(nibble % 2 == 0 ? (old & 0xf0) | 8 : (old & 0x0f) | 0x80));
      }
    }
  }
  static HostTensor make_scales(const WeightCase& c, int32_t rows, int32_t cols, uint64_t seed) {
    const int32_t scale_rows =
        c.layout == WeightLayout::kFp8Block ? (rows + c.group - 1) / c.group : rows;
    return HostTensor(DType::kF32, {scale_rows, groups(c, cols)}).fill(seed + 7, -0.1f, 0.1f);
  }
  HostTensor codes_, scales_, zeros_;
  WeightView view_;
};

// A kInt4Group weight with the rows of each strip lying block by block (tensor/weight.h).
class StripedWeight {
 public:
  StripedWeight(const WeightView& plain, int32_t strip) : view_(plain) {
    view_.strip = strip;
    codes_ = interleaved(plain.codes, strip, kInt4Block / 2, view_.codes);
    scales_ = interleaved(plain.scales, strip, 1, view_.scales);
    if (!plain.zeros.empty()) zeros_ = interleaved(plain.zeros, strip, 1, view_.zeros);
  }
  const WeightView& view() const { return view_; }

 private:
  static HostTensor interleaved(const ConstTensorView& plain, int32_t strip, int32_t unit,
                                ConstTensorView& out) {
    HostTensor t(plain.dtype, {plain.rows(), plain.cols()});
    const auto bytes = static_cast<int64_t>(dtype_bytes(plain.dtype)) * unit;
    const int64_t units = plain.cols() / unit;
    for (int64_t r = 0; r < plain.rows(); ++r) {
      const int64_t in_strip = r % strip, first = (r - in_strip) * units;
      for (int64_t u = 0; u < units; ++u) {
        std::memcpy(t.view().data + (first + u * strip + in_strip) * bytes,
                    plain.row<std::byte>(0) + (r * units + u) * bytes, static_cast<size_t>(bytes));
      }
    }
    out.data = t.cview().data;
    return t;
  }
  WeightView view_;
  HostTensor codes_{DType::kU8, {0}}, scales_{DType::kF32, {0}}, zeros_{DType::kU8, {0}};
};

}  // namespace exode::testing
