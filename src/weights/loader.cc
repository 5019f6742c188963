#include "weights/loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/log.h"
#include "weights/decode.h"
#include "weights/pack.h"
#include "weights/row_units.h"
#include "weights/staging.h"
#include "weights/synthetic.h"

namespace exode {
namespace {

constexpr int32_t kFp8Block = 128;
constexpr int32_t kThreadsMax = 16;  // more gain nothing on top of memory and bus

bool same_geometry(const HostWeight& a, const HostWeight& b) {
  return a.layout == b.layout && a.group == b.group &&
         (a.layout != WeightLayout::kDense || a.dtype == b.dtype);
}

// A block of scales covers 128 rows, so only whole blocks can move; the last may be short.
bool fp8_aligned(const std::vector<RowRange>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool ends_block = parts[i].count % kFp8Block == 0 || i + 1 == parts.size();
    if (parts[i].first % kFp8Block != 0 || !ends_block) return false;
  }
  return true;
}

}  // namespace

WeightLoader::WeightLoader(Mode mode, const Checkpoint& checkpoint, Arena& arena, Device& device,
                           LoadOptions options)
    : mode_(mode),
      checkpoint_(checkpoint),
      arena_(arena),
      device_(device),
      options_(std::move(options)) {
  EXODE_CHECK(kPackRows % options_.strip == 0, "no such strip");
  if (mode == Mode::kPlan) return;
  EXODE_CHECK(!arena.is_counting(), "loading needs real memory");
  if (device.backend() == Backend::kCuda) {
    const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
    own_pool_ = std::make_unique<ThreadPool>(std::clamp(cores, 1, kThreadsMax));
    pool_ = own_pool_.get();
  } else {
    pool_ = &device.stream().pool();
  }
  staging_ = std::make_unique<Staging>(device, pool_);
}

WeightLoader::~WeightLoader() { finish(); }

void WeightLoader::finish() {
  if (staging_ != nullptr) staging_->finish();
}

bool WeightLoader::has_module(const std::string& module) const {
  return find_format(checkpoint_, module) != nullptr;
}

bool WeightLoader::has_tensor(const std::string& name) const {
  return checkpoint_.find(name) != nullptr;
}

void WeightLoader::mark_used(const std::string& tensor) {
  if (!used_.insert(tensor).second) return;
  const RawTensor* raw = checkpoint_.find(tensor);
  EXODE_CHECK(raw != nullptr, tensor);
  consumed_bytes_ += raw->bytes();
  if (options_.progress) options_.progress(consumed_bytes_);
}

Result<HostWeight> WeightLoader::read(const std::string& module, int32_t rows, int32_t cols,
                                      ReadMode mode) {
  const WeightFormat* format = find_format(checkpoint_, module);
  if (format == nullptr) {
    return not_found(fmt::format("{}: the checkpoint has no weights for {} in any supported format",
                                 checkpoint_.directory(), module));
  }
  std::vector<std::string> names;
  Result<HostWeight> weight = format->read({.checkpoint = checkpoint_,
                                            .module = module,
                                            .rows = rows,
                                            .cols = cols,
                                            .mode = mode,
                                            .pool = pool_},
                                           names);
  if (!weight.ok()) {
    return Error{weight.error().code,
                 fmt::format("{}: {}", checkpoint_.directory(), weight.error().message)};
  }
  for (const std::string& name : names) mark_used(name);
  if (counted_modules_.insert(module).second) ++format_counts_[std::string(format->name)];
  return weight;
}

Result<WeightView> WeightLoader::linear(const std::string& module, int32_t rows, int32_t cols) {
  return stacked({{.module = module, .first = 0, .count = rows, .module_rows = rows}}, cols);
}

