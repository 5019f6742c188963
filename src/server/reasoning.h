// Splits generated text into what the model thought (between <think> and </think>) and its answer.
//
//   ReasoningSplitter splitter(ReasoningStart::kInside);
//   std::vector<TextPart> parts = splitter.feed("a</think>\n\nb");   // thought "a", answer "b"
//
// Concatenated parts do not depend on how the text was cut into feeds. Whitespace at the ends of
// the thought and before the answer is dropped; tags are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace exode::server {

inline constexpr std::string_view kThinkOpen = "<think>", kThinkClose = "</think>";

enum class ReasoningStart : uint8_t {
  kInside,   // the prompt ends within an open <think>
  kOutside,  // not: a thought only if the output begins with <think>
  kOff,      // plain text, never split
};

// From the last of the two tags after the last message start; ids that the vocabulary lacks are
// empty.
struct ReasoningTokens {
  std::optional<TokenId> open, close, message_start;
};
ReasoningStart reasoning_start(std::span<const TokenId> prompt, const ReasoningTokens& tokens);

struct TextPart {
  bool reasoning = false;
  std::string text = {};
};

class ReasoningSplitter {
 public:
  // `by_id`: the vocabulary has the tags as tokens. Then only boundary() ends or begins a thought
  // and tags spelled with other tokens are plain text; without, tags are found in the text.
  ReasoningSplitter(ReasoningStart start, bool by_id);

  std::vector<TextPart> feed(std::string_view text);
  std::vector<TextPart> open_tag();   // token <think> was generated
  std::vector<TextPart> close_tag();  // token </think> was generated
  std::vector<TextPart> finish();
  bool inside() const { return state_ == State::kThought; }

 private:
  enum class State : uint8_t { kBegin, kThought, kAfterThought, kAnswer };

  void emit(std::string_view text, std::vector<TextPart>* parts);
  void emit_thought(std::string_view text, std::vector<TextPart>* parts);
  void scan(bool last, std::vector<TextPart>* parts);

  State state_;
  bool by_id_, split_;
  bool thought_begun_ = false;
  std::string held_;        // may be the start of a tag
  std::string whitespace_;  // of a thought, kept back until something follows it
};

}  // namespace exode::server
