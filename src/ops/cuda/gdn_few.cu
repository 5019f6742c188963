// Gated DeltaNet as a recurrence, fused from the projections' outputs to the gated norm.
//
// A CTA owns 32 values of a value head: 16 KiB of state, in registers for the whole slice, so that
// the state is read and written once per step. Eight lanes share a row of the state. Both products
// with the old state are taken at once, S k̂ and S q̂: the output is e^g S q̂ + d (k̂·q̂).
//
//   stage    warps share out the rows of a batch: convolution and norm of q and k of the key head,
//            convolution of the CTA's values, gates, silu(z)
//   walk     the recurrence over the batch
//   norm     the four CTAs of a head hand each other Σ out² through the stream's exchange
//
// All CTAs of a key head read its channels of the convolution's tail; the last of them to have
// done so (counted in the stream's counters) writes the new one.
#include "ops/cuda/gdn_common.cuh"
#include "ops/cuda/gdn_few.h"

namespace exode::cuda {
namespace {

constexpr int kSlices = 4;  // CTAs of a head
constexpr int kValues = kGdnDim / kSlices;
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kLanes = 8;  // that share a row of the state
constexpr int kGroups = kThreads / kLanes;
constexpr int kLines = kValues / kGroups;  // rows of the state that a thread has a part of
constexpr int kQuads = kGdnDim / (4 * kLanes);
constexpr int kBatch = kGdnFewRows;
constexpr int kPlaces = 2 * kBatch;             // of a sequence's sums: batches alternate
constexpr int kInputs = 2 * kGdnDim + kValues;  // of the convolution: q, k, the CTA's values

struct FewArgs {
  GdnArgs net;
  int rows_max;      // of a slice; longer ones are another kernel's
  int32_t* readers;  // [seqs, key_heads]
  float* sums;       // [seqs, kPlaces, value_heads, from, to]
};

struct Staged {
  float q[kBatch][kGdnDim], k[kBatch][kGdnDim];  // normalised
  float v[kBatch][kValues], gate[kBatch][kValues];
  float decay[kBatch], beta[kBatch], qk[kBatch];
  float out[kBatch][kValues];
  float squares[kBatch][kWarps];  // Σ out² of a warp's values
  float parts[kBatch][kSlices];   // Σ out² of a CTA's values
  float tail[kGdnTail][kInputs];  // before the slice
  int last_reader;
};

struct Place {  // of a CTA in the step
  int s, head, key_head, slice;
  int rows;
};

using State = float4[kLines][kQuads];

__device__ inline int line_of(int line) { return threadIdx.x / kLanes + line * kGroups; }
__device__ inline int key_of(int quad) { return (quad * kLanes + threadIdx.x % kLanes) * 4; }

__device__ inline float* state_at(const FewArgs& a, const Place& p, int line, int quad) {
  return a.net.state(p.s, p.head) + (p.slice * kValues + line_of(line)) * kGdnDim + key_of(quad);
}

__device__ inline void load_state(const FewArgs& a, const Place& p, State& state) {
  const bool fresh = a.net.seqs.fresh[p.s] != 0;
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      state[i][j] = load4_or_zero(fresh ? nullptr : state_at(a, p, i, j));
    }
  }
}

__device__ inline void store_state(const FewArgs& a, const Place& p, const State& state) {
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) store4(state_at(a, p, i, j), state[i][j]);
  }
}

// What a warp needs of the weights. Even warps stage keys, odd warps values: a batch's tasks
// alternate and the warps are even in number.
struct Weights {
  float4 taps[8];  // of four channels of q, then of k; or the first alone, of a value
  float norm, a_log, dt_bias;
};

__device__ inline bool stages_keys() { return threadIdx.x / kWarp % 2 == 0; }

__device__ inline Weights load_weights(const FewArgs& a, const Place& p) {
  const int lane = threadIdx.x % kWarp;
  Weights w{};
  if (stages_keys()) {
    const float* q = a.net.conv + (a.net.q_channel(p.key_head) + 4 * lane) * kGdnWidth;
    const float* k = a.net.conv + (a.net.k_channel(p.key_head) + 4 * lane) * kGdnWidth;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      w.taps[c] = load4(q + c * kGdnWidth);
      w.taps[4 + c] = load4(k + c * kGdnWidth);
    }
  } else {
    const int value = p.slice * kValues + lane;
    w.taps[0] = load4(a.net.conv + (a.net.v_channel(p.head) + value) * kGdnWidth);
    w.norm = a.net.norm[value];
    w.a_log = a.net.a_log[p.head];
    w.dt_bias = a.net.dt_bias[p.head];
  }
  return w;
}

