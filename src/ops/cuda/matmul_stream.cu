// Matmul of 1…32 rows on tensor cores, bound by the weight stream: f16 products, f32 sums.
//
// A warp is a worker. All (pair of strips, block) items of a matrix are cut into equal runs, one
// per warp of the machine; a warp streams its run through a private ring in shared memory with
// asynchronous copies, so that loads of later items are always in flight. The first of them are
// issued before the kernel waits for its inputs: weights are nobody's output. Blocks of K too long
// for shared memory are cut into slices with workers of their own.
//
// A block of unscaled codes is summed in the MMA and joins the total times its scale. Where a run
// starts or ends inside a pair, the partial sums go to memory and the last worker of the pair to
// arrive adds them up in worker order. Cuts depend on the matrix and the machine only, so a row
// has the same bits for any count up to eight.
#include <algorithm>

#include "ops/cuda/matmul_stream.cuh"
#include "ops/cuda/matmul_stream.h"

namespace exode::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kPitchRest = 32;      // halves that keep rows of x out of each other's banks
constexpr int kPrefetchBlocks = 8;  // into L2, beyond the ring, before the inputs are there

struct StreamArgs {
  const uint8_t* codes;
  const float* scales;
  const uint8_t* zeros;  // null: none
  int64_t row_bytes, scale_stride, zero_stride;
  int outputs, blocks, blocks_per_scale, cols;
  int pairs, pair_rows, strip_step;  // row r of strip s of pair p: p·pair_rows + s·strip_step + r
  int slices, ctas;                  // CTAs of one slice
  ConstRows x;
  Rows out;
  int rows;
  float* pieces;  // [slices, pairs + workers, elements of a pair]
  int* arrived;   // [pairs], zero between launches
};

// One slice's items cut into runs.
struct Runs {
  unsigned total, workers;  // no worker is without an item
  __device__ unsigned begin(unsigned worker) const {
    return total * min(worker, workers) / workers;
  }
  __device__ unsigned worker_of(unsigned item) const { return ((item + 1) * workers - 1) / total; }
};

__device__ inline int slice_begin(const StreamArgs& a, int slice) {
  return a.blocks * slice / a.slices;
}
__device__ inline Runs runs_of(const StreamArgs& a, int slice) {
  const int count = slice_begin(a, slice + 1) - slice_begin(a, slice);
  const auto total = static_cast<unsigned>(a.pairs * count);
  return {total, min(static_cast<unsigned>(a.ctas * kWarps), total)};
}

__device__ inline void copy_async_16(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(global)
               : "memory");
}
__device__ inline void copy_async_4(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// A warp's ring, and the place in its run up to which it is filled.
template <class Codec, int STAGES>
struct Ring {
  static constexpr int kStageBytes = kPair * (Codec::kBlockBytes + int{sizeof(float)});
  static constexpr int kLanesPerRow = Codec::kBlockBytes / 16;
  static constexpr int kRowsPerCopy = kWarp / kLanesPerRow;
  static constexpr int kCopies = kPair / kRowsPerCopy;

  uint8_t* memory;
  int lane;
  int pair, block, count, first;  // next item; blocks in the slice; its first block
  unsigned left;
  const uint8_t* row[kCopies];
  const float* scale;

  __device__ void point(const StreamArgs& a) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int r = i * kRowsPerCopy + lane / kLanesPerRow;
      row[i] = a.codes + row_of(a, r) * a.row_bytes + lane % kLanesPerRow * 16;
    }
    scale = a.scales + row_of(a, lane) * a.scale_stride;
  }
  __device__ int64_t row_of(const StreamArgs& a, int r) const {
    return min(pair * a.pair_rows + r / kStrip * a.strip_step + r % kStrip, a.outputs - 1);
  }
  __device__ void fill(const StreamArgs& a, int stage) {
    if (left > 0) {
      uint8_t* to = memory + stage * kStageBytes;
      const int at = first + block;
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int r = i * kRowsPerCopy + lane / kLanesPerRow;
        copy_async_16(to + Codec::offset(r, lane % kLanesPerRow),
                      row[i] + int64_t{at} * Codec::kBlockBytes);
      }
      copy_async_4(to + kPair * Codec::kBlockBytes + lane * sizeof(float),
                   scale + at / a.blocks_per_scale);
      --left;
      if (++block == count) {
        block = 0;
        ++pair;
        if (left > 0) point(a);
      }
    }
    commit_copies();
  }
  // The items after those in the ring, as far as they are of the same pair.
  __device__ void prefetch() const {
    const int bytes =
        min(min(count - block, static_cast<int>(left)), kPrefetchBlocks) * Codec::kBlockBytes;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const uint8_t* from = row[i] + int64_t{first + block} * Codec::kBlockBytes;
      for (int at = lane % kLanesPerRow * 128; at < bytes; at += kLanesPerRow * 128) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
      }
    }
  }
};

