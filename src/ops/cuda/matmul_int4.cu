// W4A16 matmul on tensor cores for group sizes that are multiples of 128: f16 products, f32 sums.
//
// The weights are the MMA's A operand (16 outputs × 16 inputs), up to 32 rows of x its B operand,
// so one row costs as many MMAs as eight. The order of inputs inside an MMA is free as long as A
// and B agree, so the packed layout of tensor/weight.h is read as it is: a lane takes 16 bytes of
// two weight rows per block of 128 inputs, and x is permuted once to match:
//
//   input k = 16 j + i of a block is at 32 (i % 4) + 8 (i / 4) + 4 (p / 2) + 2 (p % 2) + j / 4
//   with p = j % 4; nibbles p and p + 4 of a word become one half2 without moving bits.
//
// A block of code − 8 is summed unscaled and joins the total times its scale: the scale and the
// zero point cost two operations per block, not per weight. Warps of a CTA split K; their sums are
// added in warp order. A row has the same bits for any count up to 16.
#include <algorithm>

#include "ops/cuda/common.cuh"
#include "ops/cuda/matmul_int4.h"

namespace exode::cuda {
namespace {

constexpr int kStrip = 16;    // outputs of one MMA
constexpr int kTile = 8;      // rows of x of one MMA
constexpr int kInFlight = 4;  // blocks whose loads are issued together
constexpr int kBlockBytes = kInt4Block / 2;

struct Weights {
  const uint8_t* codes;
  const float* scales;
  const uint8_t* zeros;
  int64_t row_bytes, scale_stride, zero_stride;
  int outputs, blocks, blocks_per_scale;
};

struct Inputs {
  const __half* x;    // [rows, blocks, 128], permuted
  const float* sums;  // [rows, blocks]: inputs of a block added up, for zero points
};

__device__ inline int permuted(int k) {
  const int j = k / 16, i = k % 16, p = j % 4;
  return i % 4 * 32 + i / 4 * 8 + p / 2 * 4 + p % 2 * 2 + j / 4;
}

// One CTA of 128 threads per (block, row).
__global__ void permute_inputs(ConstRows x, int first, int cols, __half* out, float* sums) {
  __shared__ float shared[kWarp];
  const int block = blockIdx.x, row = blockIdx.y, k = threadIdx.x;
  const int64_t at = int64_t{row} * gridDim.x + block;
  const int column = block * kInt4Block + k;
  const float value = column < cols ? x.row(first + row)[column] : 0.0f;
  out[at * kInt4Block + permuted(k)] = __float2half_rn(value);
  const float sum = block_sum(value, shared);
  if (k == 0) sums[at] = sum;
}

// Nibbles p and p + 4 of the word as halves of code − 8.
template <int P>
__device__ uint32_t codes_of(uint32_t word) {
  const uint32_t biased = (word >> (4 * P) & 0x000f000fu) | 0x64006400u;  // 1024 + code
  const __half2 value =
      __hsub2(*reinterpret_cast<const __half2*>(&biased), __float2half2_rn(1032.0f));
  return *reinterpret_cast<const uint32_t*>(&value);
}

__device__ inline void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                           uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline uint4 stream_load(const uint8_t* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Two weight rows (g and g + 8 of the strip) of one block, and their scales.
struct Block {
  uint4 low, high;
  float scale_low, scale_high;
};

__device__ inline Block load_block(const Weights& w, int row_low, int row_high, int block, int t) {
  Block b;
  const int64_t at = int64_t{block} * kBlockBytes + t * 16;
  b.low = stream_load(w.codes + row_low * w.row_bytes + at);
  b.high = stream_load(w.codes + row_high * w.row_bytes + at);
  const int group = block / w.blocks_per_scale;
  b.scale_low = __ldg(w.scales + row_low * w.scale_stride + group);
  b.scale_high = __ldg(w.scales + row_high * w.scale_stride + group);
  return b;
}

template <int TILES>
__device__ void multiply_word(uint32_t low, uint32_t high, const uint4 (&x)[TILES],
                              float (&c)[TILES][4]) {
  const uint32_t a0 = codes_of<0>(low), a1 = codes_of<0>(high), a2 = codes_of<1>(low),
                 a3 = codes_of<1>(high);
#pragma unroll
  for (int n = 0; n < TILES; ++n) mma(c[n], a0, a1, a2, a3, x[n].x, x[n].y);
  const uint32_t b0 = codes_of<2>(low), b1 = codes_of<2>(high), b2 = codes_of<3>(low),
                 b3 = codes_of<3>(high);
#pragma unroll
  for (int n = 0; n < TILES; ++n) mma(c[n], b0, b1, b2, b3, x[n].z, x[n].w);
}

template <int TILES>
__device__ void multiply_block(const Weights& w, const Inputs& in, const Block& b, int rows,
                               int row_low, int row_high, int block, float (&total)[TILES][4]) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  float c[TILES][4] = {};
  const uint32_t low[4] = {b.low.x, b.low.y, b.low.z, b.low.w};
  const uint32_t high[4] = {b.high.x, b.high.y, b.high.z, b.high.w};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    uint4 x[TILES];
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      const int row = n * kTile + g;
      const __half* p = in.x + (int64_t{row} * w.blocks + block) * kInt4Block + word * 32 + t * 8;
      x[n] = row < rows ? __ldg(reinterpret_cast<const uint4*>(p)) : make_uint4(0, 0, 0, 0);
    }
    multiply_word<TILES>(low[word], high[word], x, c);
  }
  float shift_low = 0, shift_high = 0;
  if (w.zeros != nullptr) {
    const int group = block / w.blocks_per_scale;
    shift_low = 8.0f - static_cast<float>(w.zeros[row_low * w.zero_stride + group]);
    shift_high = 8.0f - static_cast<float>(w.zeros[row_high * w.zero_stride + group]);
  }
#pragma unroll
  for (int n = 0; n < TILES; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool is_high = i >= 2;
      float value = c[n][i];
      if (w.zeros != nullptr) {
        const int row = n * kTile + 2 * t + i % 2;
        const float sum = row < rows ? __ldg(in.sums + int64_t{row} * w.blocks + block) : 0.0f;
        value += (is_high ? shift_high : shift_low) * sum;
      }
      total[n][i] += (is_high ? b.scale_high : b.scale_low) * value;
    }
  }
}

