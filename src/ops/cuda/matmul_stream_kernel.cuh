// Matmul of 1…32 rows on tensor cores, bound by the weight stream: f16 products, f32 sums.
//
// A warp is a worker. All (pair of strips, block) items of a matrix are cut into equal runs, one
// per warp of the machine; a warp streams its run through a private ring in shared memory with
// asynchronous copies, so that loads of later items are always in flight. The first of them are
// issued before the kernel waits for its inputs: weights are nobody's output. Blocks of K too long
// for shared memory are cut into slices with workers of their own.
//
// A block of unscaled codes is summed in the MMA and joins the total times its scale. Runs start
// and end inside pairs. The worker that starts a pair does so at the end of its run; it finishes
// the pair with the sums of the workers after it: those of its CTA through shared memory, those of
// the next CTAs, one sum each, through the stream's exchange; always in worker order. Cuts depend
// on the matrix and the machine only, so a row has the same bits for any count up to eight.
//
// Each codec is compiled in a file of its own: run_problem<Codec>() is what those files call.
#pragma once

#include <algorithm>

#include "ops/cuda/matmul_stream.cuh"
#include "ops/cuda/matmul_stream.h"

namespace exode::cuda {
namespace {  // kernels of one file

constexpr int kWarps = 12;
constexpr int kPassRows = 32;
constexpr int kPitchRest = 32;  // halves that keep rows of x out of each other's banks

struct StreamArgs {
  const uint8_t* codes;
  const float* scales;
  const uint8_t* zeros;  // null: none
  int64_t row_bytes, scale_stride, zero_stride;
  int strip;
  int outputs, blocks, cols;
  int groups, blocks_per_scale;      // scales of a row; the latter where a block has one
  int pairs, pair_rows, strip_step;  // row r of strip s of pair p: p·pair_rows + s·strip_step + r
  int slices, ctas;                  // CTAs of one slice
  ConstRows x;
  Rows out;
  int rows;
  bool x_in_fours;    // rows of x start at multiples of 16 bytes
  float* cta_sums;    // [slices, ctas, elements of a pair]: of the pair begun before the CTA's runs
  float* slice_sums;  // [slices - 1, pairs, elements of a pair]: of slices but the first
};

// One slice's items cut into runs.
struct Runs {
  unsigned total, workers;  // no worker is without an item
  __device__ unsigned begin(unsigned worker) const {
    return total * min(worker, workers) / workers;
  }
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
template <class Codec>
struct Ring {
  static constexpr int kScaleBytes = kPair * Codec::kGroups * int{sizeof(float)};
  static constexpr int kStageBytes = kPair * Codec::kBlockBytes + kScaleBytes;
  static constexpr int kLanesPerRow = Codec::kBlockBytes / 16;
  static constexpr int kRowsPerCopy = kWarp / kLanesPerRow;
  static constexpr int kCopies = kPair / kRowsPerCopy;

  uint8_t* memory;
  int lane, first, count;  // first block of the slice, blocks in it
  int pair, block, left;   // next item, and how many there are
  int to_scale;            // blocks until the next scale
  const uint8_t* row[kCopies];
  const float* scale;

