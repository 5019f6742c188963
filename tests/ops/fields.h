// The fields of an aggregate in order, so that the tensors of any op are found without a list.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace exode::testing {

struct AnyField {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): only named, never called
};

template <class T, class... Fields>
constexpr size_t field_count() {
  if constexpr (requires { T{Fields{}..., AnyField{}}; }) {
    return field_count<T, Fields..., AnyField>();
  } else {
    return sizeof...(Fields);
  }
}

// References to the fields of x, at most twenty of them.
template <class T>
auto fields_of(T& x) {
  constexpr size_t kCount = field_count<std::remove_const_t<T>>();
  static_assert(kCount >= 1 && kCount <= 20, "fields_of knows aggregates of 1 to 20 fields");
  // clang-format off
  if constexpr (kCount == 1) { auto& [a] = x; return std::tie(a); }
  if constexpr (kCount == 2) { auto& [a, b] = x; return std::tie(a, b); }
  if constexpr (kCount == 3) { auto& [a, b, c] = x; return std::tie(a, b, c); }
  if constexpr (kCount == 4) { auto& [a, b, c, d] = x; return std::tie(a, b, c, d); }
  if constexpr (kCount == 5) { auto& [a, b, c, d, e] = x; return std::tie(a, b, c, d, e); }
  if constexpr (kCount == 6) { auto& [a, b, c, d, e, f] = x; return std::tie(a, b, c, d, e, f); }
  if constexpr (kCount == 7) {
    auto& [a, b, c, d, e, f, g] = x;
    return std::tie(a, b, c, d, e, f, g);
  }
  if constexpr (kCount == 8) {
    auto& [a, b, c, d, e, f, g, h] = x;
    return std::tie(a, b, c, d, e, f, g, h);
  }
  if constexpr (kCount == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = x;
    return std::tie(a, b, c, d, e, f, g, h, i);
  }
  if constexpr (kCount == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = x;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  }
  if constexpr (kCount == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = x;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  }
  if constexpr (kCount == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = x;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  }
  if constexpr (kCount == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = x;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
  }
  if constexpr (kCount == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = x;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  }
  if constexpr (kCount == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = x;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  }
  if constexpr (kCount == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = x;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  }
  if constexpr (kCount == 17) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = x;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
  }
  if constexpr (kCount == 18) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = x;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
  }
  if constexpr (kCount == 19) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = x;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s);
  }
  if constexpr (kCount == 20) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = x;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
  }
  // clang-format on
}

}  // namespace exode::testing
