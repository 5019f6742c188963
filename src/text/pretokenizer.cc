#include "text/pretokenizer.h"

#include <algorithm>

namespace exode::text {
namespace {

// Reads one piece at a time; the methods are the alternatives of the pattern, in its order, each
// returning the end of its match or `i` for none.
class Scanner {
 public:
  Scanner(const std::vector<uint32_t>& points, const ScanRules& rules)
      : p_(points), types_(points.size()), last_(points.size()), r_(rules) {
    std::transform(p_.begin(), p_.end(), types_.begin(), char_class);
  }

  size_t next(size_t i) const {
    size_t end = contraction(i);
    if (end == i) end = r_.gpt2 ? spaced_run(i) : word(i);
    if (end == i && !r_.gpt2) end = number(i);
    if (end == i && !r_.gpt2) end = punctuation(i);
    if (end == i && !r_.gpt2) end = newlines(i);
    if (end == i) end = spaces(i);
    return end == i ? i + 1 : end;
  }

 private:
  CharClass type(size_t i) const { return types_[i]; }
  bool is(size_t i, CharClass c) const { return i < last_ && type(i) == c; }
  bool is_letter(size_t i) const {
    return i < last_ &&
           (type(i) == CharClass::kLetter || (r_.marks_are_letters && type(i) == CharClass::kMark));
  }
  bool is_newline(size_t i) const { return i < last_ && (p_[i] == '\r' || p_[i] == '\n'); }
  bool is_symbol(size_t i) const {
    return i < last_ && !is_letter(i) && type(i) != CharClass::kNumber &&
           type(i) != CharClass::kSpace;
  }
  template <class Test>
  size_t run(size_t i, Test test) const {
    while (test(i)) ++i;
    return i;
  }

  // 's 't 're 've 'm 'll 'd. Case folding makes U+017F an s.
  size_t contraction(size_t i) const {
    if (p_[i] != '\'' || i + 1 >= last_) return i;
    const auto lower = [&](size_t k) -> uint32_t {
      if (k >= last_) return 0;
      const uint32_t c = p_[k];
      if (r_.gpt2) return c;
      if (c == 0x17f) return 's';
      return c >= 'A' && c <= 'Z' ? c + 32 : c;
    };
    const uint32_t a = lower(i + 1), b = lower(i + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    const bool pair = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return pair ? i + 3 : i;
  }

  // [^\r\n\p{L}\p{N}]?\p{L}+, where a mark may be the optional first character.
  size_t word(size_t i) const {
    const bool optional =
        !is_newline(i) && type(i) != CharClass::kLetter && type(i) != CharClass::kNumber;
    if (optional && is_letter(i + 1)) return run(i + 1, [&](size_t k) { return is_letter(k); });
    return run(i, [&](size_t k) { return is_letter(k); });
  }

  size_t number(size_t i) const {
    const size_t limit = i + static_cast<size_t>(r_.digits_max);
    return run(i, [&](size_t k) { return k < limit && is(k, CharClass::kNumber); });
  }

  // " ?[^\s\p{L}\p{N}]+[\r\n]*"
  size_t punctuation(size_t i) const {
    const size_t start = p_[i] == ' ' ? i + 1 : i;
    if (!is_symbol(start)) return i;
    const size_t end = run(start, [&](size_t k) { return is_symbol(k); });
    return run(end, [&](size_t k) { return is_newline(k); });
  }

  // "\s*[\r\n]+": up to and including the last newline of the run of white space.
  size_t newlines(size_t i) const {
    size_t end = run(i, [&](size_t k) { return is(k, CharClass::kSpace); });
    while (end > i && !is_newline(end - 1)) --end;
    return end;
  }

  // "\s+(?!\S)|\s+": all but the last white space before a word.
  size_t spaces(size_t i) const {
    const size_t end = run(i, [&](size_t k) { return is(k, CharClass::kSpace); });
    return end < last_ && end - i > 1 ? end - 1 : end;
  }

  // GPT-2: " ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
  size_t spaced_run(size_t i) const {
    const size_t start = p_[i] == ' ' ? i + 1 : i;
    if (start >= last_) return i;
    if (is_letter(start)) return run(start, [&](size_t k) { return is_letter(k); });
    if (is(start, CharClass::kNumber))
      return run(start, [&](size_t k) { return is(k, CharClass::kNumber); });
    if (is_symbol(start)) return run(start, [&](size_t k) { return is_symbol(k); });
    return i;
  }

  const std::vector<uint32_t>& p_;
  std::vector<CharClass> types_;
  const size_t last_;
  const ScanRules& r_;
};

struct KnownPattern {
  std::string_view regex;
  ScanRules rules;
};

constexpr KnownPattern kKnown[] = {
    // Qwen2, Qwen2.5, Qwen3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {}},
    // Qwen3.5, Qwen3.6
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
     R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {.marks_are_letters = true}},
    // Llama 3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {.digits_max = 3}},
    // GPT-2
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     {.gpt2 = true}},
};

// Runs of digits, or each digit by itself, and what lies between.
void scan_digits(const std::vector<uint32_t>& points, bool each, std::vector<size_t>& ends) {
  bool digit = !points.empty() && is_split_digit(points[0]);
  for (size_t i = 1; i <= points.size(); ++i) {
    const bool next = i < points.size() && is_split_digit(points[i]);
    if (i == points.size() || next != digit || (each && digit)) ends.push_back(i);
    digit = next;
  }
}

}  // namespace

void scan_pieces(const std::vector<uint32_t>& points, const ScanRules& rules,
                 std::vector<size_t>& ends) {
  const Scanner scanner(points, rules);
  for (size_t i = 0; i < points.size();) {
    i = scanner.next(i);
    ends.push_back(i);
  }
}

Result<PieceSplitter> PieceSplitter::pattern(const std::string& regex) {
  PieceSplitter splitter;
  for (const KnownPattern& known : kKnown) {
    if (known.regex == regex) {
      splitter.rules_ = known.rules;
      return splitter;
    }
  }
  EXODE_ASSIGN(RegexSplitter compiled, RegexSplitter::compile(regex));
  splitter.kind_ = Kind::kRegex;
  splitter.regex_ = std::make_unique<RegexSplitter>(std::move(compiled));
  return splitter;
}

PieceSplitter PieceSplitter::gpt2() {
  PieceSplitter splitter;
  splitter.rules_.gpt2 = true;
  return splitter;
}

PieceSplitter PieceSplitter::digits(bool individual) {
  PieceSplitter splitter;
  splitter.kind_ = individual ? Kind::kDigitEach : Kind::kDigitRuns;
  return splitter;
}

std::vector<std::string_view> PieceSplitter::split(
    const std::vector<std::string_view>& pieces) const {
  std::vector<std::string_view> out;
  for (std::string_view piece : pieces) split_one(piece, out);
  return out;
}

void PieceSplitter::split_one(std::string_view piece, std::vector<std::string_view>& out) const {
  std::vector<size_t> ends;  // in bytes, or first in code points
  if (kind_ == Kind::kRegex) {
    regex_->split(piece, ends);
  } else {
    const CodePoints text = decode_utf8(piece);
    if (kind_ == Kind::kScan) {
      scan_pieces(text.points, rules_, ends);
    } else {
      scan_digits(text.points, kind_ == Kind::kDigitEach, ends);
    }
    for (size_t& end : ends) end = text.offsets[end];
  }
  size_t begin = 0;
  for (const size_t end : ends) {
    out.push_back(piece.substr(begin, end - begin));
    begin = end;
  }
}

}  // namespace exode::text