  __device__ void point(const StreamArgs& a) {
    const int at = first + block;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int64_t r = row_of(a, i * kRowsPerCopy + lane / kLanesPerRow);
      const int in_strip = static_cast<int>(r) & (a.strip - 1);
      row[i] = a.codes + (r - in_strip) * a.row_bytes +
               (at * a.strip + in_strip) * Codec::kBlockBytes + lane % kLanesPerRow * 16;
    }
    if constexpr (Codec::kGroups > 0) {
      const int64_t r = row_of(a, lane);
      const int in_strip = static_cast<int>(r) & (a.strip - 1);
      const int group = Codec::kGroups == 1 ? at / a.blocks_per_scale : at * Codec::kGroups;
      scale = a.scales + (r - in_strip) * a.scale_stride + group * a.strip + in_strip;
      if constexpr (Codec::kGroups == 1) to_scale = a.blocks_per_scale - at % a.blocks_per_scale;
    }
  }
  // The last block of a row may have fewer groups: its padding takes the scale of the last.
  __device__ void fill_scales(const StreamArgs& a, uint8_t* to) {
    if constexpr (Codec::kGroups == 1) {
      copy_async_4(to + lane * sizeof(float), scale);
      if (--to_scale > 0) return;
      to_scale = a.blocks_per_scale;
      scale += a.strip;
    } else if constexpr (Codec::kGroups > 1) {
      const int last = a.groups - 1 - (first + block) * Codec::kGroups;
#pragma unroll
      for (int g = 0; g < Codec::kGroups; ++g) {
        copy_async_4(to + (g * kPair + lane) * sizeof(float), scale + min(g, last) * a.strip);
      }
      scale += Codec::kGroups * a.strip;
    }
  }
  __device__ int64_t row_of(const StreamArgs& a, int r) const {
    return min(pair * a.pair_rows + r / kStrip * a.strip_step + r % kStrip, a.outputs - 1);
  }
  __device__ void fill(const StreamArgs& a, int stage) {
    if (left > 0) {
      uint8_t* to = memory + stage * kStageBytes;
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int r = i * kRowsPerCopy + lane / kLanesPerRow;
        copy_async_16(to + Codec::offset(r, lane % kLanesPerRow), row[i]);
        row[i] += a.strip * Codec::kBlockBytes;
      }
      fill_scales(a, to + kPair * Codec::kBlockBytes);
      --left;
      if (++block == count) {
        block = 0;
        ++pair;
        if (left > 0) point(a);
      }
    }
    commit_copies();
  }
};

// Four inputs; zeros past the end.
__device__ inline float4 load_inputs(const float* from, int left, bool in_fours) {
  if (left >= 4 && in_fours) return *reinterpret_cast<const float4*>(from);
  return make_float4(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f,
                     left > 2 ? from[2] : 0.0f, left > 3 ? from[3] : 0.0f);
}

// Rows of x of the slice, as halves in the order that the codec's operands want. A task is eight
// inputs of a row; a thread has the loads of several in flight.
template <class Codec>
__device__ void stage_inputs(const StreamArgs& a, int first, int count, __half* to, int pitch) {
  constexpr int kTasks = Codec::kInputs / 8, kUnroll = 4;
  static_assert(kWarps * kWarp % kTasks == 0);
  const int width = count * kTasks;
  int row = 0, task = threadIdx.x;
  const auto settle = [&] {
    while (task >= width && row < a.rows) {
      task -= width;
      ++row;
    }
  };
  settle();
  while (row < a.rows) {
    float4 v[kUnroll][2];
    __half* place[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      place[u] = nullptr;
      if (row >= a.rows) continue;
      place[u] = to + row * pitch + task / kTasks * Codec::kInputs;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int k = (first + task / kTasks) * Codec::kInputs + Codec::input(task % kTasks, h);
        v[u][h] = load_inputs(a.x.row(row) + k, a.cols - k, a.x_in_fours);
      }
      task += blockDim.x;
      settle();
    }
    // The place in a block stays the same: the block size is a multiple of the tasks.
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (place[u] != nullptr) Codec::store(place[u], threadIdx.x % kTasks, v[u][0], v[u][1]);
    }
  }
}

// Σ x per group and row, for zero points. Inputs of a group are neighbours in every codec.
template <class Codec>
__device__ void sum_inputs(const StreamArgs& a, const __half* x, int pitch, int count,
                           float* sums) {
  constexpr int kWidth = Codec::kInputs / Codec::kGroups;
  for (int i = threadIdx.x; i < a.rows * count * Codec::kGroups; i += blockDim.x) {
    const __half* from = x + i % a.rows * pitch + i / a.rows * kWidth;
    float sum = 0;
    for (int k = 0; k < kWidth; ++k) sum += __half2float(from[k]);
    sums[i] = sum;
  }
}

