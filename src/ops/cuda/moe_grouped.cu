// Experts for many rows: pairs (row, choice) grouped by expert, in passes of up to 2048 rows.
//
//   sort_pairs    pairs by expert, and the list of tiles: up to 64 pairs of one expert
//   store_halves  x as halves, in the order of the codec
//   tile_gate_up  a CTA per (128 inner outputs, tile): act = silu(gate) · up, in halves
//   tile_down     a CTA per (256 hidden outputs, tile): result of each pair times its weight
//   add_results   per row, in the order of choices
//
// The grid is that of the worst case: a tile more for each expert than the pairs would fill. The
// shared expert is the last in the list; each row is a pair of it, counted on from the others.
// The place of a pair in its tile is left to chance; its bits do not depend on it.
#include <algorithm>

#include "ops/cuda/moe_args.cuh"

namespace exode::cuda::moe {
namespace {

constexpr int kPassRows = 2048;
constexpr int kTilePairs = 64;
constexpr int kTileSteps = kTilePairs / kRowTile;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStages = 3;
constexpr int kPitchBytes = 2 * kBlock + 64;  // rows of a stage, off each other's banks
constexpr int kStageBytes = kTilePairs * kPitchBytes;
constexpr int kUpOutputs = kWarps * kStrip, kDownOutputs = 2 * kUpOutputs;
constexpr int kSortThreads = 1024;
constexpr int kExpertsMax = 2047;

struct Tile {
  int expert, first, count;  // sorted places [first, first + count)
};

struct Grouped {
  Args a;  // of the pass
  __half *x, *shared_x, *act, *results;
  int x_stride, act_stride;
  int* sorted;  // [slots] pair at each place
  Tile* tiles;
  int* tile_count;
  int slots, tiles_max;
};

__device__ inline int expert_of_slot(const Args& a, int slot) {
  return slot < a.pairs() ? a.ids[slot] : a.experts;
}

// Exclusive sums of pairs and of tiles over experts, by one warp, in place.
__device__ void scan_counts(int experts, int* firsts, int* tiles) {
  const int lane = threadIdx.x;
  int pairs_before = 0, tiles_before = 0;
  for (int base = 0; base < experts; base += kWarp) {
    const int e = base + lane;
    const int count = e < experts ? firsts[e] : 0;
    int pairs = count, whole = (count + kTilePairs - 1) / kTilePairs;
    const int own_tiles = whole;
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const int p = __shfl_up_sync(kAll, pairs, offset), w = __shfl_up_sync(kAll, whole, offset);
      if (lane >= offset) {
        pairs += p;
        whole += w;
      }
    }
    if (e < experts) {
      firsts[e] = pairs_before + pairs - count;
      tiles[e] = tiles_before + whole - own_tiles;
    }
    pairs_before += __shfl_sync(kAll, pairs, kWarp - 1);
    tiles_before += __shfl_sync(kAll, whole, kWarp - 1);
  }
  if (lane == 0) tiles[experts] = tiles_before;
}

__global__ void __launch_bounds__(kSortThreads) sort_pairs(Grouped q) {
  start_next();
  __shared__ int counts[kExpertsMax + 1], firsts[kExpertsMax + 1], tiles[kExpertsMax + 2];
  const int experts = q.a.experts + (q.a.has_shared() ? 1 : 0);
  for (int e = threadIdx.x; e < experts; e += kSortThreads) counts[e] = 0;
  __syncthreads();
  wait_for_earlier();
  for (int s = threadIdx.x; s < q.slots; s += kSortThreads) {
    atomicAdd(&counts[expert_of_slot(q.a, s)], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kSortThreads) firsts[e] = counts[e];
  __syncthreads();
  if (threadIdx.x < kWarp) scan_counts(experts, firsts, tiles);
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kSortThreads) {
    for (int at = 0; at < counts[e]; at += kTilePairs) {
      q.tiles[tiles[e] + at / kTilePairs] = {e, firsts[e] + at, min(kTilePairs, counts[e] - at)};
    }
  }
  if (threadIdx.x == 0) *q.tile_count = tiles[experts];
  __syncthreads();
  for (int s = threadIdx.x; s < q.slots; s += kSortThreads) {
    q.sorted[atomicAdd(&firsts[expert_of_slot(q.a, s)], 1)] = s;
  }
}

// A thread per lane's share of a block of a row.
template <class Codec>
__global__ void __launch_bounds__(kThreads)
    store_halves(ConstRows x, int cols, int blocks, int rows, __half* out) {
  start_next();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int t = i % 4, block = i / 4 % blocks, row = i / 4 / blocks;
  wait_for_earlier();
  if (row >= rows) return;
  uint32_t b[16];
  load_inputs<Codec>(x.row(row), block, cols, t, b);
  __half* to = out + (int64_t{row} * blocks + block) * kBlock + t * 8;
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    *reinterpret_cast<uint4*>(to + word * 32) =
        make_uint4(b[4 * word], b[4 * word + 1], b[4 * word + 2], b[4 * word + 3]);
  }
}

