#include "text/bpe.h"

#include <queue>

namespace exode::text {
namespace {

// Up to this length scanning for the best pair beats a heap.
constexpr size_t kShortPiece = 32;

uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void Bpe::add_merge(TokenId left, TokenId right, int32_t rank, TokenId merged) {
  merges_.emplace(pair_key(left, right), Merge{rank, merged});
}

const Bpe::Merge* Bpe::find(TokenId left, TokenId right) const {
  const auto it = merges_.find(pair_key(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
  std::vector<TokenId> ids;
  ids.reserve(piece.size());
  for (char c : piece) {
    const TokenId id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id >= 0) ids.push_back(id);
  }
  if (ids.size() <= kShortPiece) {
    encode_short(ids);
  } else {
    encode_long(ids);
  }
  out.insert(out.end(), ids.begin(), ids.end());
}

void Bpe::encode_short(std::vector<TokenId>& ids) const {
  while (ids.size() > 1) {
    const Merge* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const Merge* m = find(ids[i], ids[i + 1]);
      if (m != nullptr && (best == nullptr || m->rank < best->rank)) {
        best = m;
        at = i;
      }
    }
    if (best == nullptr) return;
    ids[at] = best->merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// A linked list of symbols and a heap of candidate merges; stale candidates are skipped.
void Bpe::encode_long(std::vector<TokenId>& ids) const {
  struct Node {
    TokenId id;
    int32_t previous, next;
  };
  struct Candidate {
    int32_t rank, left;
    TokenId left_id, right_id;
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }
  };
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Node> nodes(ids.size());
  for (int32_t i = 0; i < count; ++i) nodes[static_cast<size_t>(i)] = {ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto node = [&](int32_t i) -> Node& { return nodes[static_cast<size_t>(i)]; };
  const auto push = [&](int32_t left) {
    if (left < 0 || node(left).next < 0) return;
    const TokenId a = node(left).id, b = node(node(left).next).id;
    if (const Merge* m = find(a, b)) heap.push({m->rank, left, a, b});
  };
  for (int32_t i = 0; i + 1 < count; ++i) push(i);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    Node& left = node(c.left);
    if (left.id != c.left_id || left.next < 0 || node(left.next).id != c.right_id) continue;
    Node& right = node(left.next);
    left.id = find(c.left_id, c.right_id)->merged;
    left.next = right.next;
    right.id = -1;  // dead: no candidate names it
    if (left.next >= 0) node(left.next).previous = c.left;
    push(left.previous);
    push(c.left);
  }
  ids.clear();
  for (int32_t i = 0; i >= 0; i = node(i).next) ids.push_back(node(i).id);
}

}  // namespace exode::text
