// Matmuls of few rows on CUDA, for every weight layout: the streamed kernels against the exact
// ones, the exact ones against the host, rows alone against rows together, and times.
#include "base/half.h"
#include "cuda/small_ops.h"

namespace exode::bench {
namespace {

struct Layout {
  WeightLayout layout = WeightLayout::kInt4Group;
  DType dtype = DType::kU8;
  int32_t group = 0, strip = 1;
  bool zeros = false;
  std::string name() const {
    switch (layout) {
      case WeightLayout::kDense:
        return std::string(dtype_name(dtype));
      case WeightLayout::kFp8Block:
        return "fp8";
      case WeightLayout::kInt8Group:
        return fmt::format("int8 g{} strip {}", group, strip);
      case WeightLayout::kInt4Group:
        return fmt::format("int4{} g{} strip {}", zeros ? "z" : "", group, strip);
    }
    return "";
  }
  int32_t row_bytes(int32_t cols) const {
    const int32_t padded = (cols + 127) / 128 * 128;
    if (layout == WeightLayout::kDense) return cols * static_cast<int32_t>(dtype_bytes(dtype));
    return layout == WeightLayout::kInt4Group ? padded / 2 : padded;
  }
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kLayouts = [] {
    std::vector<Layout> all{{WeightLayout::kDense, DType::kBF16},
                            {WeightLayout::kDense, DType::kF16}};
    for (int32_t strip : {1, 32}) {
      for (int32_t group : {128, 256}) {
        all.push_back({WeightLayout::kInt8Group, DType::kU8, group, strip});
      }
      for (int32_t group : {32, 64, 128, 256}) {
        for (bool zeros : {false, true}) {
          all.push_back({WeightLayout::kInt4Group, DType::kU8, group, strip, zeros});
        }
      }
    }
    return all;
  }();
  return kLayouts;
}

// Host and device copies of one matrix. Padding codes stand for zero.
class Matrix {
 public:
  Matrix(Lab& lab, const Layout& layout, int32_t rows, int32_t cols) : layout_(layout) {
    const int32_t row_bytes = layout.row_bytes(cols);
    codes_.resize(static_cast<size_t>(rows) * static_cast<size_t>(row_bytes));
    fill_codes(rows, cols, row_bytes);
    device_codes_ = lab.upload(codes_);
    view_.layout = layout.layout;
    view_.rows = rows;
    view_.cols = cols;
    const auto width = row_bytes / static_cast<int32_t>(dtype_bytes(layout.dtype));
    view_.codes =
        dense_view(std::as_const(device_codes_).bytes().data(), layout.dtype, {rows, width});
    if (layout.group == 0) return;
    view_.group = layout.group;
    view_.strip = layout.strip;
    const int32_t groups = (cols + layout.group - 1) / layout.group;
    const auto count = static_cast<size_t>(rows) * static_cast<size_t>(groups);
    for (size_t i = 0; i < count; ++i) scales_.push_back(random_unit(2, i) * 0.02f - 0.01f);
    device_scales_ = lab.upload(scales_);
    view_.scales =
        dense_view(std::as_const(device_scales_).bytes().data(), DType::kF32, {rows, groups});
    if (!layout.zeros) return;
    for (size_t i = 0; i < count; ++i) {
      zeros_.push_back(static_cast<uint8_t>(random_bits(3, i) % 17));
    }
    device_zeros_ = lab.upload(zeros_);
    view_.zeros =
        dense_view(std::as_const(device_zeros_).bytes().data(), DType::kU8, {rows, groups});
  }
  const WeightView& view() const { return view_; }