template <int TILES>
using Totals = float[TILES][2][4];  // [rows of x / 8][strip][element of the MMA's C]

template <int TILES>
__device__ void clear(float (&total)[TILES][2][4]) {
#pragma unroll
  for (int i = 0; i < TILES * 8; ++i) (&total[0][0][0])[i] = 0;
}

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

template <int TILES>
__device__ void leave(const StreamArgs& a, float* place, const Totals<TILES>& total) {
  const int lane = threadIdx.x % kWarp;
  const float* flat = &total[0][0][0];
#pragma unroll
  for (int i = 0; i < TILES * 8; ++i) {
    if (row_of_element(i / 8, lane, i) < a.rows) __stcg(place + i * kWarp + lane, flat[i]);
  }
}

// Adds what another CTA left, once it is there. Blocks of a grid start in order and none waits
// for a later grid, so it will be.
template <int TILES>
__device__ void take(const StreamArgs& a, float* place, Totals<TILES>& total) {
  const int lane = threadIdx.x % kWarp;
  float value[TILES * 8];
  bool there;
  do {
    there = true;
#pragma unroll
    for (int i = 0; i < TILES * 8; ++i) {
      if (row_of_element(i / 8, lane, i) >= a.rows) continue;
      asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];"
                   : "=f"(value[i])
                   : "l"(place + i * kWarp + lane)
                   : "memory");
      there = there && __float_as_uint(value[i]) != Stream::kUnset;
    }
  } while (!there);
  float* flat = &total[0][0][0];
#pragma unroll
  for (int i = 0; i < TILES * 8; ++i) {
    if (row_of_element(i / 8, lane, i) >= a.rows) continue;
    flat[i] += value[i];
    __stcg(place + i * kWarp + lane, __uint_as_float(Stream::kUnset));
  }
}

// A run's sum of the pair that another worker started, for the workers of the CTA.
template <int TILES>
using SharedSums = float[kWarps][TILES * 8][kWarp];

template <int TILES>
__device__ void store_shared(float (&to)[TILES * 8][kWarp], const Totals<TILES>& total) {
#pragma unroll
  for (int i = 0; i < TILES * 8; ++i) to[i][threadIdx.x % kWarp] = (&total[0][0][0])[i];
}

// Adds the sums of workers from `worker` on that lie in this CTA and before item `end`.
template <int TILES>
__device__ void add_shared(const SharedSums<TILES>& sums, const Runs& runs, unsigned worker,
                           unsigned end, Totals<TILES>& total) {
  for (unsigned w = worker; w % kWarps != 0 && runs.begin(w) < end; ++w) {
#pragma unroll
    for (int i = 0; i < TILES * 8; ++i) {
      (&total[0][0][0])[i] += sums[w % kWarps][i][threadIdx.x % kWarp];
    }
  }
}

// With the slice's sum of a pair: true if that makes the pair complete.
template <int TILES>
__device__ bool join_slices(const StreamArgs& a, int slice, int pair, Totals<TILES>& total) {
  constexpr int64_t kElements = TILES * 8 * kWarp;
  if (slice > 0) {
    leave<TILES>(a, a.slice_sums + (int64_t{slice - 1} * a.pairs + pair) * kElements, total);
    return false;
  }
  for (int s = 1; s < a.slices; ++s) {
    take<TILES>(a, a.slice_sums + (int64_t{s - 1} * a.pairs + pair) * kElements, total);
  }
  return true;
}