__device__ inline void copy_async_16(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}

// The inputs of a tile: rows of halves, by number.
struct TileInputs {
  const __half* x;
  int64_t stride;
  const int* rows;  // shared memory, [count]
  int count, blocks;
};

// Copies a block of all rows into its stage; always one group of copies.
__device__ inline void fill_stage(const TileInputs& in, uint8_t* stages, int block) {
  if (block < in.blocks) {
    uint8_t* stage = stages + block % kStages * kStageBytes;
#pragma unroll
    for (int i = 0; i < kTilePairs * 16 / kThreads; ++i) {
      const int chunk = i * kThreads + threadIdx.x, row = chunk / 16, part = chunk % 16;
      if (row >= in.count) continue;
      copy_async_16(stage + row * kPitchBytes + part * 16,
                    in.x + in.rows[row] * in.stride + block * kBlock + part * 8);
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Two strips of one block, with scales in halves.
template <class Codec>
struct PairBlock {
  typename Codec::Lines line[2][2];
  __half2 scale[2][2], shift[2][2];
  __device__ void load(const Matrix& w, const int64_t (&strip)[2], int block) {
    const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t row = strip[s] + g + 8 * i;
        line[s][i] = Codec::line(w, row, block, t);
        scale[s][i] = __float2half2_rn(Codec::scale(w, row, block) * Codec::kUnit);
        if (Codec::kHasZeros && w.zeros != nullptr) {
          shift[s][i] = __float2half2_rn(Codec::shift(w, row, block));
        }
      }
    }
  }
  __device__ uint32_t weight(uint32_t code, int s, int i, bool has_zeros) const {
    __half2 v = halves_of(code);
    if (Codec::kHasZeros && has_zeros) v = __hadd2(v, shift[s][i]);
    return bits_of(__hmul2(v, scale[s][i]));
  }
  __device__ Operand operand(int s, int m, bool has_zeros) const {
    Operand a = Codec::operand(line[s][0], line[s][1], m);
    if constexpr (Codec::kScaled) {
      a = {weight(a.a0, s, 0, has_zeros), weight(a.a1, s, 1, has_zeros),
           weight(a.a2, s, 0, has_zeros), weight(a.a3, s, 1, has_zeros)};
    }
    return a;
  }
};

using Totals = float[2][kTileSteps][4];  // [strip][8 pairs][element of C]

template <class Codec>
__device__ void add_tile_block(const PairBlock<Codec>& w, const uint8_t* stage, int count,
                               bool has_zeros, Totals& total) {
  const int g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    Operand a[2][2];
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      a[s][0] = w.operand(s, 2 * word, has_zeros);
      a[s][1] = w.operand(s, 2 * word + 1, has_zeros);
    }
#pragma unroll
    for (int n = 0; n < kTileSteps; ++n) {
      if (n * kRowTile >= count) continue;
      const uint4 b = *reinterpret_cast<const uint4*>(stage + (n * kRowTile + g) * kPitchBytes +
                                                      word * 64 + t * 16);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        mma(total[s][n], a[s][0], b.x, b.y);
        mma(total[s][n], a[s][1], b.z, b.w);
      }
    }
  }
}