  double at(int32_t n, int32_t k) const {
    const int32_t row_bytes = layout_.row_bytes(view_.cols);
    if (layout_.layout == WeightLayout::kDense) {
      const uint8_t* p = codes_.data() + int64_t{n} * row_bytes + 2 * k;
      const auto bits = static_cast<uint16_t>(p[0] | p[1] << 8);
      return layout_.dtype == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
    }
    const int32_t strip = layout_.strip, in_strip = n % strip, top = n - in_strip;
    const int32_t groups = view_.scales.cols();
    const int64_t g = int64_t{top} * groups + k / layout_.group * strip + in_strip;
    const bool is_int8 = layout_.layout == WeightLayout::kInt8Group;
    const int32_t block = is_int8 ? k / 64 : k / 128;
    const uint8_t* p = codes_.data() + int64_t{top} * row_bytes + (block * strip + in_strip) * 64;
    if (is_int8) return (p[k % 64] - 128) * static_cast<double>(scales_[static_cast<size_t>(g)]);
    const int32_t nibble = k % 128 / 16, byte = p[k % 16 * 4 + nibble / 2];
    const int32_t code = nibble % 2 == 0 ? byte & 15 : byte >> 4;
    const int32_t zero = layout_.zeros ? zeros_[static_cast<size_t>(g)] : 8;
    return (code - zero) * static_cast<double>(scales_[static_cast<size_t>(g)]);
  }

 private:
  void fill_codes(int32_t rows, int32_t cols, int32_t row_bytes) {
    for (size_t i = 0; i < codes_.size(); ++i) {
      codes_[i] = static_cast<uint8_t>(random_bits(1, i));
    }
    if (layout_.layout != WeightLayout::kDense) {
      // Whole blocks only in strips: then every byte is a code.
      for (int32_t n = 0; n < rows && cols % 128 != 0; ++n) pad(n, cols, row_bytes);
      return;
    }
    for (size_t i = 0; i < codes_.size() / 2; ++i) {
      const float value = random_unit(1, i) * 0.1f - 0.05f;
      const uint16_t bits =
          layout_.dtype == DType::kBF16 ? float_to_bf16(value) : float_to_f16(value);
      codes_[2 * i] = static_cast<uint8_t>(bits);
      codes_[2 * i + 1] = static_cast<uint8_t>(bits >> 8);
    }
  }
  void pad(int32_t n, int32_t cols, int32_t row_bytes) {
    const int32_t strip = layout_.strip, in_strip = n % strip, top = n - in_strip;
    const bool is_int8 = layout_.layout == WeightLayout::kInt8Group;
    for (int32_t k = cols; k < (cols + 127) / 128 * 128; ++k) {
      const int32_t block = is_int8 ? k / 64 : k / 128;
      uint8_t* p = codes_.data() + int64_t{top} * row_bytes + (block * strip + in_strip) * 64;
      if (is_int8) {
        p[k % 64] = 128;
        continue;
      }
      const int32_t nibble = k % 128 / 16;
      uint8_t& byte = p[k % 16 * 4 + nibble / 2];
      byte = static_cast<uint8_t>(nibble % 2 == 0 ? (byte & 0xf0) | 8 : (byte & 0x0f) | 0x80);
    }
  }

