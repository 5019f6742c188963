// Element-wise and per-row CUDA kernels: one block per row, f32 activations. Next to matrices they
// move nothing, so what counts is that they overlap the launches around them.
#include "ops/cuda/launch.cuh"

namespace exode::cuda {
namespace {

constexpr int kThreads = 256;

struct DenseTable {
  const void* data;
  int64_t stride;
  DType dtype;
  __device__ float at(int64_t row, int col) const {
    const int64_t i = row * stride + col;
    if (dtype == DType::kF32) return static_cast<const float*>(data)[i];
    if (dtype == DType::kBF16) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    return __half2float(static_cast<const __half*>(data)[i]);
  }
};

struct Int8Table {
  const uint8_t* codes;
  const float* scales;
  int64_t stride, scale_stride;
  int group, strip;
  __device__ float at(int64_t row, int col) const {
    const int64_t in_strip = row & (strip - 1), top = row - in_strip;
    const int code = codes[top * stride + (col / kStripBytes * strip + in_strip) * kStripBytes +
                           col % kStripBytes];
    return static_cast<float>(code - kInt8Zero) *
           scales[top * scale_stride + col / group * strip + in_strip];
  }
};

template <class Table>
__global__ void embedding(const int32_t* tokens, Table table, Rows out, int width, float scale) {
  start_next();
  wait_for_earlier();
  const int32_t token = tokens[blockIdx.x];
  for (int c = threadIdx.x; c < width; c += blockDim.x) {
    out.row(blockIdx.x)[c] = token < 0 ? 0.0f : table.at(token, c) * scale;
  }
}

__global__ void take_tokens(int32_t* tokens, const int32_t* source, const int32_t* drawn,
                            int rows) {
  start_next();
  wait_for_earlier();
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < rows && source[r] >= 0) tokens[r] = drawn[source[r]];
}

// residual == null: normalise x. Else residual += x first and normalise that.
__global__ void rms_norm(ConstRows x, Rows residual, const float* weight, Rows out, int width,
                         float eps, float bias) {
  start_next();
  wait_for_earlier();
  __shared__ float shared[kWarp];
  const float* in = x.row(blockIdx.x);
  float* kept = residual.data == nullptr ? nullptr : residual.row(blockIdx.x);
  float sum = 0;
  for (int c = threadIdx.x; c < width; c += blockDim.x) {
    float value = in[c];
    if (kept != nullptr) kept[c] = value = kept[c] + value;
    sum += value * value;
  }
  const float scale = rsqrtf(block_sum(sum, shared) / static_cast<float>(width) + eps);
  const float* source = kept != nullptr ? kept : in;
  for (int c = threadIdx.x; c < width; c += blockDim.x) {
    out.row(blockIdx.x)[c] = source[c] * scale * (weight[c] + bias);
  }
}

constexpr int kNormThreads = 512, kNormHeld = 4;  // float4 of a row that a thread holds
constexpr int kNormWidthMax = kNormThreads * kNormHeld * 4;

// The same for rows that fit the registers of a block, in one pass.
template <bool ADDS>
__global__ void __launch_bounds__(kNormThreads)
    rms_norm_held(ConstRows x, Rows residual, const float* weight, Rows out, int width, float eps,
                  float bias) {
  __shared__ float shared[kWarp];
  start_next();
  float4 value[kNormHeld], factor[kNormHeld];
#pragma unroll
  for (int i = 0; i < kNormHeld; ++i) {
    const int c = (i * kNormThreads + threadIdx.x) * 4;
    factor[i] = c < width ? *reinterpret_cast<const float4*>(weight + c) : float4{};
  }
  wait_for_earlier();
  const float* in = x.row(blockIdx.x);
  float* kept = ADDS ? residual.row(blockIdx.x) : nullptr;
#pragma unroll
  for (int i = 0; i < kNormHeld; ++i) {
    const int c = (i * kNormThreads + threadIdx.x) * 4;
    value[i] = c < width ? *reinterpret_cast<const float4*>(in + c) : float4{};
    if (!ADDS || c >= width) continue;
    const float4 old = *reinterpret_cast<const float4*>(kept + c);
    value[i] = {value[i].x + old.x, value[i].y + old.y, value[i].z + old.z, value[i].w + old.w};
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kNormHeld; ++i) {
    const float4 v = value[i];
    sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  const float scale = rsqrtf(block_sum(sum, shared) / static_cast<float>(width) + eps);
#pragma unroll
  for (int i = 0; i < kNormHeld; ++i) {
    const int c = (i * kNormThreads + threadIdx.x) * 4;
    if (c >= width) continue;
    const float4 v = value[i], f = factor[i];
    if (ADDS) *reinterpret_cast<float4*>(kept + c) = v;
    *reinterpret_cast<float4*>(out.row(blockIdx.x) + c) = {
        v.x * scale * (f.x + bias), v.y * scale * (f.y + bias), v.z * scale * (f.z + bias),
        v.w * scale * (f.w + bias)};
  }
}

__global__ void swiglu(ConstRows gate_up, Rows out, int width) {
  start_next();
  wait_for_earlier();
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= width) return;
  const float* in = gate_up.row(blockIdx.y);
  out.row(blockIdx.y)[c] = silu(in[c]) * in[width + c];
}

__global__ void sigmoid_gate(Rows x, ConstRows gate, int width) {
  start_next();
  wait_for_earlier();
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c < width) x.row(blockIdx.y)[c] *= sigmoid(gate.row(blockIdx.y)[c]);
}

