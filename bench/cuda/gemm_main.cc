// exode_bench_gemm [check] [time]: matmuls of many rows on a GPU, checked against the exact kernels
// and timed at the shapes of Qwen3.6-27B. Exits non-zero when a check fails.
#include <algorithm>
#include <string_view>

#include "cuda/small_ops.h"
#include "ops/cuda/matmul_stream.h"

namespace {

using namespace exode;
using namespace exode::bench;

struct Kind {
  WeightLayout layout = WeightLayout::kInt4Group;
  DType dtype = DType::kBF16;  // of kDense
  int32_t group = 128;
  bool zeros = false;
  int32_t strip = 1;
  std::string name() const {
    if (layout == WeightLayout::kDense) return std::string(dtype_name(dtype));
    if (layout == WeightLayout::kFp8Block) return "fp8";
    return fmt::format("int4 g{}{} strip {}", group, zeros ? "z" : "", strip);
  }
};

struct Matrix {
  Buffer codes, scales, zeros;
  WeightView view;
};

std::vector<uint32_t> random_codes(const Kind& kind, size_t count, uint64_t seed) {
  std::vector<uint32_t> words(count);
  for (size_t i = 0; i < count; ++i) {
    words[i] = static_cast<uint32_t>(random_bits(seed, i));
    if (kind.layout == WeightLayout::kFp8Block) words[i] &= 0xb7b7b7b7u;  // below 4
    if (kind.layout != WeightLayout::kDense) continue;
    // Any sign and mantissa, magnitudes from 2^-8 to 2^-5.
    const uint32_t exponents = kind.dtype == DType::kF16 ? 0x1c001c00u : 0x3b803b80u;
    const uint32_t free = kind.dtype == DType::kF16 ? 0x8bff8bffu : 0x80ff80ffu;
    words[i] = (words[i] & free) | exponents;
  }
  return words;
}

Matrix make_matrix(Lab& lab, const Kind& kind, int32_t rows, int32_t cols, uint64_t seed) {
  Matrix m;
  WeightView& w = m.view;
  const bool dense = kind.layout == WeightLayout::kDense;
  const int32_t blocks = (cols + kInt4Block - 1) / kInt4Block;
  const int32_t width = kind.layout == WeightLayout::kInt4Group ? 64 * blocks : cols;
  w.layout = kind.layout;
  w.rows = rows;
  w.cols = cols;
  const DType dtype = dense                                    ? kind.dtype
                      : kind.layout == WeightLayout::kFp8Block ? DType::kFp8E4M3
                                                               : DType::kU8;
  const auto bytes = static_cast<size_t>(rows) * static_cast<size_t>(width) * dtype_bytes(dtype);
  m.codes = lab.upload(random_codes(kind, (bytes + 3) / 4, seed));
  w.codes = dense_view(std::as_const(m.codes).bytes().data(), dtype, {rows, width});
  if (dense) return m;
  w.group = kind.group;
  w.strip = kind.strip;
  const bool fp8 = kind.layout == WeightLayout::kFp8Block;
  const int32_t scale_rows = fp8 ? (rows + kind.group - 1) / kind.group : rows;
  const int32_t groups = (cols + kind.group - 1) / kind.group;
  const float scale = fp8 ? 0.2f : 0.01f;  // weights of about 0.04
  m.scales = lab.uniform(static_cast<size_t>(scale_rows) * static_cast<size_t>(groups), seed + 1,
                         -scale, scale);
  w.scales = dense_view(std::as_const(m.scales).bytes().data(), DType::kF32, {scale_rows, groups});
  if (!kind.zeros) return m;
  std::vector<uint8_t> zeros(static_cast<size_t>(rows) * static_cast<size_t>(groups));
  for (size_t i = 0; i < zeros.size(); ++i) {
    zeros[i] = static_cast<uint8_t>(random_bits(seed + 2, i) % 17);
  }
  m.zeros = lab.upload(zeros);
  w.zeros = dense_view(std::as_const(m.zeros).bytes().data(), DType::kU8, {rows, groups});
  return m;
}

class Gemm {
 public:
  Gemm(Lab& lab, int32_t rows_max, int32_t cols_max, int32_t outputs_max)
      : lab_(lab),
        x_(lab.uniform(static_cast<size_t>(rows_max) * static_cast<size_t>(cols_max), 5, -1, 1)),
        out_(lab.take(static_cast<size_t>(rows_max) * static_cast<size_t>(outputs_max) * 4)) {}

  ops::MatMul op(const WeightView& w, int32_t first, int32_t rows) const {
    return {.x = x(w, first, rows), .w = w, .out = out(rows, w.rows)};
  }
  ops::MatMulSwiGlu swiglu(const WeightView& w, int32_t first, int32_t rows) const {
    return {.x = x(w, first, rows), .w = w, .out = out(rows, w.rows / 2)};
  }
  template <class Op>
  std::vector<float> run(const OpTable& table, const Op& op) {
    lab_.run(table, op);
    return lab_.download<float>(
        out_, static_cast<size_t>(op.x.rows()) * static_cast<size_t>(op.out.cols()));
  }

