// Membership and order.
#include <fmt/format.h>

#include "text/jinja/runtime.h"

namespace exode::text::jinja {
namespace {

bool has_item(std::span<const Value> items, const Value& item) {
  for (const Value& candidate : items) {
    if (equals(candidate, item)) return true;
  }
  return false;
}

int compare_lists(Runtime& runtime, const List& a, const List& b, int depth) {
  const size_t shared = std::min(a.items.size(), b.items.size());
  for (size_t i = 0; i < shared; ++i) {
    if (!equals(a.items[i], b.items[i])) return compare(runtime, a.items[i], b.items[i], depth + 1);
  }
  return a.items.size() < b.items.size() ? -1 : a.items.size() > b.items.size();
}

}  // namespace

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (item.is(Kind::kUndefined)) fail_undefined(item);
      if (!item.is(Kind::kString)) {
        fail(fmt::format("'in' a string needs a string, not {}", type_name(item)));
      }
      runtime.charge_bytes(container.text().size());
      return container.text().find(item.text()) != std::string_view::npos;
    case Kind::kDict:
      return container.dict->find(item) != nullptr;
    case Kind::kList:
      return has_item(iterate(runtime, container), item);
    default:
      fail(fmt::format("'in' needs a container, not {}", type_name(container)));
  }
}

int compare(Runtime& runtime, const Value& a, const Value& b, int depth) {
  if (depth > kValueDepthMax) fail("values are nested too deeply to compare");
  runtime.charge_items(1);
  if (a.is(Kind::kUndefined)) fail_undefined(a);
  if (b.is(Kind::kUndefined)) fail_undefined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::kFloat) || b.is(Kind::kFloat)) {
      return a.as_real() < b.as_real() ? -1 : a.as_real() > b.as_real();
    }
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
  }
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    // UTF-8 sorts by code point, as Python does.
    return a.text() < b.text() ? -1 : a.text() > b.text();
  }
  const bool lists = a.is(Kind::kList) && b.is(Kind::kList) && a.list->form == b.list->form &&
                     (a.list->form == Form::kList || a.list->form == Form::kTuple);
  if (lists) return compare_lists(runtime, *a.list, *b.list, depth);
  fail(fmt::format("{} and {} have no order", type_name(a), type_name(b)));
}

}  // namespace exode::text::jinja