  Layout layout_;
  std::vector<uint8_t> codes_, zeros_;
  std::vector<float> scales_;
  Buffer device_codes_, device_scales_, device_zeros_;
  WeightView view_;
};

constexpr int32_t kRowsMax = 33;

void check_matrix(Lab& lab, const Layout& layout, int32_t outputs, int32_t inputs) {
  const Matrix matrix(lab, layout, outputs, inputs);
  const auto count = static_cast<size_t>(kRowsMax * inputs);
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = random_unit(5, i) * 2 - 1;
  const Buffer device_x = lab.upload(x);
  const Buffer device_out = lab.take(static_cast<size_t>(kRowsMax * outputs) * sizeof(float));
  const auto run = [&](const OpTable& table, int32_t first, int32_t rows) {
    const ConstTensorView all =
        dense_view(std::as_const(device_x).bytes().data(), DType::kF32, {kRowsMax, inputs});
    lab.run(table, ops::MatMul{
                       .x = all.slice_rows(first, rows),
                       .w = matrix.view(),
                       .out = dense_view(device_out.bytes().data(), DType::kF32, {rows, outputs})});
    return lab.download<float>(device_out, static_cast<size_t>(rows * outputs));
  };
  const std::string what = fmt::format("{} {}x{}", layout.name(), outputs, inputs);
  const std::vector<float> exact = run(lab.exact(), 0, kRowsMax);
  std::vector<float> expected;
  for (int32_t n = 0; n < outputs; ++n) {
    double sum = 0;
    for (int32_t k = 0; k < inputs; ++k) sum += matrix.at(n, k) * x[static_cast<size_t>(k)];
    expected.push_back(static_cast<float>(sum));
  }
  const double host = nmse({exact.begin(), exact.begin() + outputs}, expected);
  double worst = 0;
  for (const int32_t rows : {1, 2, 7, 8, 9, 16, 17, 32, 33}) {
    const std::vector<float> fast = run(lab.fast(), 0, rows);
    worst = std::max(worst, nmse(fast, {exact.begin(), exact.begin() + int64_t{rows} * outputs}));
  }
  bool same = true;
  const std::vector<float> together = run(lab.fast(), 0, 8);
  for (int32_t rows = 1; rows < 8; ++rows) {
    const std::vector<float> few = run(lab.fast(), 8 - rows, rows);
    same = same && std::equal(few.begin(), few.end(), together.end() - int64_t{rows} * outputs);
  }
  lab.check(
      host < 1e-10 && worst < 3e-7 && same,
      fmt::format("matmul {}: exact {:.1e}, fast {:.1e}, same bits {}", what, host, worst, same));
}

struct Timed {
  const char* what;
  Layout layout;
  int32_t outputs, inputs;
  bool exact = false;
};

// Weights rotate through a pool far larger than the L2 cache.
class Pool {
 public:
  explicit Pool(Lab& lab) : lab_(lab), memory_(lab.take(kBytes)), scales_(lab.take(kBytes / 8)) {
    std::vector<uint16_t> period(8 << 20);
    for (size_t i = 0; i < period.size(); ++i) {
      period[i] = float_to_bf16(random_unit(1, i) * 0.1f - 0.05f);  // small in f16 too
    }
    tile(memory_, std::as_bytes(std::span(period)));
    std::vector<float> scales(1 << 20);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f * random_unit(2, i);
    tile(scales_, std::as_bytes(std::span(scales)));
  }
  WeightView view(const Timed& t, int i) const {
    WeightView w;
    w.layout = t.layout.layout;
    w.rows = t.outputs;
    w.cols = t.inputs;
    const int64_t bytes = int64_t{t.layout.row_bytes(t.inputs)} * t.outputs;
    const auto* codes = memory_.bytes().data() + i % copies(t) * bytes;
    w.codes = dense_view(static_cast<const std::byte*>(codes), t.layout.dtype,
                         {t.outputs, t.layout.row_bytes(t.inputs) /
                                         static_cast<int32_t>(dtype_bytes(t.layout.dtype))});
    if (t.layout.group == 0) return w;
    w.group = t.layout.group;
    w.strip = t.layout.strip;
    const int32_t groups = t.inputs / w.group;
    const auto* scales = scales_.bytes().data() + i % copies(t) * int64_t{t.outputs} * groups * 4;
    w.scales = dense_view(static_cast<const std::byte*>(scales), DType::kF32, {t.outputs, groups});
    return w;
  }
  static int copies(const Timed& t) {
    const int64_t bytes = int64_t{t.layout.row_bytes(t.inputs)} * t.outputs;
    const int64_t scale_bytes =
        t.layout.group > 0 ? int64_t{4} * t.outputs * t.inputs / t.layout.group : 1;
    const auto pool = static_cast<int64_t>(kBytes);
    return static_cast<int>(std::min({int64_t{64}, pool / bytes, pool / 8 / scale_bytes}));
  }

