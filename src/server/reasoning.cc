#include "server/reasoning.h"

#include <algorithm>

#include "server/stop_strings.h"

namespace exode::server {
namespace {

constexpr std::string_view kSpaces = " \t\r\n\v\f";

}  // namespace

ReasoningStart reasoning_start(std::span<const TokenId> prompt, const ReasoningTokens& tokens) {
  for (auto it = prompt.rbegin(); it != prompt.rend(); ++it) {
    if (tokens.open && *it == *tokens.open) return ReasoningStart::kInside;
    if (tokens.close && *it == *tokens.close) return ReasoningStart::kOutside;
    if (tokens.message_start && *it == *tokens.message_start) break;
  }
  return ReasoningStart::kOutside;
}

ReasoningSplitter::ReasoningSplitter(ReasoningStart start, bool by_id)
    : state_(start == ReasoningStart::kInside ? State::kThought : State::kBegin),
      by_id_(by_id),
      split_(start != ReasoningStart::kOff) {}

void ReasoningSplitter::emit_thought(std::string_view text, std::vector<TextPart>* parts) {
  if (!thought_begun_) {
    const size_t first = text.find_first_not_of(kSpaces);
    if (first == std::string_view::npos) return;
    text.remove_prefix(first);
    thought_begun_ = true;
  }
  const size_t last = text.find_last_not_of(kSpaces);
  if (last == std::string_view::npos) {
    whitespace_ += text;
    return;
  }
  parts->push_back({true, whitespace_ + std::string(text.substr(0, last + 1))});
  whitespace_ = text.substr(last + 1);
}

void ReasoningSplitter::emit(std::string_view text, std::vector<TextPart>* parts) {
  if (text.empty()) return;
  if (state_ == State::kThought) return emit_thought(text, parts);
  if (state_ == State::kAfterThought) {
    const size_t first = text.find_first_not_of(kSpaces);
    if (first == std::string_view::npos) return;
    text.remove_prefix(first);
    state_ = State::kAnswer;
  }
  parts->push_back({false, std::string(text)});
}

// Moves held_ on as far as it is certain which side it belongs to; all of it when `last`.
void ReasoningSplitter::scan(bool last, std::vector<TextPart>* parts) {
  if (state_ == State::kBegin) {
    const size_t first = std::min(held_.find_first_not_of(kSpaces), held_.size());
    const std::string_view seen = std::string_view(held_).substr(first);
    if (!by_id_ && seen.starts_with(kThinkOpen)) {
      held_.erase(0, first + kThinkOpen.size());
      state_ = State::kThought;
    } else if (!last && (seen.empty() || (!by_id_ && kThinkOpen.starts_with(seen)))) {
      return;
    } else {
      state_ = State::kAnswer;
    }
  }
  if (state_ == State::kThought && !by_id_) {
    const size_t close = held_.find(kThinkClose);
    if (close != std::string::npos) {
      emit(std::string_view(held_).substr(0, close), parts);
      held_.erase(0, close + kThinkClose.size());
      whitespace_.clear();
      state_ = State::kAfterThought;
    } else if (!last) {
      const size_t keep = overlap(held_, kThinkClose);
      emit(std::string_view(held_).substr(0, held_.size() - keep), parts);
      held_.erase(0, held_.size() - keep);
      return;
    }
  }
  emit(held_, parts);
  held_.clear();
}

std::vector<TextPart> ReasoningSplitter::feed(std::string_view text) {
  std::vector<TextPart> parts;
  if (!split_) {
    if (!text.empty()) parts.push_back({false, std::string(text)});
    return parts;
  }
  held_ += text;
  scan(false, &parts);
  return parts;
}

std::vector<TextPart> ReasoningSplitter::open_tag() {
  std::vector<TextPart> parts;
  const bool leading = state_ == State::kBegin;
  if (leading) held_.clear();
  scan(true, &parts);
  // An answer that is under way stays one; a thought may open only before it.
  if (leading) state_ = State::kThought;
  return parts;
}

std::vector<TextPart> ReasoningSplitter::close_tag() {
  std::vector<TextPart> parts;
  scan(true, &parts);
  if (state_ == State::kThought) {
    whitespace_.clear();
    state_ = State::kAfterThought;
  }
  return parts;
}

std::vector<TextPart> ReasoningSplitter::finish() {
  std::vector<TextPart> parts;
  scan(true, &parts);
  return parts;
}

}  // namespace exode::server
