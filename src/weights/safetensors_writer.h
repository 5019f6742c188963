// Writes one .safetensors file, streaming the payload: `eval --logits` output may be large.
//
//   EXODE_ASSIGN(auto file,
//                SafetensorsWriter::create(path, "logits", FileDType::kF32, {rows, vocab}));
//   EXODE_TRY(file.append(bytes));  …  EXODE_TRY(file.finish());
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/checkpoint.h"

namespace exode {

class SafetensorsWriter {
 public:
  // One tensor; its bytes follow through append() in row-major order.
  static Result<SafetensorsWriter> create(const std::string& path, const std::string& tensor,
                                          FileDType dtype, const std::vector<int64_t>& shape);
  Status append(std::span<const std::byte> bytes);
  Status finish();  // checks that exactly the announced bytes were written

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  uint64_t remaining_ = 0;
};

}  // namespace exode