// silu of the convolution at four channels, which are `place` among the CTA's inputs.
__device__ inline float4 convolve4(const FewArgs& a, const Place& p, const float4* taps, int row,
                                   int channel, int place, const Staged& staged) {
  float4 in[kGdnWidth];
#pragma unroll
  for (int j = 0; j < kGdnWidth; ++j) {
    const int from = row + j - kGdnTail;
    in[j] =
        load4(from < 0 ? &staged.tail[from + kGdnTail][place] : a.net.input(p.s, from, channel));
  }
  const auto at = [&](float4 w, float x0, float x1, float x2, float x3) {
    return silu(dot4(w, make_float4(x0, x1, x2, x3), 0.0f));
  };
  return make_float4(at(taps[0], in[0].x, in[1].x, in[2].x, in[3].x),
                     at(taps[1], in[0].y, in[1].y, in[2].y, in[3].y),
                     at(taps[2], in[0].z, in[1].z, in[2].z, in[3].z),
                     at(taps[3], in[0].w, in[1].w, in[2].w, in[3].w));
}

// A warp: q and k of row `row` of the slice, entry r of the batch.
__device__ inline void stage_keys(const FewArgs& a, const Place& p, const Weights& w, int row,
                                  int r, Staged& staged) {
  const int key = threadIdx.x % kWarp * 4;
  const float4 q = convolve4(a, p, w.taps, row, a.net.q_channel(p.key_head) + key, key, staged);
  const float4 k =
      convolve4(a, p, w.taps + 4, row, a.net.k_channel(p.key_head) + key, kGdnDim + key, staged);
  float qq = dot4(q, q, 0.0f), kk = dot4(k, k, 0.0f), qk = dot4(q, k, 0.0f);
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    qq += __shfl_xor_sync(kAll, qq, offset);
    kk += __shfl_xor_sync(kAll, kk, offset);
    qk += __shfl_xor_sync(kAll, qk, offset);
  }
  const float qn = rsqrtf(qq + 1e-6f) * rsqrtf(static_cast<float>(kGdnDim));
  const float kn = rsqrtf(kk + 1e-6f);
  store4(&staged.q[r][key], make_float4(q.x * qn, q.y * qn, q.z * qn, q.w * qn));
  store4(&staged.k[r][key], make_float4(k.x * kn, k.y * kn, k.z * kn, k.w * kn));
  if (key == 0) staged.qk[r] = qk * qn * kn;
}

// A warp: values, silu(z) and gates.
__device__ inline void stage_values(const FewArgs& a, const Place& p, const Weights& w, int row,
                                    int r, Staged& staged) {
  const int lane = threadIdx.x % kWarp, value = p.slice * kValues + lane;
  const int channel = a.net.v_channel(p.head) + value;
  const int64_t step_row = a.net.seqs.first[p.s] + row;
  const float z = a.net.qkvz.row(step_row)[a.net.z_channel(p.head) + value];
  const float* ba = a.net.ba.row(step_row);
  const float b = ba[p.head], log_decay_input = ba[a.net.shape.value_heads + p.head];
  float in[kGdnWidth];
#pragma unroll
  for (int j = 0; j < kGdnWidth; ++j) {
    const int from = row + j - kGdnTail;
    in[j] = from < 0 ? staged.tail[from + kGdnTail][2 * kGdnDim + lane]
                     : *a.net.input(p.s, from, channel);
  }
  staged.v[r][lane] = silu(dot4(w.taps[0], make_float4(in[0], in[1], in[2], in[3]), 0.0f));
  staged.gate[r][lane] = w.norm * silu(z);
  if (lane == 0) {
    staged.decay[r] = expf(gdn_log_decay(log_decay_input, w.a_log, w.dt_bias));
    staged.beta[r] = sigmoid(b);
  }
}

