#include "ops/cuda/gdn_chunk.h"

#include "ops/cuda/gdn_chunk.cuh"

namespace exode::cuda {
namespace {

int chunks_max(const ops::GatedDeltaNet& op) {
  return op.qkvz.rows() / kChunk + 2 * op.seqs.seqs();
}

struct Layout {
  size_t key_tile, value_tile, square, decays;  // bytes of each part
  explicit Layout(const ops::GatedDeltaNet& op) {
    const auto chunks = static_cast<size_t>(chunks_max(op));
    const size_t keys = chunks * static_cast<size_t>(op.shape.key_heads);
    const size_t values = chunks * static_cast<size_t>(op.shape.value_heads);
    key_tile = keys * kChunk * kGdnDim * sizeof(__half);
    value_tile = values * kChunk * kGdnDim * sizeof(__half);
    square = values * kChunk * kChunk * sizeof(__half);
    decays = values * 2 * kChunk * sizeof(float);
  }
  size_t bytes() const { return 2 * key_tile + value_tile + 2 * square + decays; }
  ChunkTiles over(std::byte* memory) const {
    const auto take = [&](size_t bytes) {
      std::byte* part = memory;
      memory += bytes;
      return part;
    };
    ChunkTiles t{};
    t.q = reinterpret_cast<__half*>(take(key_tile));
    t.k = reinterpret_cast<__half*>(take(key_tile));
    t.v = reinterpret_cast<__half*>(take(value_tile));
    t.solve = reinterpret_cast<__half*>(take(square));
    t.mix = reinterpret_cast<__half*>(take(square));
    t.decays = reinterpret_cast<float*>(take(decays));
    return t;
  }
};

}  // namespace

size_t gdn_chunk_scratch_bytes(const ops::GatedDeltaNet& op) { return Layout(op).bytes(); }

void gdn_chunk_launch(Stream& stream, const ops::GatedDeltaNet& op, Scratch scratch) {
  gdn_require_quads(op);
  const ChunkArgs a{gdn_args(op), Layout(op).over(scratch.data())};
  gdn_prepare(native(stream), a, chunks_max(op));
  gdn_scan(native(stream), a);
  gdn_norm_chunks(native(stream), a, chunks_max(op));
}

}  // namespace exode::cuda
