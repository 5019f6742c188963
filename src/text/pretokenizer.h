// Cutting a text into the pieces that byte-level BPE works on. The patterns of the families we
// serve are hand-written scanners (linear, no back-tracking engine); any other goes to PCRE2 with
// limits.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/unicode.h"

namespace exode::text {

// What the scanner of the GPT family of patterns varies in.
struct ScanRules {
  bool gpt2 = false;               // lower-case contractions only, " ?" before letters and digits
  bool marks_are_letters = false;  // [\p{L}\p{M}]+
  int digits_max = 1;              // \p{N} or \p{N}{1,3}
};

// Appends the end (index into points) of each piece.
void scan_pieces(const std::vector<uint32_t>& points, const ScanRules& rules,
                 std::vector<size_t>& ends);

class RegexSplitter {
 public:
  static Result<RegexSplitter> compile(const std::string& pattern);
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;
  ~RegexSplitter();
  // Byte ends of the pieces (matches and the gaps between them) of valid UTF-8. Where the engine
  // hits its limits the rest of the text is one piece.
  void split(std::string_view text, std::vector<size_t>& ends) const;

 private:
  struct Code;
  struct Match;
  int match(std::string_view text, size_t from, Match& at) const;
  explicit RegexSplitter(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

// One step of a pre-tokenizer sequence: splits every piece further.
class PieceSplitter {
 public:
  // The pattern of a "Split" step; known ones get a scanner.
  static Result<PieceSplitter> pattern(const std::string& regex);
  static PieceSplitter gpt2();
  static PieceSplitter digits(bool individual);

  // `pieces` are consecutive and cover the text they came from.
  std::vector<std::string_view> split(const std::vector<std::string_view>& pieces) const;

 private:
  enum class Kind : uint8_t { kScan, kRegex, kDigitRuns, kDigitEach };
  void split_one(std::string_view piece, std::vector<std::string_view>& out) const;

  Kind kind_ = Kind::kScan;
  ScanRules rules_;
  std::unique_ptr<RegexSplitter> regex_;
};

}  // namespace exode::text
