// Any bytes must give tensors inside the file or an error. Every byte of every tensor is read, so
// that a span past the end is seen by the address sanitizer.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "weights/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto result = exode::parse_safetensors(bytes, "fuzz");
  if (!result.ok()) {
    if (result.error().message.empty()) std::abort();
    return 0;
  }
  unsigned sum = 0;
  for (const auto& [name, tensor] : result.value()) {
    for (const std::byte b : tensor.data) sum += static_cast<unsigned>(b);
    const auto bytes_needed =
        static_cast<size_t>(tensor.elements()) * exode::file_dtype_bytes(tensor.dtype);
    if (tensor.data.size() != bytes_needed) std::abort();
  }
  volatile unsigned sink = sum;
  (void)sink;
  return 0;
}