Result<WeightLoader::Modules> WeightLoader::describe(const std::vector<RowRange>& parts,
                                                     int32_t cols) {
  Modules modules;
  for (const RowRange& part : parts) {
    EXODE_CHECK(part.first >= 0 && part.count > 0 && part.count <= part.module_rows - part.first,
                part.module);
    const auto known = modules.find(part.module);
    if (known != modules.end()) {
      EXODE_CHECK(known->second.rows == part.module_rows, part.module);
      continue;
    }
    EXODE_ASSIGN(HostWeight weight, read(part.module, part.module_rows, cols, ReadMode::kDescribe));
    modules.emplace(part.module, std::move(weight));
  }
  return modules;
}

Result<WeightView> WeightLoader::stacked(const std::vector<RowRange>& parts, int32_t cols) {
  EXODE_CHECK(!parts.empty() && cols > 0, "nothing to stack");
  EXODE_ASSIGN(const Modules modules, describe(parts, cols));
  HostWeight merged = modules.at(parts[0].module);
  merged.rows = 0;
  merged.has_zeros = false;
  bool same = merged.layout != WeightLayout::kFp8Block || fp8_aligned(parts);
  for (const RowRange& part : parts) {
    const HostWeight& weight = modules.at(part.module);
    same = same && same_geometry(weight, merged);
    merged.has_zeros = merged.has_zeros || weight.has_zeros;
    merged.rows += part.count;
  }
  if (!same) {
    std::vector<std::string> names;
    for (const auto& [name, weight] : modules) names.push_back(name);
    if (mode_ == Mode::kLoad) {
      log_warn("weights",
               fmt::format("stored differently, kept together as f32: {}", fmt::join(names, ", ")));
    }
    merged = HostWeight{
        .layout = WeightLayout::kDense, .dtype = DType::kF32, .rows = merged.rows, .cols = cols};
  }
  const WeightView view = take_view(merged, strip_for(merged, parts));
  if (mode_ == Mode::kLoad && checkpoint_.is_synthetic()) {
    fill_synthetic(device_, parts[0].module, view);
  } else if (mode_ == Mode::kLoad) {
    EXODE_TRY(fill(view, parts));
  }
  return view;
}

// Every part must begin and end with a strip.
int32_t WeightLoader::strip_for(const HostWeight& merged,
                                const std::vector<RowRange>& parts) const {
  if (merged.layout != WeightLayout::kInt4Group) return 1;
  const bool fits = std::all_of(parts.begin(), parts.end(), [this](const RowRange& part) {
    return part.count % options_.strip == 0;
  });
  return fits ? options_.strip : 1;
}

WeightView WeightLoader::take_view(const HostWeight& d, int32_t strip) {
  WeightView view;
  view.strip = strip;
  view.layout = d.layout;
  view.rows = d.rows;
  view.cols = d.cols;
  view.group = d.group;
  const auto place = [this](DType dtype, int32_t rows, int32_t cols) {
    const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(cols) * dtype_bytes(dtype);
    return ConstTensorView(dense_view(arena_.take(bytes).data(), dtype, {rows, cols}));
  };
  if (d.layout == WeightLayout::kDense) {
    view.codes = place(d.dtype, d.rows, d.cols);
    return view;
  }
  if (d.layout == WeightLayout::kFp8Block) {
    view.codes = place(DType::kFp8E4M3, d.rows, d.cols);
    view.scales = place(DType::kF32, (d.rows + d.group - 1) / d.group, d.groups());
    return view;
  }
  const auto row_bytes = static_cast<int32_t>(packed_row_bytes(d.layout, d.dtype, d.cols));
  view.codes = place(DType::kU8, d.rows, row_bytes);
  view.scales = place(DType::kF32, d.rows, d.groups());
  if (d.has_zeros) view.zeros = place(DType::kU8, d.rows, d.groups());
  return view;
}