// A CTA of WARPS warps per strip of 16 outputs.
template <int TILES, int WARPS>
__global__ void __launch_bounds__(WARPS* kWarp)
    matmul_int4(Weights w, Inputs in, Rows out, int first, int rows) {
  __shared__ float sums[WARPS][TILES * kTile][kStrip];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int strip = blockIdx.x * kStrip;
  const int row_low = min(strip + g, w.outputs - 1), row_high = min(strip + g + 8, w.outputs - 1);
  float total[TILES][4] = {};
  for (int base = warp; base < w.blocks; base += WARPS * kInFlight) {
    Block b[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int block = min(base + i * WARPS, w.blocks - 1);
      b[i] = load_block(w, row_low, row_high, block, t);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int block = base + i * WARPS;
      if (block < w.blocks) {
        multiply_block<TILES>(w, in, b[i], rows, row_low, row_high, block, total);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < TILES; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[warp][n * kTile + 2 * t + i % 2][g + i / 2 * 8] = total[n][i];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < rows * kStrip; i += WARPS * kWarp) {
    const int row = i / kStrip, output = i % kStrip;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < WARPS; ++k) sum += sums[k][row][output];
    if (strip + output < w.outputs) out.row(first + row)[strip + output] = sum;
  }
}

// Few strips need more warps each to keep the memory busy.
template <int TILES>
void run_tiles(cudaStream_t stream, const Weights& w, const Inputs& in, const Rows& out, int first,
               int rows) {
  const unsigned strips = blocks_for(w.outputs, kStrip);
  if (strips >= 1024 || TILES == 4) {
    matmul_int4<TILES, 4><<<strips, 4 * kWarp, 0, stream>>>(w, in, out, first, rows);
  } else {
    matmul_int4<TILES, 8><<<strips, 8 * kWarp, 0, stream>>>(w, in, out, first, rows);
  }
  launched();
}

constexpr int kPassRows = 32;

}  // namespace

bool int4_tensor_cores_apply(const WeightView& w) {
  return w.layout == WeightLayout::kInt4Group && w.group % kInt4Block == 0;
}

size_t int4_scratch_bytes(const ops::MatMul& op) {
  const auto blocks = static_cast<size_t>((op.w.cols + kInt4Block - 1) / kInt4Block);
  const auto rows = static_cast<size_t>(std::min(op.x.rows(), kPassRows));
  return rows * blocks * (kInt4Block * sizeof(__half) + sizeof(float));
}

void int4_launch(Stream& stream, const ops::MatMul& op, Scratch scratch) {
  const int blocks = (op.w.cols + kInt4Block - 1) / kInt4Block;
  const Weights w{reinterpret_cast<const uint8_t*>(op.w.codes.data),
                  op.w.scales.row<float>(0),
                  op.w.zeros.empty() ? nullptr : op.w.zeros.row<uint8_t>(0),
                  op.w.codes.row_stride,
                  op.w.scales.row_stride,
                  op.w.zeros.row_stride,
                  op.w.rows,
                  blocks,
                  op.w.group / kInt4Block};
  auto* x = reinterpret_cast<__half*>(scratch.data());
  const cudaStream_t s = native(stream);
  for (int first = 0; first < op.x.rows(); first += kPassRows) {
    const int rows = std::min(op.x.rows() - first, kPassRows);
    auto* sums = reinterpret_cast<float*>(x + int64_t{rows} * blocks * kInt4Block);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(rows));
    permute_inputs<<<grid, kInt4Block, 0, s>>>(rows_of(op.x), first, op.w.cols, x, sums);
    launched();
    const Inputs in{x, sums};
    if (rows <= kTile) {
      run_tiles<1>(s, w, in, rows_of(op.out), first, rows);
    } else if (rows <= 2 * kTile) {
      run_tiles<2>(s, w, in, rows_of(op.out), first, rows);
    } else {
      run_tiles<4>(s, w, in, rows_of(op.out), first, rows);
    }
  }
}

}  // namespace exode::cuda