 private:
  ConstTensorView x(const WeightView& w, int32_t first, int32_t rows) const {
    return ConstTensorView(dense_view(x_.bytes().data(), DType::kF32, {first + rows, w.cols}))
        .slice_rows(first, rows);
  }
  TensorView out(int32_t rows, int32_t cols) const {
    return dense_view(out_.bytes().data(), DType::kF32, {rows, cols});
  }
  Lab& lab_;
  Buffer x_, out_;
};

constexpr double kErrorMax = 5e-7;  // inputs and weights rounded to halves

void check_kind(Lab& lab, Gemm& gemm, const Kind& kind, int32_t outputs, int32_t cols) {
  const Matrix m = make_matrix(lab, kind, outputs, cols, 1);
  double worst = 0;
  for (const int32_t rows : {33, 64, 65, 127, 200, 1000}) {
    const auto judge = [&](const auto& op) {
      const std::vector<float> fast = gemm.run(lab.fast(), op);
      const double error = nmse(fast, gemm.run(lab.exact(), op));
      worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
    };
    judge(gemm.op(m.view, 0, rows));
    if (outputs % (2 * kind.strip) == 0) judge(gemm.swiglu(m.view, 0, rows));
  }
  lab.check(worst < kErrorMax,
            fmt::format("{}: [{}, {}], error {:.1e}", kind.name(), outputs, cols, worst));
  const std::vector<float> all = gemm.run(lab.fast(), gemm.op(m.view, 0, 1000));
  for (const int32_t rows : {33, 100, 600}) {
    const int32_t first = 1000 - rows;
    const std::vector<float> part = gemm.run(lab.fast(), gemm.op(m.view, first, rows));
    lab.check(std::equal(part.begin(), part.end(), all.begin() + int64_t{first} * outputs),
              fmt::format("{}: {} rows have the bits they have among 1000", kind.name(), rows));
  }
}

void check(Lab& lab) {
  Gemm gemm(lab, 1000, 5120, 5120);
  for (const int32_t strip : {1, 32}) {
    for (const int32_t group : {32, 64, 128, 256}) {
      for (const bool zeros : {false, true}) {
        const Kind kind{.group = group, .zeros = zeros, .strip = strip};
        for (const int32_t cols : {128, 192, 5120}) check_kind(lab, gemm, kind, 96, cols);
        check_kind(lab, gemm, kind, strip == 1 ? 42 : 1056, 640);
        if (group == 128) check_kind(lab, gemm, kind, 5120, 1280);
      }
    }
  }
  const Kind others[] = {{.layout = WeightLayout::kFp8Block},
                         {.layout = WeightLayout::kDense, .dtype = DType::kBF16},
                         {.layout = WeightLayout::kDense, .dtype = DType::kF16}};
  for (const Kind& kind : others) {
    for (const int32_t cols : {128, 208, 5120}) check_kind(lab, gemm, kind, 96, cols);
    check_kind(lab, gemm, kind, 270, 1280);
  }
}

struct Shape {
  const char* name;
  int32_t outputs, cols;
  bool swiglu = false;
  Kind kind = {.strip = 32};
};
constexpr int32_t kRows[] = {64, 256, 512, 1024, 2048, 4096};

void time_shape(Lab& lab, Gemm& gemm, const Shape& shape) {
  // Matrices in turn, so that none is left in the cache by the call before.
  const int copies = shape.outputs < 1000 ? 1 : shape.outputs < 30000 ? 4 : 2;
  std::vector<Matrix> matrices;
  for (int i = 0; i < copies; ++i) {
    matrices.push_back(make_matrix(lab, shape.kind, shape.outputs, shape.cols, 1));
  }
  fmt::print("{:<26}", fmt::format("{} {}x{}", shape.name, shape.outputs, shape.cols));
  for (const int32_t rows : kRows) {
    const double us = lab.time(4, [&](int i) {
      const WeightView& w = matrices[static_cast<size_t>(i % copies)].view;
      if (shape.swiglu) return lab.run(lab.fast(), gemm.swiglu(w, 0, rows));
      lab.run(lab.fast(), gemm.op(w, 0, rows));
    });
    fmt::print("{:>9.1f}us{:>5.0f}T", us, 2e-6 * rows * shape.outputs * shape.cols / us);
  }
  for (const int32_t rows : {33, 64}) {  // what streaming the weights would take
    if (shape.kind.layout != WeightLayout::kInt4Group) continue;
    const double us = lab.time(4, [&](int i) {
      const WeightView& w = matrices[static_cast<size_t>(i % copies)].view;
      if (shape.swiglu) {
        cuda::stream_launch(lab.device().stream(), gemm.swiglu(w, 0, rows));
      } else {
        cuda::stream_launch(lab.device().stream(), gemm.op(w, 0, rows));
      }
    });
    fmt::print("{:>9.1f}us", us);
  }
  fmt::print("\n");
}

void time(Lab& lab) {
  Gemm gemm(lab, 4096, 17408, 34816);
  const Shape shapes[] = {
      {"gate_up + swiglu", 34816, 5120, true},
      {"down", 5120, 17408},
      {"gdn qkv+z", 16384, 5120},
      {"attention qkv", 14336, 5120},
      {"out", 5120, 6144},
      {"gdn a+b bf16", 96, 5120, false, {.layout = WeightLayout::kDense}},
      {"dense bf16", 5120, 5120, false, {.layout = WeightLayout::kDense}},
  };
  fmt::print("{:<26}", "rows");
  for (const int32_t rows : kRows) fmt::print("{:>17}", rows);
  fmt::print("   stream: 33, 64\n");
  for (const Shape& shape : shapes) time_shape(lab, gemm, shape);
}

}  // namespace

int main(int argc, char** argv) {
  const auto asked = [&](std::string_view part) {
    bool found = argc == 1;
    for (int i = 1; i < argc; ++i) found |= part == argv[i];
    return found;
  };
  Lab lab;
  if (asked("check")) check(lab);
  if (asked("time")) time(lab);
  return lab.failures() == 0 ? 0 : 1;
}