// Modules are decoded when first needed and dropped after their last range: the stack of all
// experts of a layer never exists a second time.
Status WeightLoader::fill(const WeightView& view, const std::vector<RowRange>& parts) {
  std::map<std::string, int32_t> uses;
  for (const RowRange& part : parts) ++uses[part.module];
  Modules decoded;
  int32_t row = 0;
  for (const RowRange& part : parts) {
    auto it = decoded.find(part.module);
    if (it == decoded.end()) {
      EXODE_ASSIGN(HostWeight weight,
                   read(part.module, part.module_rows, view.cols, ReadMode::kDecode));
      it = decoded.emplace(part.module, std::move(weight)).first;
    }
    EXODE_TRY(write_rows(view, it->second, part, row));
    row += part.count;
    if (--uses[part.module] == 0) decoded.erase(it);
  }
  return Done{};
}

Status WeightLoader::write_rows(const WeightView& view, const HostWeight& weight,
                                const RowRange& range, int32_t row) {
  const WeightView target = view.slice_rows(row, range.count);
  const auto first = static_cast<size_t>(range.first), count = static_cast<size_t>(range.count);
  const auto groups = static_cast<size_t>(weight.groups());
  if (!same_geometry(
          weight,
          HostWeight{.layout = view.layout, .dtype = view.codes.dtype, .group = view.group})) {
    // Mixed parts, or FP8 rows that split a block: the stack is f32.
    const std::vector<float> values = dequantize_rows(weight, range.first, range.count);
    return write(target.codes, std::as_bytes(std::span(values)));
  }
  if (view.layout == WeightLayout::kInt4Group) return write_int4_rows(target, weight, range.first);
  const size_t row_bytes = packed_row_bytes(weight.layout, weight.dtype, weight.cols);
  EXODE_TRY(write(target.codes, weight.dense.subspan(first * row_bytes, count * row_bytes)));
  if (view.layout == WeightLayout::kFp8Block) {
    const auto block = static_cast<size_t>(weight.group);
    const size_t blocks = (count + block - 1) / block;
    EXODE_TRY(write(
        target.scales,
        std::as_bytes(std::span(weight.scales).subspan(first / block * groups, blocks * groups))));
  }
  return Done{};
}

Status WeightLoader::write_int4_rows(const WeightView& target, const HostWeight& weight,
                                     int32_t first) {
  const auto groups = static_cast<size_t>(weight.groups());
  const size_t unit_bytes = kPackRows * packed_row_bytes(weight.layout, weight.dtype, weight.cols);
  EXODE_TRY(
      staging_->write(memory_of(target.codes), unit_bytes, [&](const Units& units, std::byte* out) {
        for_row_units(target, first, units, [&](size_t i, const PackedRows& rows) {
          pack_int4(weight, rows, out + i * unit_bytes);
        });
      }));
  const std::span<const float> scales = weight.scales;
  EXODE_TRY(write_groups(*staging_, target, target.scales, scales, first));
  if (target.zeros.empty()) return Done{};
  const std::vector<uint8_t> eights(
      weight.has_zeros ? 0 : static_cast<size_t>(weight.rows) * groups, kInt4PlainZero);
  const std::span<const uint8_t> zeros = weight.has_zeros ? weight.zeros : eights;
  return write_groups(*staging_, target, target.zeros, zeros, first);
}

Status WeightLoader::write(const ConstTensorView& target, std::span<const std::byte> source) {
  return staging_->write(memory_of(target), source);
}