 private:
  static constexpr size_t kBytes = size_t{2600} << 20;
  void tile(const Buffer& buffer, std::span<const std::byte> period) {
    for (size_t at = 0; at < buffer.bytes().size(); at += period.size()) {
      const size_t n = std::min(period.size(), buffer.bytes().size() - at);
      lab_.device().copy_in(buffer.bytes().subspan(at, n), period.first(n));
    }
  }
  Lab& lab_;
  Buffer memory_, scales_;
};

std::vector<Timed> timed_cases() {
  const Layout bf16{WeightLayout::kDense, DType::kBF16}, f16{WeightLayout::kDense, DType::kF16};
  const auto int8 = [](int32_t strip) {
    return Layout{WeightLayout::kInt8Group, DType::kU8, 128, strip};
  };
  const auto int4 = [](int32_t group, int32_t strip) {
    return Layout{WeightLayout::kInt4Group, DType::kU8, group, strip};
  };
  std::vector<Timed> cases{{"head", int8(1), 248320, 5120},
                           {"head", int8(32), 248320, 5120},
                           {"head", int4(128, 1), 248320, 5120},
                           {"head", int4(128, 32), 248320, 5120},
                           {"head", bf16, 248320, 5120},
                           {"head", bf16, 248320, 5120, true},
                           {"head", f16, 248320, 5120},
                           {"0.8B head", bf16, 248320, 1024},
                           {"0.8B gate_up", bf16, 7168, 1024},
                           {"0.8B down", bf16, 1024, 3584},
                           {"0.8B down", bf16, 1024, 3584, true},
                           {"0.8B qkvz", bf16, 8192, 1024},
                           {"0.8B qkvz", bf16, 8192, 1024, true},
                           {"0.8B out", bf16, 1024, 2048},
                           {"0.8B out", bf16, 1024, 2048, true},
                           {"b/a", bf16, 96, 5120},
                           {"router", bf16, 257, 2048}};
  for (int32_t strip : {1, 32}) {
    cases.push_back({"gate_up", int4(128, strip), 34816, 5120});
    cases.push_back({"gdn qkv+z", int4(128, strip), 16384, 5120});
    cases.push_back({"down", int4(128, strip), 5120, 17408});
    cases.push_back({"out", int4(128, strip), 5120, 6144});
    cases.push_back({"gate_up", int4(64, strip), 34816, 5120});
    cases.push_back({"gate_up", int4(32, strip), 34816, 5120});
  }
  return cases;
}

}  // namespace

void check_stream(Lab& lab) {
  for (const Layout& layout : layouts()) {
    check_matrix(lab, layout, 4160, 1024);
    check_matrix(lab, layout, 64, 17408);
    if (layout.layout == WeightLayout::kDense) {
      check_matrix(lab, layout, 1237, 2080);
      check_matrix(lab, layout, 37, 500);
      continue;
    }
    check_matrix(lab, layout, 96, 320);
    if (layout.strip > 1) continue;
    check_matrix(lab, layout, 37, 200);
    check_matrix(lab, layout, 5, 129);
  }
}

void time_stream(Lab& lab) {
  const Pool pool(lab);
  const Buffer x = lab.uniform(32 * 17408, 3, -1, 1);
  const Buffer out = lab.take(size_t{32} * 248320 * sizeof(float));
  for (const Timed& t : timed_cases()) {
    const double bytes = static_cast<double>(t.layout.row_bytes(t.inputs)) * t.outputs +
                         (t.layout.group > 0 ? 4.0 * t.outputs * t.inputs / t.layout.group : 0);
    std::string line = fmt::format("{:<13}{:<20}{:>7}x{:<6}{:<6}", t.what, t.layout.name(),
                                   t.outputs, t.inputs, t.exact ? "exact" : "");
    for (const int32_t rows : {1, 2, 4, 8, 16, 32}) {
      if (rows > 8 && (t.exact || t.outputs > 100000)) continue;
      const int count = bytes > 2e8 ? 4 : 2 * Pool::copies(t);
      const double us = lab.time(count, [&](int i) {
        lab.run(t.exact ? lab.exact() : lab.fast(),
                ops::MatMul{
                    .x = dense_view(std::as_const(x).bytes().data(), DType::kF32, {rows, t.inputs}),
                    .w = pool.view(t, i),
                    .out = dense_view(out.bytes().data(), DType::kF32, {rows, t.outputs})});
      });
      line += fmt::format("  {}: {:.1f} us {:.0f} GB/s", rows, us, bytes / us / 1e3);
    }
    fmt::print("{}\n", line);
  }
}

}  // namespace exode::bench