// After the runs: hands the sum of the pair begun before the CTA to the CTA that began it, and adds
// to the pair that this worker began what the workers after it have. False if it began none.
template <int TILES>
__device__ bool join_workers(const StreamArgs& a, int slice, const SharedSums<TILES>& sums,
                             int open_pair, Totals<TILES>& total) {
  constexpr int64_t kElements = TILES * 8 * kWarp;
  const Runs runs = runs_of(a, slice);
  const unsigned count = runs.total / static_cast<unsigned>(a.pairs);
  const unsigned cta = blockIdx.x % a.ctas, worker = cta * kWarps + threadIdx.x / kWarp;
  float* cta_sums = a.cta_sums + int64_t{slice} * a.ctas * kElements;
  if (threadIdx.x < kWarp) {
    const unsigned begin = runs.begin(worker);
    if (begin % count != 0) {
      Totals<TILES> sum = {};
      const unsigned end = (begin / count + 1) * count;
#pragma unroll
      for (int i = 0; i < TILES * 8; ++i) (&sum[0][0][0])[i] = sums[0][i][threadIdx.x];
      add_shared<TILES>(sums, runs, worker + 1, end, sum);
      leave<TILES>(a, cta_sums + cta * kElements, sum);
    }
  }
  if (open_pair < 0) return false;
  const unsigned end = (open_pair + 1) * count;
  add_shared<TILES>(sums, runs, worker + 1, end, total);
  for (unsigned c = cta + 1; runs.begin(c * kWarps) < end; ++c) {
    take<TILES>(a, cta_sums + c * kElements, total);
  }
  return true;
}

// One lane's lines of both strips.
template <class Codec>
struct PairLines {
  typename Codec::Line line[2][2];
  __device__ explicit PairLines(const uint8_t* stage) {
    const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      line[s][0] = Codec::line(stage, s * kStrip + g, t);
      line[s][1] = Codec::line(stage, s * kStrip + g + 8, t);
    }
  }
};

// Adds the inputs of `step` (32 of a block) to c.
template <class Codec, int TILES>
__device__ void multiply(const StreamArgs& a, const PairLines<Codec>& lines, int step,
                         const __half* x, int pitch, Totals<TILES>& c) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  uint4 b[TILES];
#pragma unroll
  for (int n = 0; n < TILES; ++n) {
    const int row = n * kRowTile + g;
    b[n] = make_uint4(0, 0, 0, 0);
    if (row < a.rows) b[n] = *reinterpret_cast<const uint4*>(x + row * pitch + step * 32 + t * 8);
  }
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const Operand first = Codec::operand(lines.line[s][0], lines.line[s][1], step, 0);
    const Operand second = Codec::operand(lines.line[s][0], lines.line[s][1], step, 1);
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      mma(c[n][s], first, b[n].x, b[n].y);
      mma(c[n][s], second, b[n].z, b[n].w);
    }
  }
}

// total += scale · (group + shift · Σ x)
template <bool ZEROS, int TILES>
__device__ void add_scaled(const StreamArgs& a, const float* scales, const float (&shift)[2][2],
                           const float* sums, const Totals<TILES>& group, Totals<TILES>& total) {
  const int lane = threadIdx.x % kWarp, g = lane / 4;
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const float scale[2] = {scales[s * kStrip + g], scales[s * kStrip + g + 8]};
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float value = group[n][s][i];
        if constexpr (ZEROS) {
          const int row = row_of_element(n, lane, i);
          value += shift[s][i / 2] * (row < a.rows ? sums[row] : 0.0f);
        }
        total[n][s][i] += scale[i / 2] * value;
      }
    }
  }
}

// 8 − zero of this lane's four weight rows.
__device__ inline void load_shifts(const StreamArgs& a, int pair, int group, float (&shift)[2][2]) {
  const int g = threadIdx.x % kWarp / 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = min(pair * a.pair_rows + i / 2 * a.strip_step + g + i % 2 * 8, a.outputs - 1);
    const int in_strip = row & (a.strip - 1);
    const int64_t at = int64_t{row - in_strip} * a.zero_stride + group * a.strip + in_strip;
    shift[i / 2][i % 2] = 8.0f - static_cast<float>(a.zeros[at]);
  }
}