// total = two strips of weight rows times the tile's inputs. Warps without outputs take part in
// the copies only.
template <class Codec>
__device__ void multiply_tile(const Matrix& w, const int64_t (&strip)[2], bool active,
                              const TileInputs& in, uint8_t* stages, Totals& total) {
  constexpr bool kAhead = Codec::kLoads <= 2;  // registers for the next block's weights
  const bool has_zeros = w.zeros != nullptr;
  PairBlock<Codec> weights;
  if (kAhead && active) weights.load(w, strip, 0);
  fill_stage(in, stages, 0);
  fill_stage(in, stages, 1);
  for (int block = 0; block < in.blocks; ++block) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();
    fill_stage(in, stages, block + kStages - 1);
    if (!active) continue;
    const uint8_t* stage = stages + block % kStages * kStageBytes;
    if constexpr (kAhead) {
      const PairBlock<Codec> now = weights;
      if (block + 1 < in.blocks) weights.load(w, strip, block + 1);
      add_tile_block<Codec>(now, stage, in.count, has_zeros, total);
    } else {
      weights.load(w, strip, block);
      add_tile_block<Codec>(weights, stage, in.count, has_zeros, total);
    }
  }
  __syncthreads();
}

__device__ inline __half finite_half(float x) {
  return __float2half_rn(fminf(fmaxf(x, -65504.0f), 65504.0f));
}

// Rows of halves in shared memory to rows in memory, 16 bytes a thread; `width` is a multiple of 8.
__device__ inline void copy_out(const __half* from, int pitch, int count, int width,
                                __half* const* to) {
  const int chunks = width / 8;
  for (int i = threadIdx.x; i < count * chunks; i += kThreads) {
    const int row = i / chunks, chunk = i % chunks;
    *reinterpret_cast<uint4*>(to[row] + chunk * 8) =
        *reinterpret_cast<const uint4*>(from + row * pitch + chunk * 8);
  }
}

struct TileShared {
  int rows[kTilePairs];
  float weights[kTilePairs];
  __half* to[kTilePairs];
};

template <class Codec>
__device__ void gate_up_tile(const Grouped& q, const Matrix& w, const Tile& tile, const __half* x,
                             int inner, TileShared& shared, uint8_t* stages) {
  const int output = blockIdx.x * kUpOutputs;
  if (output >= inner) return;
  for (int i = threadIdx.x; i < tile.count; i += kThreads) {
    const int slot = q.sorted[tile.first + i];
    shared.rows[i] = slot < q.a.pairs() ? slot / q.a.top_k : slot - q.a.pairs();
    shared.to[i] = q.act + int64_t{tile.first + i} * q.act_stride + output;
  }
  __syncthreads();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int mine = output + warp * kStrip;
  const int64_t base = tile.expert == q.a.experts ? 0 : int64_t{tile.expert} * 2 * inner;
  const int64_t strips[2] = {base + mine, base + inner + mine};
  Totals total = {};
  multiply_tile<Codec>(w, strips, mine < inner, {x, q.x_stride, shared.rows, tile.count, w.blocks},
                       stages, total);
  auto* act = reinterpret_cast<__half*>(stages);
  constexpr int kPitch = kUpOutputs + 8;
#pragma unroll
  for (int n = 0; n < kTileSteps; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int pair = n * kRowTile + lane % 4 * 2 + i % 2;
      const int place = Codec::place(warp * kStrip + lane / 4 + i / 2 * 8);
      act[pair * kPitch + place] = finite_half(silu(total[0][n][i]) * total[1][n][i]);
    }
  }
  __syncthreads();
  copy_out(act, kPitch, tile.count, kUpOutputs, shared.to);
}

