// The output head: the largest matrix a token reads, and the one that quantised checkpoints tend to
// leave in 16 bits.
#include <fmt/format.h>

#include <vector>

#include "weights/loader.h"
#include "weights/quantize.h"
#include "weights/row_units.h"
#include "weights/synthetic.h"

namespace exode {
namespace {

constexpr int64_t kLargeHead = int64_t{64} << 20;  // elements

std::string_view stored_name(const HostWeight& stored) {
  switch (stored.layout) {
    case WeightLayout::kDense:
      return dtype_name(stored.dtype);
    case WeightLayout::kInt4Group:
      return "int4";
    case WeightLayout::kInt8Group:
      return "int8";
    case WeightLayout::kFp8Block:
      return "fp8";
  }
  return "?";
}

}  // namespace

HeadFormat WeightLoader::choose_head(const HostWeight& stored) {
  const std::string_view name = stored_name(stored);
  const int64_t elements = int64_t{stored.rows} * stored.cols;
  const HeadFormat asked = options_.head;
  if (stored.layout != WeightLayout::kDense) {
    head_report_ = fmt::format("{}, as stored", name);
    if (asked == HeadFormat::kInt8 || asked == HeadFormat::kInt4) {
      head_report_ += "; --head-dtype converts unquantised heads only";
    }
    return HeadFormat::kStored;
  }
  const char* to = asked == HeadFormat::kInt4 ? "int4" : "int8";
  if (asked == HeadFormat::kInt8 || asked == HeadFormat::kInt4) {
    head_report_ = fmt::format("{} from {}, as asked", to, name);
    return asked;
  }
  if (asked == HeadFormat::kAuto && dtype_bytes(stored.dtype) == 2 && elements >= kLargeHead) {
    head_report_ = fmt::format(
        "{} from {}: {:.0f} M weights that every token reads; --head-dtype bf16 keeps them", to,
        name, static_cast<double>(elements) / 1e6);
    return HeadFormat::kInt8;
  }
  head_report_ = fmt::format("{}, as stored", name);
  return HeadFormat::kStored;
}

Result<WeightView> WeightLoader::quantized(const HostWeight& description, const std::string& module,
                                           HeadFormat format) {
  const int32_t rows = description.rows, cols = description.cols;
  const HostWeight made{
      .layout = format == HeadFormat::kInt8 ? WeightLayout::kInt8Group : WeightLayout::kInt4Group,
      .dtype = DType::kU8,
      .rows = rows,
      .cols = cols,
      .group = kQuantizeGroup};
  const WeightView view = take_view(made, rows % options_.strip == 0 ? options_.strip : 1);
  if (mode_ == Mode::kPlan) return view;
  if (checkpoint_.is_synthetic()) {
    fill_synthetic(device_, module, view);
    return view;
  }
  EXODE_ASSIGN(const HostWeight source, read(module, rows, cols, ReadMode::kDecode));
  const auto groups = static_cast<size_t>(made.groups());
  const size_t row_bytes = packed_row_bytes(made.layout, made.dtype, cols);
  std::vector<float> scales(static_cast<size_t>(rows) * groups);
  const size_t unit_bytes = static_cast<size_t>(view.strip) * row_bytes;
  const auto fill = [&](const Units& units, std::byte* out) {
    std::vector<std::byte> codes(row_bytes);
    const int32_t first = units.first * view.strip;
    for (int32_t i = 0; i < units.count * view.strip; ++i) {
      quantize_row(made.layout, dequantize_rows(source, first + i, 1), codes.data(),
                   scales.data() + static_cast<size_t>(first + i) * groups);
      place_row(codes, i, view.strip, out);
    }
  };
  EXODE_TRY(staging_->write(memory_of(view.codes), unit_bytes, fill));
  EXODE_TRY(write_groups(*staging_, view, view.scales, std::span<const float>(scales), 0));
  return view;
}

Result<WeightView> WeightLoader::head(const std::string& module, int32_t rows, int32_t cols) {
  EXODE_ASSIGN(const HostWeight stored, read(module, rows, cols, ReadMode::kDescribe));
  const HeadFormat format = choose_head(stored);
  if (format == HeadFormat::kStored) return linear(module, rows, cols);
  return quantized(stored, module, format);
}

Result<WeightLoader::Tied> WeightLoader::tied_embedding(const std::string& module, int32_t rows,
                                                        int32_t cols) {
  EXODE_ASSIGN(const HostWeight stored, read(module, rows, cols, ReadMode::kDescribe));
  const HeadFormat format = choose_head(stored);
  const bool on_device = options_.embedding_arena == nullptr;
  Tied tied;
  // The embedding op reads dense and int8 tables.
  const bool shared = on_device && format != HeadFormat::kInt4;
  if (format == HeadFormat::kStored) {
    EXODE_ASSIGN(tied.head, linear(module, rows, cols));
  } else {
    EXODE_ASSIGN(tied.head, quantized(stored, module, format));
  }
  if (shared) {
    tied.embedding = tied.head;
    head_report_ += "; the embedding table is the same matrix";
  } else {
    EXODE_ASSIGN(tied.embedding, embedding(module, rows, cols));
  }
  return tied;
}

}  // namespace exode
