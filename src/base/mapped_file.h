// A whole file mapped read-only. The bytes are untrusted and may have any alignment inside.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace exode {

class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Reads a small text file whole; refuses more than limit_bytes.
Result<std::string> read_text_file(const std::string& path, size_t limit_bytes);

}  // namespace exode
