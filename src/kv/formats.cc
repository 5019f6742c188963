#include "kv/formats.h"

#include <span>

namespace exode {
namespace {

std::span<const KvFormat* const> formats() {
  static const KvFormat* const all[] = {&kv_format_f32(), &kv_format_bf16(), &kv_format_f16()};
  return all;
}

}  // namespace

const KvFormat* find_kv_format(std::string_view name) {
  for (const KvFormat* format : formats()) {
    if (format->name == name) return format;
  }
  return nullptr;
}

std::string kv_format_names() {
  std::string names;
  for (const KvFormat* format : formats()) {
    names += (names.empty() ? "" : ", ") + std::string(format->name);
  }
  return names;
}

}  // namespace exode
