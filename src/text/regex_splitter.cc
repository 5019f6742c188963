// The only file that knows PCRE2.
#include <fmt/format.h>
#include <pcre2.h>

#include <chrono>

#include "text/pretokenizer.h"

namespace exode::text {
namespace {

// A pattern from a file must not be able to stall a request or eat the memory.
constexpr uint32_t kMatchLimit = 1'000'000;
constexpr uint32_t kDepthLimit = 10'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kPatternBytesMax = 64 * 1024;
// The limits above bound one match; a text has many. Ordinary patterns do 20 MB in this time.
constexpr std::chrono::seconds kTimeLimit{2};

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

}  // namespace

struct RegexSplitter::Match {
  std::unique_ptr<pcre2_match_data, FreeMatch> data;
};

struct RegexSplitter::Code {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_context, FreeContext> limits;
};

RegexSplitter::RegexSplitter(std::unique_ptr<Code> code) : code_(std::move(code)) {}
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;
RegexSplitter::~RegexSplitter() = default;

Result<RegexSplitter> RegexSplitter::compile(const std::string& pattern) {
  if (pattern.size() > kPatternBytesMax)
    return invalid("tokenizer.json: a split pattern is over 64 KiB");
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                 nullptr));
  if (!code->code) {
    unsigned char message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    return invalid(fmt::format("tokenizer.json: split pattern, offset {}: {}", offset,
                               reinterpret_cast<const char*>(message)));
  }
  pcre2_jit_compile(code->code.get(),
                    PCRE2_JIT_COMPLETE);  // without JIT matching is slower, not wrong
  code->limits.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(code->limits.get(), kMatchLimit);
  pcre2_set_depth_limit(code->limits.get(), kDepthLimit);
  pcre2_set_heap_limit(code->limits.get(), kHeapLimitKib);
  return RegexSplitter(std::move(code));
}

// Return value of pcre2_match.
int RegexSplitter::match(std::string_view text, size_t from, Match& at) const {
  const auto run = [&](uint32_t options) {
    return pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       from, options | PCRE2_NO_UTF_CHECK, at.data.get(), code_->limits.get());
  };
  const int found = run(0);
  // The interpreter keeps its state on the heap, up to the limit.
  return found == PCRE2_ERROR_JIT_STACKLIMIT ? run(PCRE2_NO_JIT) : found;
}

void RegexSplitter::split(std::string_view text, std::vector<size_t>& ends) const {
  Match at;
  at.data.reset(pcre2_match_data_create_from_pattern(code_->code.get(), nullptr));
  const auto deadline = std::chrono::steady_clock::now() + kTimeLimit;
  size_t done = 0, from = 0;
  while (from < text.size() && std::chrono::steady_clock::now() < deadline) {
    if (match(text, from, at) <= 0) break;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(at.data.get());
    const size_t begin = range[0], end = range[1];
    if (end <= begin) {  // an empty match: go on behind the next character
      from = begin + 1;
      while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xc0u) == 0x80u) ++from;
      continue;
    }
    if (begin > done) ends.push_back(begin);
    ends.push_back(end);
    done = from = end;
  }
  if (done < text.size()) ends.push_back(text.size());
}

}  // namespace exode::text
