#include <array>

#include "weights/formats/formats.h"

namespace exode {

std::span<const WeightFormat> weight_formats() {
  static const std::array<WeightFormat, 5> kFormats{kGptqInt4Format, kAwqInt4Format, kCtInt4Format,
                                                    kFp8BlockFormat, kPlainFormat};
  return kFormats;
}

const WeightFormat* find_format(const Checkpoint& checkpoint, const std::string& module) {
  for (const WeightFormat& format : weight_formats()) {
    if (format.matches(checkpoint, module)) return &format;
  }
  return nullptr;
}

}  // namespace exode