// Rows of x of the slice, as halves in the order that the codec's operands want. A thread gathers
// the eight inputs that lie together.
template <class Codec>
__device__ void stage_inputs(const StreamArgs& a, int first, int count, __half* to, int pitch) {
  constexpr int kChunks = kBlock / 8;
  for (int i = threadIdx.x; i < a.rows * count * kChunks; i += blockDim.x) {
    const int chunk = i % kChunks, block = i / kChunks % count, row = i / kChunks / count;
    const float* from = a.x.row(row) + (first + block) * kBlock;
    const int left = a.cols - (first + block) * kBlock;
    __half2 v[4];
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
      const int k0 = Codec::input(chunk, e), k1 = Codec::input(chunk, e + 1);
      v[e / 2] = finite_halves(k0 < left ? from[k0] : 0.0f, k1 < left ? from[k1] : 0.0f);
    }
    *reinterpret_cast<uint4*>(to + row * pitch + block * kBlock + chunk * 8) =
        make_uint4(bits_of(v[0]), bits_of(v[1]), bits_of(v[2]), bits_of(v[3]));
  }
}

// Σ x per block and row, for zero points.
__device__ inline void sum_inputs(const StreamArgs& a, const __half* x, int pitch, int count,
                                  float* sums) {
  for (int i = threadIdx.x; i < a.rows * count; i += blockDim.x) {
    const __half* from = x + i % a.rows * pitch + i / a.rows * kBlock;
    float sum = 0;
    for (int k = 0; k < kBlock; ++k) sum += __half2float(from[k]);
    sums[i] = sum;
  }
}

template <int TILES>
using Totals = float[TILES][2][4];  // [rows of x / 8][strip][element of the MMA's C]

// Element i of C: output g + 8 (i / 2) of the strip, row 2 t + i % 2 of the tile.
__device__ inline int row_of_element(int tile, int lane, int i) {
  return tile * kRowTile + lane % 4 * 2 + i % 2;
}

template <int TILES, bool SWIGLU>
__device__ void write_pair(const StreamArgs& a, int pair, int lane, const Totals<TILES>& total) {
#pragma unroll
  for (int n = 0; n < TILES; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row_of_element(n, lane, i), r = lane / 4 + i / 2 * 8;
      if (row >= a.rows) continue;
      if constexpr (SWIGLU) {
        const int output = pair * kStrip + r;
        if (output < a.strip_step) {
          a.out.row(row)[output] = silu(total[n][0][i]) * total[n][1][i];
        }
      } else {
        const int output = pair * kPair + r;
        if (output < a.outputs) a.out.row(row)[output] = total[n][0][i];
        if (output + kStrip < a.outputs) a.out.row(row)[output + kStrip] = total[n][1][i];
      }
    }
  }
}

// Hands over this worker's part of a pair; true for the last to arrive, with the sum in `total`.
template <int TILES>
__device__ bool combine(const StreamArgs& a, int slice, int pair, int lane, unsigned worker,
                        Totals<TILES>& total) {
  constexpr int kElements = TILES * 8 * kWarp;
  const unsigned pieces = a.pairs + a.ctas * kWarps;
  float* own = a.pieces + (int64_t{slice} * pieces + pair + worker) * kElements + lane;
  float* flat = &total[0][0][0];
#pragma unroll
  for (int i = 0; i < TILES * 8; ++i) {
    if (row_of_element(i / 8, lane, i) < a.rows) __stcg(own + i * kWarp, flat[i]);
  }
  // Lane s counts the workers of slice s.
  unsigned begin = 0, end = 0;
  if (lane < a.slices) {
    const Runs runs = runs_of(a, lane);
    const unsigned count = runs.total / static_cast<unsigned>(a.pairs);
    begin = runs.worker_of(pair * count);
    end = runs.worker_of((pair + 1) * count - 1) + 1;
  }
  const auto expected = static_cast<int>(__reduce_add_sync(kAll, end - begin));
  __threadfence();
  __syncwarp();
  int before = 0;
  if (lane == 0) before = atomicAdd(a.arrived + pair, 1);
  before = __shfl_sync(kAll, before, 0);
  if (before + 1 != expected) return false;
  __threadfence();
#pragma unroll
  for (int i = 0; i < TILES * 8; ++i) flat[i] = 0;
  for (int s = 0; s < a.slices; ++s) {
    const unsigned last = __shfl_sync(kAll, end, s);
    for (unsigned w = __shfl_sync(kAll, begin, s); w < last; ++w) {
      const float* piece = a.pieces + (int64_t{s} * pieces + pair + w) * kElements + lane;
#pragma unroll
      for (int i = 0; i < TILES * 8; ++i) {
        if (row_of_element(i / 8, lane, i) < a.rows) flat[i] += __ldcg(piece + i * kWarp);
      }
    }
  }
  if (lane == 0) a.arrived[pair] = 0;
  return true;
}