// Adds one block of a pair to the totals. `sums` are those of the block.
template <class Codec, bool ZEROS, int TILES>
__device__ void add_block(const StreamArgs& a, const uint8_t* stage, int pair, int block,
                          const __half* x, int pitch, const float* sums, Totals<TILES>& total) {
  constexpr int kSteps = Codec::kInputs / 32;
  const PairLines<Codec> lines(stage);
  if constexpr (Codec::kGroups == 0) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      multiply<Codec, TILES>(a, lines, step, x, pitch, total);
  } else {
    const auto* scales = reinterpret_cast<const float*>(stage + kPair * Codec::kBlockBytes);
    constexpr int kGroupSteps = kSteps / Codec::kGroups;
#pragma unroll
    for (int g = 0; g < Codec::kGroups; ++g) {
      float shift[2][2] = {};
      if constexpr (ZEROS) {
        const int group = Codec::kGroups == 1 ? block / a.blocks_per_scale
                                              : min(block * Codec::kGroups + g, a.groups - 1);
        load_shifts(a, pair, group, shift);
      }
      Totals<TILES> c = {};
#pragma unroll
      for (int step = 0; step < kGroupSteps; ++step) {
        multiply<Codec, TILES>(a, lines, g * kGroupSteps + step, x, pitch, c);
      }
      add_scaled<ZEROS, TILES>(a, scales + g * kPair, shift, sums + g * a.rows, c, total);
    }
  }
}

template <class Codec, int STAGES, int TILES, bool SWIGLU, bool ZEROS>
__global__ void __launch_bounds__(kWarps* kWarp, 1) stream_matmul(StreamArgs a) {
  start_next();
  extern __shared__ __align__(128) uint8_t shared[];
  using WarpRing = Ring<Codec>;
  __shared__ SharedSums<TILES> shared_sums;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int slice = blockIdx.x / a.ctas;
  const unsigned worker = blockIdx.x % a.ctas * kWarps + warp;
  const int first = slice_begin(a, slice), count = slice_begin(a, slice + 1) - first;
  const Runs runs = runs_of(a, slice);
  const auto begin = static_cast<int>(runs.begin(worker));
  int left = static_cast<int>(runs.begin(worker + 1)) - begin;
  int pair = begin / count, block = begin % count;

  WarpRing ring{};
  ring.memory = shared + warp * STAGES * WarpRing::kStageBytes;
  ring.lane = lane;
  ring.first = first;
  ring.count = count;
  ring.pair = pair;
  ring.block = block;
  ring.left = left;
  ring.point(a);
#pragma unroll
  for (int s = 0; s + 1 < STAGES; ++s) ring.fill(a, s);

  auto* x = reinterpret_cast<__half*>(shared + kWarps * STAGES * WarpRing::kStageBytes);
  const int longest = (a.blocks + a.slices - 1) / a.slices;
  const int pitch = longest * Codec::kInputs + kPitchRest;
  float* sums = reinterpret_cast<float*>(x + a.rows * pitch);
  wait_for_earlier();
  stage_inputs<Codec>(a, first, count, x, pitch);
  __syncthreads();
  if constexpr (ZEROS) {
    sum_inputs<Codec>(a, x, pitch, count, sums);
    __syncthreads();
  }

  Totals<TILES> total = {};
  bool starts = block == 0;
  int open_pair = -1;
  for (int stage = 0; left > 0; --left) {
    wait_copies<STAGES - 2>();
    __syncwarp();
    ring.fill(a, stage == 0 ? STAGES - 1 : stage - 1);
    add_block<Codec, ZEROS, TILES>(a, ring.memory + stage * WarpRing::kStageBytes, pair,
                                   first + block, x + block * Codec::kInputs, pitch,
                                   sums + block * Codec::kGroups * a.rows, total);
    if (++stage == STAGES) stage = 0;
    const bool ends = ++block == count;
    if (!ends) continue;
    if (!starts) {
      store_shared<TILES>(shared_sums[warp], total);
    } else if (join_slices<TILES>(a, slice, pair, total)) {
      write_pair<TILES, SWIGLU>(a, pair, lane, total);
    }
    clear(total);
    block = 0;
    ++pair;
    starts = true;
  }
  if (block != 0) {  // the run ended inside a pair
    if (starts) {
      open_pair = pair;
    } else {
      store_shared<TILES>(shared_sums[warp], total);
    }
  }
  __syncthreads();
  if (join_workers<TILES>(a, slice, shared_sums, open_pair, total) &&
      join_slices<TILES>(a, slice, open_pair, total)) {
    write_pair<TILES, SWIGLU>(a, open_pair, lane, total);
  }
}

