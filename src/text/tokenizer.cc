#include "text/tokenizer.h"

#include <algorithm>

#include "text/tokenizer_impl.h"

namespace exode::text {
namespace {

void encode_plain(const Tokenizer::Impl& t, std::string_view text, std::vector<TokenId>& out) {
  std::string spaced;
  if (t.add_prefix_space && !text.empty() && char_class(static_cast<uint8_t>(text[0])) != CharClass::kSpace) {
    spaced = " " + std::string(text);
    text = spaced;
  }
  std::vector<std::string_view> pieces{text};
  for (const PieceSplitter& splitter : t.splitters) pieces = splitter.split(pieces);
  for (std::string_view piece : pieces) {
    if (t.ignore_merges) {
      const auto it = t.vocabulary.find(std::string(piece));
      if (it != t.vocabulary.end()) {
        out.push_back(it->second);
        continue;
      }
    }
    t.bpe.encode(piece, out);
  }
}

// Text between raw added tokens: normalise, then match the tokens that live in normalised text.
void encode_between(const Tokenizer::Impl& t, std::string_view text, bool parse_special, std::vector<TokenId>& out) {
  const std::string normalized = t.normalize(text);
  std::vector<Segment> segments;
  t.normalized_tokens.split(
      normalized, 0, normalized.size(),
      [&](const AddedToken& token, size_t, size_t) { return parse_special || !token.special; }, segments);
  for (const Segment& s : segments) {
    if (s.id >= 0) {
      out.push_back(s.id);
    } else {
      encode_plain(t, std::string_view(normalized).substr(s.begin, s.end - s.begin), out);
    }
  }
}

// `literal_ends` are the ends of alternating data and literal stretches, data first.
class LiteralMap {
 public:
  explicit LiteralMap(std::span<const Span> spans) {
    size_t end = 0;
    for (const Span& s : spans) {
      end += s.text.size();
      if (!literal_.empty() && literal_.back() == s.literal) {
        ends_.back() = end;
      } else {
        ends_.push_back(end);
        literal_.push_back(s.literal);
      }
    }
  }
  bool contains(size_t begin, size_t end) const {
    const auto it = std::upper_bound(ends_.begin(), ends_.end(), begin);
    const auto index = static_cast<size_t>(it - ends_.begin());
    return it != ends_.end() && literal_[index] && end <= *it;
  }

 private:
  std::vector<size_t> ends_;
  std::vector<bool> literal_;
};

template <class Allowed>
std::vector<TokenId> encode_text(const Tokenizer::Impl& t, std::string_view text, bool parse_special,
                                 const Allowed& allowed) {
  std::vector<TokenId> out;
  std::vector<Segment> segments;
  t.raw_tokens.split(text, 0, text.size(), allowed, segments);
  for (const Segment& s : segments) {
    if (s.id >= 0) {
      out.push_back(s.id);
    } else {
      encode_between(t, text.substr(s.begin, s.end - s.begin), parse_special, out);
    }
  }
  return out;
}

std::string valid(std::string_view text) { return is_valid_utf8(text) ? std::string(text) : to_valid_utf8(text); }

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> ids = encode_text(*impl_, valid(text), options.parse_special,
                                         [&](const AddedToken& token, size_t, size_t) {
                                           return options.parse_special || !token.special;
                                         });
  if (!options.add_special_tokens) return ids;
  ids.insert(ids.begin(), impl_->prefix.begin(), impl_->prefix.end());
  ids.insert(ids.end(), impl_->suffix.begin(), impl_->suffix.end());
  return ids;
}

std::vector<TokenId> Tokenizer::encode_spans(std::span<const Span> spans) const {
  // Repairing each span keeps the literal map exact; a character never straddles spans.
  std::vector<Span> repaired(spans.begin(), spans.end());
  std::string text;
  for (Span& s : repaired) {
    s.text = valid(s.text);
    text += s.text;
  }
  const LiteralMap literal(repaired);
  return encode_text(*impl_, text, false, [&](const AddedToken& token, size_t begin, size_t end) {
    return !token.special || literal.contains(begin, end);
  });
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string raw;
  for (TokenId id : ids) {
    if (!skip_special || !is_special(id)) raw += token_bytes(id);
  }
  return to_valid_utf8(raw);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return id >= 0 && id < size() ? std::string_view(impl_->bytes[static_cast<size_t>(id)]) : std::string_view();
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  const std::string key(token);
  if (const auto it = impl_->added.find(key); it != impl_->added.end()) return it->second;
  if (const auto it = impl_->vocabulary.find(key); it != impl_->vocabulary.end()) return it->second;
  return std::nullopt;
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < size() && impl_->special[static_cast<size_t>(id)];
}

int32_t Tokenizer::size() const { return static_cast<int32_t>(impl_->bytes.size()); }

std::optional<TokenId> Tokenizer::eos() const {
  return impl_->eos.empty() ? std::nullopt : find(impl_->eos);
}

std::string_view Tokenizer::bos_string() const { return impl_->bos; }
std::string_view Tokenizer::eos_string() const { return impl_->eos; }

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string StreamDecoder::feed(TokenId id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  pending_ += tokenizer_.token_bytes(id);
  // Everything but a sequence at the end that more bytes may complete.
  size_t ready = 0;
  while (ready < pending_.size()) {
    const int n = utf8_length(std::string_view(pending_).substr(ready));
    if (n == 0) break;
    ready += static_cast<size_t>(std::abs(n));
  }
  const std::string out = to_valid_utf8(std::string_view(pending_).substr(0, ready));
  pending_.erase(0, ready);
  return out;
}

std::string StreamDecoder::finish() {
  const std::string out = to_valid_utf8(pending_);
  pending_.clear();
  return out;
}

}  // namespace exode::text
