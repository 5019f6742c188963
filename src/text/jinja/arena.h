// Memory of one program or one render: grows only, freed as a whole, bounded. Destructors do not
// run, so objects in it hold memory of the same arena only.
#pragma once

#include <memory_resource>
#include <string_view>
#include <utility>

namespace exode::text::jinja {

class Arena {
 public:
  explicit Arena(size_t bytes_max) : limit_(bytes_max), memory_(kFirstBytes, &limit_) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  template <class T, class... Args>
  T* make(Args&&... args) {
    return new (memory_.allocate(sizeof(T), alignof(T))) T{std::forward<Args>(args)...};
  }
  char* bytes(size_t count) { return static_cast<char*>(memory_.allocate(count + 1, 1)); }
  std::string_view copy(std::string_view text) {
    char* out = bytes(text.size());
    text.copy(out, text.size());
    return {out, text.size()};
  }
  std::pmr::memory_resource* memory() { return &memory_; }

 private:
  static constexpr size_t kFirstBytes = 16 << 10;

  // Throws RenderError above the limit.
  class Limit : public std::pmr::memory_resource {
   public:
    explicit Limit(size_t bytes_max) : left_(bytes_max) {}

   private:
    void* do_allocate(size_t bytes, size_t alignment) override;
    void do_deallocate(void* p, size_t bytes, size_t alignment) override;
    bool do_is_equal(const memory_resource& other) const noexcept override {
      return this == &other;
    }
    size_t left_;
  };

  Limit limit_;
  std::pmr::monotonic_buffer_resource memory_;
};

}  // namespace exode::text::jinja