template <class Codec, int STAGES, int TILES, bool SWIGLU, bool ZEROS>
void run(cudaStream_t stream, const StreamArgs& args, size_t shared_bytes) {
  const auto kernel = stream_matmul<Codec, STAGES, TILES, SWIGLU, ZEROS>;
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
  cut.tiles = rows <= kRowTile ? 1 : rows <= 2 * kRowTile && Codec::kTwoTiles ? 2 : 4;
  cut.deep = shared_max >= kDeepFrom && cut.tiles < 4;  // many rows of x take the room instead
  const int stages = cut.deep ? Codec::kDeep : Codec::kShallow;
  cut.ring_bytes = static_cast<size_t>(kWarps * stages * Ring<Codec>::kStageBytes);
  const auto rows_max = static_cast<size_t>(cut.tiles * kRowTile);
  const size_t row_rest = kPitchRest * sizeof(__half);
  const size_t per_block =
      rows_max * (Codec::kInputs * sizeof(__half) + Codec::kGroups * sizeof(float));
  const size_t sums = sizeof(float) * static_cast<size_t>(kWarps * cut.tiles * 8 * kWarp);
  const size_t left = shared_max - sums - cut.ring_bytes - rows_max * row_rest;
  const auto longest = static_cast<int>(left / per_block);
  cut.slices = (blocks + longest - 1) / longest;
  EXODE_CHECK(cut.slices <= kWarp, "matmul: too many inputs for the shared memory of this device");
  cut.ctas = std::max(1, multiprocessors / cut.slices);
  return cut;
}

inline int pairs_of(const StreamProblem& p) {
  return p.swiglu ? (p.w.rows / 2 + kStrip - 1) / kStrip : (p.w.rows + kPair - 1) / kPair;
}

// Words of the exchange that a cut needs.
inline size_t exchange_words(const StreamProblem& p, const Cut& cut) {
  const auto sums = static_cast<size_t>(cut.slices * cut.ctas + (cut.slices - 1) * pairs_of(p));
  return sums * static_cast<size_t>(cut.tiles * 8 * kWarp);
}

template <class Codec>
int blocks_of(const WeightView& w) {
  return (w.cols + Codec::kInputs - 1) / Codec::kInputs;
}

template <class Codec>
StreamArgs args_of(const StreamProblem& p, const Cut& cut, const Stream& stream) {
  StreamArgs a{};
  a.codes = reinterpret_cast<const uint8_t*>(p.w.codes.data);
  a.scales = p.w.scales.empty() ? nullptr : p.w.scales.row<float>(0);
  a.zeros = p.w.zeros.empty() ? nullptr : p.w.zeros.row<uint8_t>(0);
  a.row_bytes = p.w.codes.row_stride * p.w.codes.bytes_per_element();
  a.scale_stride = p.w.scales.row_stride;
  a.zero_stride = p.w.zeros.row_stride;
  a.strip = p.w.strip;
  a.outputs = p.w.rows;
  a.blocks = blocks_of<Codec>(p.w);
  a.groups = p.w.scales.empty() ? 0 : p.w.scales.cols();
  a.blocks_per_scale = std::max(1, p.w.group / Codec::kInputs);
  a.cols = p.w.cols;
  a.pairs = pairs_of(p);
  a.pair_rows = p.swiglu ? kStrip : kPair;
  a.strip_step = p.swiglu ? p.w.rows / 2 : kStrip;
  a.slices = cut.slices;
  a.ctas = cut.ctas;
  a.x = rows_of(p.x);
  a.out = rows_of(p.out);
  a.rows = p.x.rows();
  a.x_in_fours = p.x.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(p.x.data) % 16 == 0;
  a.cta_sums = stream.exchange().data();
  a.slice_sums = a.cta_sums + int64_t{cut.tiles} * 8 * kWarp * a.slices * a.ctas;
  EXODE_CHECK(exchange_words(p, cut) <= stream.exchange().size() &&
                  int64_t{a.pairs} * a.blocks * a.ctas * kWarps < (int64_t{1} << 32),
              "matmul: more outputs than a streamed kernel counts");
  return a;
}