// gate == null: out += x. Else out += sigmoid(gate[row]) x.
__global__ void add(Rows out, ConstRows x, ConstRows gate, int width) {
  start_next();
  wait_for_earlier();
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= width) return;
  const float factor = gate.data == nullptr ? 1.0f : sigmoid(gate.row(blockIdx.y)[0]);
  out.row(blockIdx.y)[c] += factor * x.row(blockIdx.y)[c];
}

__global__ void gather_rows(ConstRows x, const int32_t* index, Rows out, int width) {
  start_next();
  wait_for_earlier();
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= width) return;
  const int32_t row = index[blockIdx.y];
  out.row(blockIdx.y)[c] = row < 0 ? 0.0f : x.row(row)[c];
}

// One warp per (row, head).
__global__ void gated_rms_norm(ConstRows x, ConstRows gate, const float* weight, Rows out,
                               int heads, int dim, float eps, int tasks) {
  start_next();
  wait_for_earlier();
  const int task = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
  if (task >= tasks) return;
  const int row = task / heads, first = task % heads * dim, lane = threadIdx.x % kWarp;
  const float* in = x.row(row) + first;
  float sum = 0;
  for (int i = lane; i < dim; i += kWarp) sum += in[i] * in[i];
  const float scale = rsqrtf(warp_sum(sum) / static_cast<float>(dim) + eps);
  for (int i = lane; i < dim; i += kWarp) {
    out.row(row)[first + i] = weight[i] * in[i] * scale * silu(gate.row(row)[first + i]);
  }
}

struct Rope {
  const float* inv_freq;
  const int32_t* positions;
  int half, dim;
  float eps, weight_bias, scale;
};

// One warp per (row, head) of q or k.
__global__ void norm_rope(Rows x, const float* weight, Rope p, int heads, int tasks) {
  start_next();
  wait_for_earlier();
  const int task = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
  if (task >= tasks) return;
  const int row = task / heads, lane = threadIdx.x % kWarp;
  const int32_t position = p.positions[row];
  if (position < 0) return;
  float* head = x.row(row) + task % heads * p.dim;
  float norm = 1;
  if (weight != nullptr) {
    float sum = 0;
    for (int i = lane; i < p.dim; i += kWarp) sum += head[i] * head[i];
    norm = rsqrtf(warp_sum(sum) / static_cast<float>(p.dim) + p.eps);
  }
  const auto normed = [&](int i) {
    return weight == nullptr ? head[i] : head[i] * norm * (weight[i] + p.weight_bias);
  };
  for (int j = lane; j < p.half; j += kWarp) {
    float sine, cosine;
    sincosf(static_cast<float>(position) * p.inv_freq[j], &sine, &cosine);
    sine *= p.scale;
    cosine *= p.scale;
    const float a = normed(j), b = normed(j + p.half);
    head[j] = a * cosine - b * sine;
    head[j + p.half] = b * cosine + a * sine;
  }
  for (int i = 2 * p.half + lane; i < p.dim; i += kWarp) head[i] = normed(i);
}

dim3 grid_2d(int32_t width, int32_t rows) {
  return {blocks_for(width, kThreads), static_cast<unsigned>(rows)};
}

void launch_norm_rope(Stream& stream, const TensorView& x, const ConstTensorView& weight,
                      const Rope& rope) {
  const int heads = x.cols() / rope.dim, tasks = x.rows() * heads;
  launch_chained(native(stream), norm_rope, blocks_for(int64_t{tasks} * kWarp, kThreads), kThreads,
                 0, rows_of(x), weight.empty() ? nullptr : weight.row<float>(0), rope, heads,
                 tasks);
}