template <class Codec>
__device__ void down_tile(const Grouped& q, const Matrix& w, const Tile& tile, TileShared& shared,
                          uint8_t* stages) {
  const int output = blockIdx.x * kDownOutputs;
  for (int i = threadIdx.x; i < tile.count; i += kThreads) {
    const int slot = q.sorted[tile.first + i];
    shared.rows[i] = tile.first + i;
    shared.weights[i] =
        slot < q.a.pairs() ? q.a.weights[slot] : sigmoid(q.a.gate.row(slot - q.a.pairs())[0]);
    shared.to[i] = q.results + int64_t{slot} * q.a.hidden + output;
  }
  __syncthreads();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int mine = output + warp * 2 * kStrip;
  const int64_t base = tile.expert == q.a.experts ? 0 : int64_t{tile.expert} * q.a.hidden;
  // A second strip past the end repeats the first; it is not copied out.
  const int64_t strips[2] = {base + mine, base + mine + (mine + kStrip < q.a.hidden ? kStrip : 0)};
  Totals total = {};
  multiply_tile<Codec>(w, strips, mine < q.a.hidden,
                       {q.act, q.act_stride, shared.rows, tile.count, w.blocks}, stages, total);
  auto* results = reinterpret_cast<__half*>(stages);
  constexpr int kPitch = kDownOutputs + 8;
#pragma unroll
  for (int n = 0; n < kTileSteps; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int pair = n * kRowTile + lane % 4 * 2 + i % 2;
      if (pair >= tile.count) continue;
      __half* to = results + pair * kPitch + warp * 2 * kStrip + lane / 4 + i / 2 * 8;
      to[0] = finite_half(total[0][n][i] * shared.weights[pair]);
      to[kStrip] = finite_half(total[1][n][i] * shared.weights[pair]);
    }
  }
  __syncthreads();
  copy_out(results, kPitch, tile.count, min(kDownOutputs, q.a.hidden - output), shared.to);
}

template <class Codec, class SharedCodec>
__global__ void __launch_bounds__(kThreads, 1) tile_gate_up(Grouped q) {
  start_next();
  extern __shared__ __align__(128) uint8_t stages[];
  __shared__ TileShared shared;
  wait_for_earlier();
  if (static_cast<int>(blockIdx.y) >= *q.tile_count) return;
  const Tile tile = q.tiles[blockIdx.y];
  if (tile.expert == q.a.experts) {
    gate_up_tile<SharedCodec>(q, q.a.shared_gate_up, tile, q.shared_x, q.a.shared_inner, shared,
                              stages);
  } else {
    gate_up_tile<Codec>(q, q.a.gate_up, tile, q.x, q.a.inner, shared, stages);
  }
}

template <class Codec, class SharedCodec>
__global__ void __launch_bounds__(kThreads, 1) tile_down(Grouped q) {
  start_next();
  extern __shared__ __align__(128) uint8_t stages[];
  __shared__ TileShared shared;
  wait_for_earlier();
  if (static_cast<int>(blockIdx.y) >= *q.tile_count) return;
  const Tile tile = q.tiles[blockIdx.y];
  if (tile.expert == q.a.experts) {
    down_tile<SharedCodec>(q, q.a.shared_down, tile, shared, stages);
  } else {
    down_tile<Codec>(q, q.a.down, tile, shared, stages);
  }
}

__device__ inline void add_halves(const __half* from, float (&sum)[8]) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 v = __half22float2(halves_of((&raw.x)[i]));
    sum[2 * i] += v.x;
    sum[2 * i + 1] += v.y;
  }
}

// A CTA per row, eight outputs a thread.
__global__ void __launch_bounds__(kThreads) add_results(Grouped q) {
  start_next();
  const int row = blockIdx.x;
  wait_for_earlier();
  for (int c = threadIdx.x * 8; c < q.a.hidden; c += kThreads * 8) {
    float sum[8] = {};
    for (int j = 0; j < q.a.top_k; ++j) {
      add_halves(q.results + (int64_t{row} * q.a.top_k + j) * q.a.hidden + c, sum);
    }
    if (q.a.has_shared()) {
      add_halves(q.results + int64_t{q.a.pairs() + row} * q.a.hidden + c, sum);
    }
    auto* to = reinterpret_cast<float4*>(q.a.out.row(row) + c);
    to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
  }
}

// Cuts scratch into 256-byte aligned parts; counts when there is none.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(size_t count) {
    T* at = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += (count * sizeof(T) + 255) / 256 * 256;
    return at;
  }
  size_t used() const { return used_; }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

