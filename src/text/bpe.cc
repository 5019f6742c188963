#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <utility>

namespace exode::text {
namespace {

// Up to this length scanning for the best pair beats a heap.
constexpr size_t kShortPiece = 48;

uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

size_t Bpe::slot_of(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t i = static_cast<size_t>((pair ^ pair >> 29) * 0x9e3779b97f4a7c15u >> 24) & mask;
  while (slots_[i].pair != pair && slots_[i].pair != kNoPair) i = (i + 1) & mask;
  return i;
}

void Bpe::reserve(size_t merges) {
  const size_t wanted = std::bit_ceil(merges * 2 + 16);
  if (wanted <= slots_.size()) return;
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(wanted));
  for (const Slot& slot : old) {
    if (slot.pair != kNoPair) slots_[slot_of(slot.pair)] = slot;
  }
}

void Bpe::add_merge(TokenId left, TokenId right, int32_t rank, TokenId merged) {
  reserve(used_ + 1);
  Slot& slot = slots_[slot_of(pair_key(left, right))];
  if (slot.pair == kNoPair) ++used_;
  slot = {pair_key(left, right), rank, merged};
}

const Bpe::Slot& Bpe::find(TokenId left, TokenId right) const {
  return slots_[slot_of(pair_key(left, right))];
}

void Bpe::append_tokens(std::string_view piece, std::vector<TokenId>& ids) const {
  bool after_unknown = false;
  for (const char c : piece) {
    const TokenId id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id >= 0) {
      ids.push_back(id);
    } else if (unknown_ >= 0 && !(fuse_unknown_ && after_unknown)) {
      ids.push_back(unknown_);
    }
    after_unknown = id < 0;
  }
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
  const size_t begin = out.size();
  append_tokens(piece, out);
  const std::span<TokenId> ids = std::span(out).subspan(begin);
  const size_t kept = ids.size() <= kShortPiece ? merge_short(ids) : merge_long(ids);
  out.resize(begin + kept);
}

// Both return how many ids remain, at the front of `ids`.
size_t Bpe::merge_short(std::span<TokenId> ids) const {
  std::array<int32_t, kShortPiece> ranks;  // of the pair that starts at i
  size_t n = ids.size();
  for (size_t i = 0; i + 1 < n; ++i) ranks[i] = find(ids[i], ids[i + 1]).rank;
  while (n > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.begin() + (n - 1));
    if (*best == kNoRank) break;
    const auto i = static_cast<size_t>(best - ranks.begin());
    ids[i] = find(ids[i], ids[i + 1]).merged;
    std::copy(ids.begin() + i + 2, ids.begin() + n, ids.begin() + i + 1);
    if (i + 2 < n) std::copy(ranks.begin() + i + 2, ranks.begin() + n - 1, ranks.begin() + i + 1);
    --n;
    if (i > 0) ranks[i - 1] = find(ids[i - 1], ids[i]).rank;
    if (i + 1 < n) ranks[i] = find(ids[i], ids[i + 1]).rank;
  }
  return n;
}

// A linked list of symbols and a heap of candidate merges; stale candidates are skipped.
size_t Bpe::merge_long(std::span<TokenId> ids) const {
  struct Node {
    TokenId id;
    int32_t previous, next;
  };
  struct Candidate {
    int32_t rank, left;
    TokenId left_id, right_id;
    bool operator>(const Candidate& o) const {
      return rank != o.rank ? rank > o.rank : left > o.left;
    }
  };
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Node> nodes(ids.size());
  const auto node = [&](int32_t i) -> Node& { return nodes[static_cast<size_t>(i)]; };
  for (int32_t i = 0; i < count; ++i) {
    node(i) = {ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto push = [&](int32_t left) {
    if (left < 0 || node(left).next < 0) return;
    const TokenId a = node(left).id, b = node(node(left).next).id;
    if (const int32_t rank = find(a, b).rank; rank != kNoRank) heap.push({rank, left, a, b});
  };
  for (int32_t i = 0; i + 1 < count; ++i) push(i);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    Node& left = node(c.left);
    if (left.id != c.left_id || left.next < 0 || node(left.next).id != c.right_id) continue;
    Node& right = node(left.next);
    left.id = find(c.left_id, c.right_id).merged;
    left.next = right.next;
    right.id = -1;  // dead: no candidate names it
    if (left.next >= 0) node(left.next).previous = c.left;
    push(left.previous);
    push(c.left);
  }
  size_t kept = 0;
  for (int32_t i = 0; i >= 0; i = node(i).next) ids[kept++] = node(i).id;
  return kept;
}

}  // namespace exode::text