// Adds one block of a pair to the totals.
template <class Codec, int TILES>
__device__ void multiply(const StreamArgs& a, const uint8_t* stage, const __half* x, int pitch,
                         const float (&shift)[2][2], const float* sums, Totals<TILES>& total) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  typename Codec::Line line[2][2];
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    line[s][0] = Codec::line(stage, s * kStrip + g, t);
    line[s][1] = Codec::line(stage, s * kStrip + g + 8, t);
  }
  Totals<TILES> c = {};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    uint4 b[TILES];
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      const int row = n * kRowTile + g;
      b[n] = make_uint4(0, 0, 0, 0);
      if (row < a.rows) {
        b[n] = *reinterpret_cast<const uint4*>(x + row * pitch + word * 32 + t * 8);
      }
    }
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const Operand even = Codec::operand(line[s][0], line[s][1], word, 0);
      const Operand odd = Codec::operand(line[s][0], line[s][1], word, 1);
#pragma unroll
      for (int n = 0; n < TILES; ++n) {
        mma(c[n][s], even, b[n].x, b[n].y);
        mma(c[n][s], odd, b[n].z, b[n].w);
      }
    }
  }
  const auto* scales = reinterpret_cast<const float*>(stage + kPair * Codec::kBlockBytes);
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const float scale[2] = {scales[s * kStrip + g], scales[s * kStrip + g + 8]};
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float value = c[n][s][i];
        if (sums != nullptr) {
          const int row = row_of_element(n, lane, i);
          value += shift[s][i / 2] * (row < a.rows ? sums[row] : 0.0f);
        }
        total[n][s][i] += scale[i / 2] * value;
      }
    }
  }
}

// 8 − zero of this lane's four weight rows.
__device__ inline void load_shifts(const StreamArgs& a, int pair, int block, float (&shift)[2][2]) {
  const int g = threadIdx.x % kWarp / 4, group = block / a.blocks_per_scale;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = pair * a.pair_rows + i / 2 * a.strip_step + g + i % 2 * 8;
    const int64_t at = int64_t{min(row, a.outputs - 1)} * a.zero_stride + group;
    shift[i / 2][i % 2] = 8.0f - static_cast<float>(a.zeros[at]);
  }
}

