#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include <simdjson.h>

#include "weights/checkpoint.h"

namespace exode {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr uint64_t kHeaderBytesMax = 100u << 20;
constexpr size_t kDepthMax = 16;  // name → fields → array is 3
constexpr size_t kRankMax = 8;

struct DTypeEntry {
  std::string_view name;
  FileDType dtype;
  size_t bytes;
};
constexpr std::array<DTypeEntry, 12> kDTypes{{
    {"F64", FileDType::kF64, 8},
    {"F32", FileDType::kF32, 4},
    {"F16", FileDType::kF16, 2},
    {"BF16", FileDType::kBF16, 2},
    {"F8_E4M3", FileDType::kF8E4M3, 1},
    {"F8_E5M2", FileDType::kF8E5M2, 1},
    {"I64", FileDType::kI64, 8},
    {"I32", FileDType::kI32, 4},
    {"I16", FileDType::kI16, 2},
    {"I8", FileDType::kI8, 1},
    {"U8", FileDType::kU8, 1},
    {"BOOL", FileDType::kBool, 1},
}};

const DTypeEntry& entry(FileDType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

struct Range {
  uint64_t begin = 0, end = 0;
  std::string name;
};

// One entry of the header before its bytes are looked up.
struct Entry {
  RawTensor tensor;
  uint64_t begin = 0, end = 0;
};

Result<FileDType> read_dtype(const simdjson::dom::object& fields) {
  std::string_view text;
  if (fields["dtype"].get(text) != simdjson::SUCCESS) return invalid("has no dtype");
  for (const DTypeEntry& e : kDTypes) {
    if (e.name == text) return e.dtype;
  }
  return unsupported(fmt::format("has dtype {}, which is not supported", text.substr(0, 32)));
}

// Fills shape and returns the bytes it needs.
Result<uint64_t> read_shape(const simdjson::dom::object& fields, RawTensor& tensor) {
  simdjson::dom::array dims;
  if (fields["shape"].get(dims) != simdjson::SUCCESS) return invalid("has no shape");
  if (dims.size() > kRankMax) {
    return invalid(fmt::format("has more than {} dimensions", kRankMax));
  }
  constexpr uint64_t kBytesMax = std::numeric_limits<int64_t>::max();
  uint64_t bytes = entry(tensor.dtype).bytes;
  for (const simdjson::dom::element dim : dims) {
    int64_t size = 0;
    if (dim.get(size) != simdjson::SUCCESS || size < 0) {
      return invalid("has a dimension that is not a count");
    }
    const auto factor = static_cast<uint64_t>(size);
    if (factor != 0 && bytes > kBytesMax / factor) return invalid("has an impossibly large shape");
    bytes *= factor;
    tensor.shape.push_back(size);
  }
  return bytes;
}

Result<Entry> read_entry(const simdjson::dom::element& element, uint64_t data_bytes) {
  simdjson::dom::object fields;
  if (element.get(fields) != simdjson::SUCCESS) return invalid("is not described by an object");
  Entry result;
  EXODE_ASSIGN(result.tensor.dtype, read_dtype(fields));
  EXODE_ASSIGN(const uint64_t bytes, read_shape(fields, result.tensor));
  simdjson::dom::array offsets;
  if (fields["data_offsets"].get(offsets) != simdjson::SUCCESS || offsets.size() != 2 ||
      offsets.at(0).get(result.begin) != simdjson::SUCCESS ||
      offsets.at(1).get(result.end) != simdjson::SUCCESS) {
    return invalid("has no valid data_offsets");
  }
  if (result.begin > result.end || result.end > data_bytes) {
    return invalid(fmt::format("claims bytes {}…{} of {} bytes of data; the file may be truncated",
                               result.begin, result.end, data_bytes));
  }
  if (result.end - result.begin != bytes) {
    return invalid(
        fmt::format("has {} bytes, its shape and dtype need {}", result.end - result.begin, bytes));
  }
  return result;
}

Status refuse_overlaps(std::vector<Range> ranges, const std::string& file_name) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin < ranges[i - 1].end) {
      return invalid(fmt::format("{}: tensors {} and {} overlap", file_name, ranges[i - 1].name,
                                 ranges[i].name));
    }
  }
  return Done{};
}

Result<std::span<const std::byte>> header_of(std::span<const std::byte> bytes,
                                             const std::string& file_name) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length)) {
    return invalid(
        fmt::format("{}: {} bytes are too few for a safetensors file", file_name, bytes.size()));
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kHeaderBytesMax) {
    return invalid(fmt::format("{}: header of {} bytes, the limit is {}; not a safetensors file?",
                               file_name, length, kHeaderBytesMax));
  }
  if (length > bytes.size() - sizeof(length)) {
    return invalid(fmt::format("{}: header of {} bytes in a file of {}; the file is truncated",
                               file_name, length, bytes.size()));
  }
  return bytes.subspan(sizeof(length), length);
}

}  // namespace

std::string_view file_dtype_name(FileDType dtype) { return entry(dtype).name; }
size_t file_dtype_bytes(FileDType dtype) { return entry(dtype).bytes; }

Result<std::map<std::string, RawTensor>> parse_safetensors(std::span<const std::byte> bytes,
                                                           const std::string& file_name) {
  EXODE_ASSIGN(const std::span<const std::byte> header, header_of(bytes, file_name));
  const std::span<const std::byte> data = bytes.subspan(sizeof(uint64_t) + header.size());

  simdjson::dom::parser parser(kHeaderBytesMax);
  if (parser.allocate(std::max<size_t>(header.size(), 64), kDepthMax) != simdjson::SUCCESS) {
    return Error{ErrorCode::kOutOfMemory, fmt::format("{}: no memory for its header", file_name)};
  }
  simdjson::dom::object object;
  const auto code =
      parser.parse(reinterpret_cast<const char*>(header.data()), header.size()).get(object);
  if (code != simdjson::SUCCESS) {
    return invalid(fmt::format("{}: header is not a JSON object: {}", file_name,
                               simdjson::error_message(code)));
  }

  std::map<std::string, RawTensor> tensors;
  std::vector<Range> ranges;
  for (const auto field : object) {
    if (field.key == "__metadata__") continue;
    const std::string name(field.key);
    Result<Entry> read = read_entry(field.value, data.size());
    if (!read.ok()) {
      return Error{read.error().code,
                   fmt::format("{}: tensor {} {}", file_name, name, read.error().message)};
    }
    Entry& e = read.value();
    e.tensor.data = data.subspan(e.begin, e.end - e.begin);
    if (e.begin != e.end) ranges.push_back({e.begin, e.end, name});
    if (!tensors.emplace(name, std::move(e.tensor)).second) {
      return invalid(fmt::format("{}: tensor {} is listed twice", file_name, name));
    }
  }
  EXODE_TRY(refuse_overlaps(std::move(ranges), file_name));
  return tensors;
}

}  // namespace exode