template <class Codec, int STAGES, bool SWIGLU, bool ZEROS>
void run_tiles(cudaStream_t stream, const StreamArgs& a, const Cut& cut) {
  const auto longest = static_cast<size_t>((a.blocks + a.slices - 1) / a.slices);
  const size_t row_bytes = (longest * Codec::kInputs + kPitchRest) * sizeof(__half);
  const size_t sum_bytes = ZEROS ? longest * Codec::kGroups * sizeof(float) : 0;
  const size_t shared = cut.ring_bytes + static_cast<size_t>(a.rows) * (row_bytes + sum_bytes);
  if (cut.tiles == 1) return run<Codec, STAGES, 1, SWIGLU, ZEROS>(stream, a, shared);
  if constexpr (Codec::kTwoTiles) {
    if (cut.tiles == 2) return run<Codec, STAGES, 2, SWIGLU, ZEROS>(stream, a, shared);
  }
  if constexpr (STAGES == Codec::kShallow) run<Codec, STAGES, 4, SWIGLU, ZEROS>(stream, a, shared);
}

template <class Codec, int STAGES, bool SWIGLU>
void run_zeros(cudaStream_t stream, const StreamArgs& a, const Cut& cut) {
  if constexpr (Codec::kHasZeros) {
    if (a.zeros != nullptr) return run_tiles<Codec, STAGES, SWIGLU, true>(stream, a, cut);
  }
  run_tiles<Codec, STAGES, SWIGLU, false>(stream, a, cut);
}

template <class Codec, int STAGES>
void run_stages(cudaStream_t stream, const StreamArgs& a, const Cut& cut, bool swiglu) {
  if (swiglu) return run_zeros<Codec, STAGES, true>(stream, a, cut);
  run_zeros<Codec, STAGES, false>(stream, a, cut);
}

template <class Codec>
void run_problem(Stream& stream, const StreamProblem& p) {
  int device = 0, multiprocessors = 0, shared_max = 0;
  EXODE_CUDA_CHECK(cudaGetDevice(&device));
  EXODE_CUDA_CHECK(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  EXODE_CUDA_CHECK(
      cudaDeviceGetAttribute(&shared_max, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const auto cut_rows = [&](int rows) {
    return cut_of<Codec>(multiprocessors, static_cast<size_t>(shared_max), blocks_of<Codec>(p.w),
                         rows);
  };
  int most = kPassRows;  // rows of a pass: what the exchange has room for
  while (most > kRowTile && exchange_words(p, cut_rows(most)) > stream.exchange().size()) most /= 2;
  for (int first = 0; first < p.x.rows(); first += most) {
    const StreamProblem pass = p.rows(first, std::min(most, p.x.rows() - first));
    const Cut cut = cut_rows(pass.x.rows());
    const StreamArgs a = args_of<Codec>(pass, cut, stream);
    if (cut.deep) {
      run_stages<Codec, Codec::kDeep>(native(stream), a, cut, p.swiglu);
    } else {
      run_stages<Codec, Codec::kShallow>(native(stream), a, cut, p.swiglu);
    }
  }
}

}  // namespace
}  // namespace exode::cuda