bool same_codec(const ops::MoeExperts& op) {
  return op.shared.empty() || op.shared.gate_up.layout == op.gate_up.layout;
}

Grouped carve(const ops::MoeExperts& op, int rows, Carver& memory) {
  Grouped q{};
  q.a = args_of(op);
  q.a.rows = rows;
  q.x_stride = q.a.gate_up.blocks * kBlock;
  q.act_stride = std::max(q.a.down.blocks, q.a.shared_down.blocks) * kBlock;
  q.slots = q.a.pairs() + (q.a.has_shared() ? rows : 0);
  q.tiles_max = q.slots / kTilePairs + std::min(q.slots, q.a.experts + 1);
  const auto slots = static_cast<size_t>(q.slots), n = static_cast<size_t>(rows);
  q.x = memory.take<__half>(n * static_cast<size_t>(q.x_stride));
  q.shared_x = same_codec(op) ? q.x : memory.take<__half>(n * static_cast<size_t>(q.x_stride));
  q.act = memory.take<__half>(slots * static_cast<size_t>(q.act_stride));
  q.results = memory.take<__half>(slots * static_cast<size_t>(q.a.hidden));
  q.sorted = memory.take<int>(slots);
  q.tiles = memory.take<Tile>(static_cast<size_t>(q.tiles_max));
  q.tile_count = memory.take<int>(1);
  return q;
}

template <class Codec>
void run_store(cudaStream_t stream, const Grouped& q, __half* to) {
  const int blocks = q.a.gate_up.blocks;
  launch_chained(stream, store_halves<Codec>, blocks_for(int64_t{q.a.rows} * blocks * 4, kThreads),
                 kThreads, 0, q.a.x, q.a.hidden, blocks, q.a.rows, to);
}

template <class Codec, class SharedCodec>
void run_pass(cudaStream_t stream, const Grouped& q) {
  constexpr size_t kShared = size_t{kStages} * kStageBytes;
  const auto up = tile_gate_up<Codec, SharedCodec>;
  const auto down = tile_down<Codec, SharedCodec>;
  for (auto kernel : {up, down}) {
    EXODE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(kShared)));
  }
  launch_chained(stream, sort_pairs, 1, kSortThreads, 0, q);
  run_store<Codec>(stream, q, q.x);
  if (q.shared_x != q.x) run_store<SharedCodec>(stream, q, q.shared_x);
  const auto tiles = static_cast<unsigned>(q.tiles_max);
  const int inner = std::max(q.a.inner, q.a.shared_inner);
  launch_chained(stream, up, dim3(blocks_for(inner, kUpOutputs), tiles), kThreads, kShared, q);
  launch_chained(stream, down, dim3(blocks_for(q.a.hidden, kDownOutputs), tiles), kThreads, kShared,
                 q);
  launch_chained(stream, add_results, static_cast<unsigned>(q.a.rows), kThreads, 0, q);
}

}  // namespace

size_t grouped_scratch_bytes(const ops::MoeExperts& op) {
  Carver counting(nullptr);
  carve(op, std::min(op.x.rows(), kPassRows), counting);
  return counting.used();
}

void grouped_launch(Stream& stream, const ops::MoeExperts& op, Scratch scratch) {
  EXODE_CHECK(op.experts < kExpertsMax, "moe_experts: more than 2046 experts are not built");
  for (int first = 0; first < op.x.rows(); first += kPassRows) {
    Carver memory(scratch.data());
    Grouped q = carve(op, std::min(op.x.rows() - first, kPassRows), memory);
    q.a.x.data += first * q.a.x.stride;
    q.a.out.data += first * q.a.out.stride;
    q.a.ids += int64_t{first} * q.a.top_k;
    q.a.weights += int64_t{first} * q.a.top_k;
    if (q.a.has_shared()) q.a.gate.data += first * q.a.gate.stride;
    with_codecs(op, [&](auto codec, auto shared) {
      run_pass<decltype(codec), decltype(shared)>(native(stream), q);
    });
  }
}

}  // namespace exode::cuda::moe