// One token. Leaves the outputs of the CTA's values and the warp's Σ out².
__device__ inline void walk_row(int r, State& state, Staged& staged) {
  float4 k[kQuads], q[kQuads];
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    k[j] = load4(&staged.k[r][key_of(j)]);
    q[j] = load4(&staged.q[r][key_of(j)]);
  }
  float sk[kLines] = {}, sq[kLines] = {};
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      sk[i] = dot4(state[i][j], k[j], sk[i]);
      sq[i] = dot4(state[i][j], q[j], sq[i]);
    }
  }
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      sk[i] += __shfl_xor_sync(kAll, sk[i], offset);
      sq[i] += __shfl_xor_sync(kAll, sq[i], offset);
    }
  }
  const float decay = staged.decay[r], beta = staged.beta[r], qk = staged.qk[r];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
    const float delta = beta * (staged.v[r][line_of(i)] - decay * sk[i]);
    const float out = decay * sq[i] + delta * qk;
    if (threadIdx.x % kLanes == 0) staged.out[r][line_of(i)] = out;
    squares += out * out;
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      state[i][j].x = fmaf(delta, k[j].x, decay * state[i][j].x);
      state[i][j].y = fmaf(delta, k[j].y, decay * state[i][j].y);
      state[i][j].z = fmaf(delta, k[j].z, decay * state[i][j].z);
      state[i][j].w = fmaf(delta, k[j].w, decay * state[i][j].w);
    }
  }
  for (int offset = kLanes; offset < kWarp; offset *= 2) {
    squares += __shfl_xor_sync(kAll, squares, offset);
  }
  if (threadIdx.x % kWarp == 0) staged.squares[r][threadIdx.x / kWarp] = squares;
}

// Where CTA `from` of the head leaves its Σ out² of a row for CTA `to`.
__device__ inline float* sum_at(const FewArgs& a, const Place& p, int row, int from, int to) {
  const int64_t place = int64_t{p.s} * kPlaces + row % kPlaces;
  return a.sums + ((place * a.net.shape.value_heads + p.head) * kSlices + from) * kSlices + to;
}

// Threads [0, kSlices · rows of the batch): one for each row and CTA of the head.
__device__ inline void leave_sum(const FewArgs& a, const Place& p, int first, Staged& staged) {
  const int r = threadIdx.x / kSlices, to = threadIdx.x % kSlices;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += staged.squares[r][w];
  if (to == p.slice) {
    staged.parts[r][to] = sum;
  } else {
    __stcg(sum_at(a, p, first + r, p.slice, to), sum);
  }
}

// Blocks of a grid start in order and those of a head are neighbours, so the sum will be there.
__device__ inline void take_sum(const FewArgs& a, const Place& p, int first, Staged& staged) {
  const int r = threadIdx.x / kSlices, from = threadIdx.x % kSlices;
  if (from == p.slice) return;
  float* place = sum_at(a, p, first + r, from, p.slice);
  float sum;
  do {
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(sum) : "l"(place) : "memory");
  } while (__float_as_uint(sum) == Stream::kUnset);
  __stcg(place, __uint_as_float(Stream::kUnset));
  staged.parts[r][from] = sum;
}

__device__ inline void write_out(const FewArgs& a, const Place& p, int first, int rows,
                                 const Staged& staged) {
  const int lane = threadIdx.x % kWarp;
  for (int r = threadIdx.x / kWarp; r < rows; r += kWarps) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kSlices; ++i) sum += staged.parts[r][i];
    const float scale = rsqrtf(sum / static_cast<float>(kGdnDim) + a.net.eps);
    a.net.out.row(a.net.seqs.first[p.s] + first + r)[p.head * kGdnDim + p.slice * kValues + lane] =
        staged.out[r][lane] * scale * staged.gate[r][lane];
  }
}

// Threads [0, kTailThreads) look after four inputs of the convolution each.
constexpr int kTailThreads = kInputs / 4;
constexpr int kKeyTailThreads = 2 * kGdnDim / 4;

__device__ inline int tail_channel(const FewArgs& a, const Place& p) {
  const int i = threadIdx.x;
  if (i < kGdnDim / 4) return a.net.q_channel(p.key_head) + 4 * i;
  if (i < kKeyTailThreads) return a.net.k_channel(p.key_head) + 4 * i - kGdnDim;
  return a.net.v_channel(p.head) + p.slice * kValues + 4 * (i - kKeyTailThreads);
}

using Tail = float4[kGdnTail];

// The tail before the slice, to shared memory.
__device__ inline void stage_tail(const FewArgs& a, const Place& p, Staged& staged) {
  if (threadIdx.x >= kTailThreads) return;
#pragma unroll
  for (int i = 0; i < kGdnTail; ++i) {
    store4(&staged.tail[i][4 * threadIdx.x],
           load4_or_zero(a.net.input(p.s, i - kGdnTail, tail_channel(a, p))));
  }
}
// The tail after it.
__device__ inline void load_tail(const FewArgs& a, const Place& p, const Staged& staged,
                                 Tail& tail) {
  if (threadIdx.x >= kTailThreads) return;
#pragma unroll
  for (int i = 0; i < kGdnTail; ++i) {
    const int row = p.rows - kGdnTail + i;
    tail[i] = load4(row < 0 ? &staged.tail[row + kGdnTail][4 * threadIdx.x]
                            : a.net.input(p.s, row, tail_channel(a, p)));
  }
}
__device__ inline void store_tail(const FewArgs& a, const Place& p, const Staged& staged,
                                  const Tail& tail) {
  const bool keys = threadIdx.x < kKeyTailThreads;
  if (threadIdx.x >= kTailThreads || (keys && !staged.last_reader)) return;
#pragma unroll
  for (int i = 0; i < kGdnTail; ++i) store4(a.net.tail(p.s, i, tail_channel(a, p)), tail[i]);
}