Result<WeightView> WeightLoader::plain_matrix(const std::string& tensor, int32_t rows,
                                              int32_t cols) {
  const RawTensor* raw = checkpoint_.find(tensor);
  if (raw == nullptr) {
    return not_found(fmt::format("{}: tensor {} is missing", checkpoint_.directory(), tensor));
  }
  const auto dtype = float_dtype(raw->dtype);
  const bool fits =
      !raw->shape.empty() && raw->shape.back() == cols && raw->elements() == int64_t{rows} * cols;
  if (!dtype || !fits) {
    return invalid(
        fmt::format("{}: tensor {} is {} {}, expected BF16, F16 or F32 with {} rows of "
                    "{}",
                    checkpoint_.directory(), tensor, file_dtype_name(raw->dtype),
                    shape_text(raw->shape), rows, cols));
  }
  mark_used(tensor);
  const WeightView view = take_view({.dtype = *dtype, .rows = rows, .cols = cols}, 1);
  if (mode_ == Mode::kLoad && checkpoint_.is_synthetic()) {
    fill_synthetic(device_, tensor, view);
  } else if (mode_ == Mode::kLoad) {
    EXODE_TRY(write(view.codes, raw->data));
  }
  if (counted_modules_.insert(tensor).second) ++format_counts_["plain"];
  return view;
}

Result<WeightView> WeightLoader::embedding(const std::string& module, int32_t rows, int32_t cols) {
  if (options_.embedding_arena == nullptr) return plain_matrix(module + ".weight", rows, cols);
  const bool synthetic = checkpoint_.is_synthetic();
  EXODE_ASSIGN(const HostWeight stored,
               read(module, rows, cols, synthetic ? ReadMode::kDescribe : ReadMode::kDecode));
  if (stored.layout != WeightLayout::kDense) {
    return unsupported(fmt::format("{}: the embedding table is quantised", module));
  }
  const size_t row_bytes = packed_row_bytes(stored.layout, stored.dtype, cols);
  const std::span<std::byte> memory =
      options_.embedding_arena->take(static_cast<size_t>(rows) * row_bytes);
  if (mode_ == Mode::kLoad && !synthetic) {
    for_ranges(pool_, rows, 64, [&](int32_t begin, int32_t end) {
      const size_t from = static_cast<size_t>(begin) * row_bytes;
      std::memcpy(memory.data() + from, stored.dense.data() + from,
                  static_cast<size_t>(end - begin) * row_bytes);
    });
  }
  WeightView view;
  view.rows = rows;
  view.cols = cols;
  view.codes = ConstTensorView(dense_view(memory.data(), stored.dtype, {rows, cols}));
  if (mode_ == Mode::kLoad && synthetic) fill_synthetic(device_, module, view);
  return view;
}

Result<ConstTensorView> WeightLoader::vector_f32(const std::string& tensor, int32_t count) {
  const RawTensor* raw = checkpoint_.find(tensor);
  if (raw == nullptr) {
    return not_found(fmt::format("{}: tensor {} is missing", checkpoint_.directory(), tensor));
  }
  const bool is_float = float_dtype(raw->dtype) || raw->dtype == FileDType::kF64;
  if (!is_float || raw->elements() != count) {
    return invalid(fmt::format("{}: tensor {} is {} {}, expected {} floats",
                               checkpoint_.directory(), tensor, file_dtype_name(raw->dtype),
                               shape_text(raw->shape), count));
  }
  mark_used(tensor);
  std::vector<float> values(static_cast<size_t>(count));
  if (mode_ == Mode::kLoad && checkpoint_.is_synthetic()) {
    synthetic_values(tensor, *raw, values);
  } else if (mode_ == Mode::kLoad) {
    convert_to_f32(*raw, values);
  }
  const std::span<std::byte> memory = arena_.take(values.size() * sizeof(float));
  if (mode_ == Mode::kLoad) {
    EXODE_TRY(staging_->write(memory, std::as_bytes(std::span<const float>(values))));
  }
  return ConstTensorView(dense_view(memory.data(), DType::kF32, {count}));
}

ConstTensorView WeightLoader::constant_f32(std::span<const float> values) {
  const std::span<std::byte> memory = arena_.take(values.size_bytes());
  if (mode_ == Mode::kLoad) device_.copy_in(memory, std::as_bytes(values));
  return dense_view(memory.data(), DType::kF32, {static_cast<int32_t>(values.size())});
}

std::vector<std::string> WeightLoader::unused() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    if (!used_.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace exode