template <class Codec, int STAGES, int TILES, bool SWIGLU>
__global__ void __launch_bounds__(kWarps* kWarp, 2) stream_matmul(StreamArgs a) {
  start_next();
  extern __shared__ __align__(128) uint8_t shared[];
  using WarpRing = Ring<Codec, STAGES>;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int slice = blockIdx.x / a.ctas;
  const unsigned worker = blockIdx.x % a.ctas * kWarps + warp;
  const int first = slice_begin(a, slice), count = slice_begin(a, slice + 1) - first;
  const Runs runs = runs_of(a, slice);
  const unsigned begin = runs.begin(worker), end = runs.begin(worker + 1);

  WarpRing ring;
  ring.memory = shared + warp * STAGES * WarpRing::kStageBytes;
  ring.lane = lane;
  ring.count = count;
  ring.first = first;
  ring.left = end - begin;
  ring.pair = static_cast<int>(begin) / count;
  ring.block = static_cast<int>(begin) % count;
  int pair = ring.pair, block = ring.block;
  ring.point(a);
#pragma unroll
  for (int s = 0; s + 1 < STAGES; ++s) ring.fill(a, s);
  ring.prefetch();

  auto* x = reinterpret_cast<__half*>(shared + kWarps * STAGES * WarpRing::kStageBytes);
  const int longest = (a.blocks + a.slices - 1) / a.slices, pitch = longest * kBlock + kPitchRest;
  float* sums = a.zeros == nullptr ? nullptr : reinterpret_cast<float*>(x + a.rows * pitch);
  wait_for_earlier();
  stage_inputs<Codec>(a, first, count, x, pitch);
  __syncthreads();
  if (sums != nullptr) {
    sum_inputs(a, x, pitch, count, sums);
    __syncthreads();
  }

  Totals<TILES> total = {};
  bool whole = block == 0;
  int stage = 0;
  for (unsigned item = begin; item < end; ++item) {
    wait_copies<STAGES - 2>();
    __syncwarp();
    ring.fill(a, stage == 0 ? STAGES - 1 : stage - 1);
    float shift[2][2] = {};
    if (sums != nullptr) load_shifts(a, pair, first + block, shift);
    multiply<Codec, TILES>(a, ring.memory + stage * WarpRing::kStageBytes, x + block * kBlock,
                           pitch, shift, sums == nullptr ? nullptr : sums + block * a.rows, total);
    if (++stage == STAGES) stage = 0;
    const bool ends = ++block == count;
    if (!ends && item + 1 < end) continue;
    whole = whole && ends && a.slices == 1;
    if (whole || combine<TILES>(a, slice, pair, lane, worker, total)) {
      write_pair<TILES, SWIGLU>(a, pair, lane, total);
    }
#pragma unroll
    for (int i = 0; i < TILES * 8; ++i) (&total[0][0][0])[i] = 0;
    block = 0;
    ++pair;
    whole = true;
  }
}

template <class Codec, int STAGES, int TILES, bool SWIGLU>
void run(cudaStream_t stream, const StreamArgs& args, size_t shared_bytes) {
  const auto kernel = stream_matmul<Codec, STAGES, TILES, SWIGLU>;
  EXODE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(shared_bytes)));
  launch_chained(stream, kernel, static_cast<unsigned>(args.slices * args.ctas), kWarps * kWarp,
                 shared_bytes, args);
}

// How a matrix is cut: a function of the matrix, the machine and the row tiles only.
struct Cut {
  bool deep;
  int tiles, slices, ctas;
  size_t ring_bytes;
};

constexpr size_t kDeepFrom = size_t{160} << 10;  // shared memory of a block

template <class Codec>
Cut cut_of(int multiprocessors, size_t shared_max, int blocks, int rows) {
  Cut cut{};
  cut.deep = shared_max >= kDeepFrom;
  cut.tiles = rows <= kRowTile ? 1 : rows <= 2 * kRowTile ? 2 : 4;
  const int stages = cut.deep ? Codec::kDeep : Codec::kShallow;
  cut.ring_bytes = static_cast<size_t>(kWarps * stages * Ring<Codec, 2>::kStageBytes);
  const auto rows_max = static_cast<size_t>(cut.tiles * kRowTile);
  const size_t row_rest = kPitchRest * sizeof(__half);
  const size_t per_block = rows_max * (kBlock * sizeof(__half) + sizeof(float));
  const size_t left = shared_max - cut.ring_bytes - rows_max * row_rest;
  const auto longest = static_cast<int>(left / per_block);
  cut.slices = (blocks + longest - 1) / longest;
  EXODE_CHECK(cut.slices <= kWarp, "matmul: too many inputs for the shared memory of this device");
  cut.ctas = std::max(1, multiprocessors / cut.slices);
  return cut;
}

struct Problem {
  ConstTensorView x;
  const WeightView& w;
  TensorView out;
  bool swiglu;
  int blocks() const { return (w.cols + kBlock - 1) / kBlock; }
  int pairs() const {
    return swiglu ? (w.rows / 2 + kStrip - 1) / kStrip : (w.rows + kPair - 1) / kPair;
  }
};

size_t piece_floats(const Problem& p, const Cut& cut) {
  const auto pieces = static_cast<size_t>(p.pairs() + cut.ctas * kWarps);
  return static_cast<size_t>(cut.slices) * pieces * static_cast<size_t>(cut.tiles * 8 * kWarp);
}