__device__ inline void stage(const FewArgs& a, const Place& p, const Weights& weights, int first,
                             int rows, Staged& staged) {
  for (int task = threadIdx.x / kWarp; task < 2 * rows; task += kWarps) {
    const int r = task / 2;
    if (stages_keys()) {
      stage_keys(a, p, weights, first + r, r, staged);
    } else {
      stage_values(a, p, weights, first + r, r, staged);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 3) gdn_few(FewArgs a) {
  start_next();
  __shared__ Staged staged;
  Place p{};
  p.s = blockIdx.y;
  p.slice = blockIdx.x % kSlices;
  p.head = blockIdx.x / kSlices;
  p.key_head = p.head / a.net.group();
  p.rows = a.net.seqs.count[p.s];
  if (p.rows == 0 || p.rows > a.rows_max) {
    wait_for_earlier();
    return;
  }
  State state;
  load_state(a, p, state);
  const Weights weights = load_weights(a, p);
  stage_tail(a, p, staged);
  wait_for_earlier();

  Tail tail;
  load_tail(a, p, staged, tail);
  int32_t* counter = a.readers + p.s * a.net.shape.key_heads + p.key_head;
  int readers = 0;
#pragma unroll 1
  for (int first = 0; first < p.rows; first += kBatch) {
    const int rows = min(kBatch, p.rows - first);
    __syncthreads();
    stage(a, p, weights, first, rows, staged);
    __syncthreads();
    if (first == 0 && threadIdx.x == 0) readers = atomicAdd(counter, 1) + 1;
#pragma unroll 1
    for (int r = 0; r < rows; ++r) walk_row(r, state, staged);
    __syncthreads();
    // A CTA that leaves sums of a batch has emptied the places of the batch before.
    if (first > 0) __threadfence();
    if (threadIdx.x < rows * kSlices) leave_sum(a, p, first, staged);
    if (first + rows == p.rows) {
      store_state(a, p, state);
      if (threadIdx.x == 0) {
        staged.last_reader = readers == a.net.group() * kSlices;
        if (staged.last_reader) *counter = 0;
      }
    }
    if (threadIdx.x < rows * kSlices) take_sum(a, p, first, staged);
    if (first + rows < p.rows) __threadfence();
    __syncthreads();
    write_out(a, p, first, rows, staged);
  }
  store_tail(a, p, staged, tail);
}

bool has_quads(const ConstTensorView& t) { return t.row_stride % 4 == 0; }

constexpr int kWalkRows = 64;  // a walk over so many costs no more than the chunked kernels

}  // namespace

bool gdn_fuses(const ops::GatedDeltaNet& op) {
  return op.shape.key_dim == kGdnDim && op.shape.value_dim == kGdnDim &&
         op.conv.cols() == kGdnWidth && has_quads(op.qkvz) && has_quads(op.conv) &&
         has_quads(op.out) && has_quads(op.state.base) && has_quads(op.state.conv_tail);
}

bool gdn_is_few(const ops::GatedDeltaNet& op) {
  return op.qkvz.rows() <= kWalkRows + op.seqs.seqs();
}

void gdn_few_launch(Stream& stream, const ops::GatedDeltaNet& op, GdnSlices slices) {
  gdn_require_quads(op);
  FewArgs a{};
  a.net = gdn_args(op);
  a.rows_max = slices == GdnSlices::kShort ? kGdnFewRows : op.qkvz.rows();
  a.readers = stream.counters().data();
  a.sums = stream.exchange().data();
  const int64_t seqs = op.seqs.seqs();
  const int64_t sums = seqs * kPlaces * op.shape.value_heads * kSlices * kSlices;
  EXODE_CHECK(seqs * op.shape.key_heads <= static_cast<int64_t>(stream.counters().size()) &&
                  sums <= static_cast<int64_t>(stream.exchange().size()),
              "gated_delta_net: more sequences than the stream has words for");
  const dim3 grid(static_cast<unsigned>(op.shape.value_heads * kSlices),
                  static_cast<unsigned>(seqs));
  launch_chained(native(stream), gdn_few, grid, kThreads, 0, a);
}

}  // namespace exode::cuda