bool whole_quads(const ConstTensorView& t) {
  return t.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

template <bool ADDS, class Op>
void launch_norm(Stream& stream, const ConstTensorView& x, const TensorView& residual,
                 const Op& op) {
  const int width = op.out.cols();
  const bool held = width % 4 == 0 && width <= kNormWidthMax && whole_quads(x) &&
                    whole_quads(op.out) && whole_quads(op.weight) &&
                    (!ADDS || whole_quads(residual));
  launch_chained(native(stream), held ? rms_norm_held<ADDS> : rms_norm,
                 static_cast<unsigned>(op.out.rows()), held ? kNormThreads : kThreads, 0,
                 rows_of(x), ADDS ? rows_of(residual) : Rows{}, op.weight.template row<float>(0),
                 rows_of(op.out), width, op.eps, op.weight_bias);
}

}  // namespace

void launch(Stream& stream, const ops::Embedding& op, Scratch) {
  const auto run = [&](const auto& table) {
    launch_chained(native(stream), embedding<std::decay_t<decltype(table)>>,
                   static_cast<unsigned>(op.out.rows()), kThreads, 0, ints(op.tokens), table,
                   rows_of(op.out), op.out.cols(), op.scale);
  };
  const WeightView& t = op.table;
  if (t.layout == WeightLayout::kInt8Group) {
    return run(Int8Table{t.codes.row<uint8_t>(0), t.scales.row<float>(0), t.codes.row_stride,
                         t.scales.row_stride, t.group, t.strip});
  }
  run(DenseTable{t.codes.data, t.codes.row_stride, t.codes.dtype});
}

void launch(Stream& stream, const ops::TakeTokens& op, Scratch) {
  const int rows = op.source.rows();
  launch_chained(native(stream), take_tokens, blocks_for(rows, kThreads), kThreads, 0,
                 op.tokens.row<int32_t>(0), ints(op.source), ints(op.drawn), rows);
}

void launch(Stream& stream, const ops::RmsNorm& op, Scratch) {
  launch_norm<false>(stream, op.x, TensorView{}, op);
}

void launch(Stream& stream, const ops::AddRmsNorm& op, Scratch) {
  launch_norm<true>(stream, op.delta, op.residual, op);
}

void launch(Stream& stream, const ops::SwiGlu& op, Scratch) {
  launch_chained(native(stream), swiglu, grid_2d(op.out.cols(), op.out.rows()), kThreads, 0,
                 rows_of(op.gate_up), rows_of(op.out), op.out.cols());
}

void launch(Stream& stream, const ops::SigmoidGate& op, Scratch) {
  launch_chained(native(stream), sigmoid_gate, grid_2d(op.x.cols(), op.x.rows()), kThreads, 0,
                 rows_of(op.x), rows_of(op.gate), op.x.cols());
}

void launch(Stream& stream, const ops::AddGated& op, Scratch) {
  launch_chained(native(stream), add, grid_2d(op.out.cols(), op.out.rows()), kThreads, 0,
                 rows_of(op.out), rows_of(op.x), rows_of(op.gate_logit), op.out.cols());
}

void launch(Stream& stream, const ops::Add& op, Scratch) {
  launch_chained(native(stream), add, grid_2d(op.x.cols(), op.x.rows()), kThreads, 0, rows_of(op.x),
                 rows_of(op.delta), ConstRows{}, op.x.cols());
}

void launch(Stream& stream, const ops::GatherRows& op, Scratch) {
  launch_chained(native(stream), gather_rows, grid_2d(op.out.cols(), op.out.rows()), kThreads, 0,
                 rows_of(op.x), ints(op.index), rows_of(op.out), op.out.cols());
}

void launch(Stream& stream, const ops::GatedRmsNorm& op, Scratch) {
  const int dim = op.weight.rows(), heads = op.x.cols() / dim, tasks = op.x.rows() * heads;
  launch_chained(native(stream), gated_rms_norm, blocks_for(int64_t{tasks} * kWarp, kThreads),
                 kThreads, 0, rows_of(op.x), rows_of(op.gate), op.weight.row<float>(0),
                 rows_of(op.out), heads, dim, op.eps, tasks);
}

void launch(Stream& stream, const ops::QkNormRope& op, Scratch) {
  const Rope rope{op.inv_freq.row<float>(0),
                  ints(op.positions),
                  op.inv_freq.rows(),
                  op.head_dim,
                  op.eps,
                  op.weight_bias,
                  op.rope_scale};
  launch_norm_rope(stream, op.q, op.q_weight, rope);
  launch_norm_rope(stream, op.k, op.k_weight, rope);
}

}  // namespace exode::cuda