StreamArgs args_of(const Problem& p, const Cut& cut, const Stream& stream, Scratch scratch) {
  StreamArgs a{};
  a.codes = reinterpret_cast<const uint8_t*>(p.w.codes.data);
  a.scales = p.w.scales.row<float>(0);
  a.zeros = p.w.zeros.empty() ? nullptr : p.w.zeros.row<uint8_t>(0);
  a.row_bytes = p.w.codes.row_stride;
  a.scale_stride = p.w.scales.row_stride;
  a.zero_stride = p.w.zeros.row_stride;
  a.outputs = p.w.rows;
  a.blocks = p.blocks();
  a.blocks_per_scale = p.w.group / kBlock;
  a.cols = p.w.cols;
  a.pairs = p.pairs();
  a.pair_rows = p.swiglu ? kStrip : kPair;
  a.strip_step = p.swiglu ? p.w.rows / 2 : kStrip;
  a.slices = cut.slices;
  a.ctas = cut.ctas;
  a.x = rows_of(p.x);
  a.out = rows_of(p.out);
  a.rows = p.x.rows();
  a.pieces = reinterpret_cast<float*>(scratch.data());
  a.arrived = stream.counters().data();
  EXODE_CHECK(static_cast<size_t>(a.pairs) <= stream.counters().size() &&
                  int64_t{a.pairs} * a.blocks * a.ctas * kWarps < (int64_t{1} << 32),
              "matmul: more outputs than a streamed kernel counts");
  return a;
}

template <class Codec, int STAGES, bool SWIGLU>
void run_tiles(cudaStream_t stream, const StreamArgs& a, const Cut& cut) {
  const auto longest = static_cast<size_t>((a.blocks + a.slices - 1) / a.slices);
  const size_t row_bytes = (longest * kBlock + kPitchRest) * sizeof(__half);
  const size_t sum_bytes = a.zeros == nullptr ? 0 : longest * sizeof(float);
  const size_t shared = cut.ring_bytes + static_cast<size_t>(a.rows) * (row_bytes + sum_bytes);
  if (cut.tiles == 1) return run<Codec, STAGES, 1, SWIGLU>(stream, a, shared);
  if (cut.tiles == 2) return run<Codec, STAGES, 2, SWIGLU>(stream, a, shared);
  run<Codec, STAGES, 4, SWIGLU>(stream, a, shared);
}

template <class Codec>
void run_problem(Stream& stream, const Problem& p, Scratch scratch) {
  int device = 0, multiprocessors = 0, shared_max = 0;
  EXODE_CUDA_CHECK(cudaGetDevice(&device));
  EXODE_CUDA_CHECK(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  EXODE_CUDA_CHECK(
      cudaDeviceGetAttribute(&shared_max, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const Cut cut =
      cut_of<Codec>(multiprocessors, static_cast<size_t>(shared_max), p.blocks(), p.x.rows());
  const StreamArgs a = args_of(p, cut, stream, scratch);
  const cudaStream_t s = native(stream);
  if (cut.deep) {
    if (p.swiglu) return run_tiles<Codec, Codec::kDeep, true>(s, a, cut);
    return run_tiles<Codec, Codec::kDeep, false>(s, a, cut);
  }
  if (p.swiglu) return run_tiles<Codec, Codec::kShallow, true>(s, a, cut);
  run_tiles<Codec, Codec::kShallow, false>(s, a, cut);
}

size_t scratch_of(const DeviceCaps& caps, const Problem& p) {
  const Cut cut =
      cut_of<Int4Codec>(caps.multiprocessors, static_cast<size_t>(caps.shared_bytes_per_block),
                        p.blocks(), p.x.rows());
  return piece_floats(p, cut) * sizeof(float);
}

}  // namespace

bool streams(const WeightView& w, int32_t rows) {
  return rows <= kStreamRowsMax && w.layout == WeightLayout::kInt4Group && w.group % kBlock == 0;
}

size_t stream_scratch_bytes(const DeviceCaps& caps, const ops::MatMul& op) {
  return scratch_of(caps, {op.x, op.w, op.out, false});
}
size_t stream_scratch_bytes(const DeviceCaps& caps, const ops::MatMulSwiGlu& op) {
  return scratch_of(caps, {op.x, op.w, op.out, true});
}
void stream_launch(Stream& stream, const ops::MatMul& op, Scratch scratch) {
  run_problem<Int4Codec>(stream, {op.x, op.w, op.out, false}, scratch);
}
void stream_launch(Stream& stream, const ops::MatMulSwiGlu& op, Scratch scratch) {
  run_problem<Int4Codec>(stream, {op.x, op.w, op.out, true}, scratch);
}

}  // namespace exode::cuda
