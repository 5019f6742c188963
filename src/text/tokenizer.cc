#include "text/tokenizer.h"

#include <algorithm>

#include "text/tokenizer_impl.h"

namespace exode::text {
namespace {

using Ids = std::vector<TokenId>;

void encode_piece(const Tokenizer::Impl& t, std::string_view piece, Ids& out) {
  if (t.ignore_merges) {
    if (const auto id = t.vocabulary.find(piece)) {
      out.push_back(*id);
      return;
    }
  }
  t.bpe.encode(piece, out);
}

// Normalised text without added tokens.
void encode_plain(const Tokenizer::Impl& t, std::string_view text, Ids& out) {
  std::vector<std::string_view> pieces{text};
  for (const PieceSplitter& splitter : t.splitters) pieces = splitter.split(pieces);
  if (!t.add_prefix_space) {
    if (t.byte_level_splitter) pieces = t.byte_level_splitter->split(pieces);
    for (const std::string_view piece : pieces) encode_piece(t, piece, out);
    return;
  }
  for (const std::string_view piece : pieces) {
    const std::string spaced = (piece.starts_with(' ') ? "" : " ") + std::string(piece);
    std::vector<std::string_view> parts{spaced};
    if (t.byte_level_splitter) parts = t.byte_level_splitter->split(parts);
    for (const std::string_view part : parts) encode_piece(t, part, out);
  }
}

template <class Judge>
void encode_normalized(const Tokenizer::Impl& t, std::string_view text, const Judge& judge,
                       Ids& out) {
  std::vector<Segment> segments;
  t.normalized_tokens.split(text, judge, segments);
  for (const Segment& s : segments) {
    if (s.id >= 0) {
      out.push_back(s.id);
    } else {
      encode_plain(t, text.substr(s.begin, s.end - s.begin), out);
    }
  }
}

// Which bytes of a text are literal: runs of one kind.
class LiteralMap {
 public:
  struct Run {
    size_t end;
    bool literal;
  };

  void append(size_t length, bool literal) {
    if (length == 0) return;
    const size_t end = runs_.empty() ? length : runs_.back().end + length;
    if (!runs_.empty() && runs_.back().literal == literal) {
      runs_.back().end = end;
    } else {
      runs_.push_back({end, literal});
    }
  }
  // The run that byte `at` lies in.
  const Run& run_at(size_t at) const {
    return *std::upper_bound(runs_.begin(), runs_.end(), at,
                             [](size_t value, const Run& run) { return value < run.end; });
  }
  bool holds(size_t begin, size_t end) const {
    const Run& run = run_at(begin);
    return run.literal && end <= run.end;
  }

 private:
  std::vector<Run> runs_;
};

// A match that reaches into user data is no match, but a literal token may start inside of it.
Verdict judge_span(const AddedToken& token, const LiteralMap& literal, size_t begin, size_t end) {
  return !token.special || literal.holds(begin, end) ? Verdict::kTake : Verdict::kLookInside;
}

// text[begin, end) normalised. Runs are normalised one by one to know where they end up: a mark at
// the start of user data does not combine with the literal before it.
void encode_runs(const Tokenizer::Impl& t, std::string_view text, const Segment& segment,
                 const LiteralMap& literal, Ids& out) {
  std::string normalized;
  LiteralMap moved;
  for (size_t i = segment.begin; i < segment.end;) {
    const LiteralMap::Run& run = literal.run_at(i);
    const size_t end = std::min(run.end, segment.end);
    const std::string part = t.normalize(text.substr(i, end - i));
    normalized += part;
    moved.append(part.size(), run.literal);
    i = end;
  }
  encode_normalized(
      t, normalized,
      [&](const AddedToken& token, size_t begin, size_t end) {
        return judge_span(token, moved, begin, end);
      },
      out);
}

// `text` itself when it is valid, else a repaired copy in `buffer`.
std::string_view valid(std::string_view text, std::string& buffer) {
  if (is_valid_utf8(text)) return text;
  buffer = to_valid_utf8(text);
  return buffer;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Ids Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::string buffer;
  text = valid(text, buffer);
  const auto judge = [&](const AddedToken& token, size_t, size_t) {
    return options.parse_special || !token.special ? Verdict::kTake : Verdict::kLeave;
  };
  std::vector<Segment> segments;
  impl_->raw_tokens.split(text, judge, segments);
  Ids ids;
  if (options.add_special_tokens) ids = impl_->prefix;
  for (const Segment& s : segments) {
    if (s.id >= 0) {
      ids.push_back(s.id);
    } else {
      encode_normalized(*impl_, impl_->normalize(text.substr(s.begin, s.end - s.begin)), judge,
                        ids);
    }
  }
  if (options.add_special_tokens) {
    ids.insert(ids.end(), impl_->suffix.begin(), impl_->suffix.end());
  }
  return ids;
}

Ids Tokenizer::encode_spans(std::span<const Span> spans) const {
  std::string text, buffer;
  LiteralMap literal;
  for (const Span& span : spans) {
    // Each by itself, so that the map stays exact; no character reaches over a border.
    const std::string_view part = valid(span.text, buffer);
    text += part;
    literal.append(part.size(), span.literal);
  }
  const auto judge = [&](const AddedToken& token, size_t begin, size_t end) {
    return judge_span(token, literal, begin, end);
  };
  std::vector<Segment> segments;
  impl_->raw_tokens.split(text, judge, segments);
  Ids ids;
  for (const Segment& s : segments) {
    if (s.id >= 0) {
      ids.push_back(s.id);
    } else if (impl_->normalized_tokens.has_special()) {
      encode_runs(*impl_, text, s, literal, ids);
    } else {
      const std::string_view part = std::string_view(text).substr(s.begin, s.end - s.begin);
      encode_normalized(
          *impl_, impl_->normalize(part),
          [](const AddedToken&, size_t, size_t) { return Verdict::kTake; }, ids);
    }
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string raw;
  for (TokenId id : ids) {
    if (!skip_special || !is_special(id)) raw += token_bytes(id);
  }
  return to_valid_utf8(raw);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || id >= size()) return {};
  return impl_->bytes[static_cast<size_t>(id)];
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  for (const TokenIndex* index : {&impl_->added, &impl_->vocabulary, &impl_->verbatim}) {
    if (const auto id = index->find(token)) return id;
  }
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
