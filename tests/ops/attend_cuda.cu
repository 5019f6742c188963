// Attention on a CUDA device: the tensor-core kernels against the exact one, bits of a row alone
// and in company, and how fast they are. Exits with 1 when a check fails.
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kv/formats/dense/cuda_attend.h"
#include "kv/pool.h"
#include "ops/cuda/common.cuh"

namespace {

using namespace exode;

// fmt does not compile under nvcc.
template <class... Values>
std::string format(const char* text, Values... values) {
  char out[256];
  std::snprintf(out, sizeof(out), text, values...);
  return out;
}

struct Part {  // of a step: `rows` rows that end a context of `length` tokens
  int32_t length, rows;
};

struct Case {
  DType dtype = DType::kBF16;
  int32_t dim = 256, heads = 1, group = 6;
  std::vector<Part> parts;
  int32_t window = 0;
  float soft_cap = 0;
  bool gate = true;
  int32_t q_width() const { return heads * group * dim; }
};

__device__ float value_at(uint64_t key) {  // uniform in [-1, 1)
  key = (key ^ (key >> 31)) * 0x7fb5d329728ea185ull;
  key = (key ^ (key >> 27)) * 0x81dadef4bc2dd44dull;
  return static_cast<float>(static_cast<uint32_t>(key >> 32)) * 0x1p-31f - 1.0f;
}
template <class T>
__global__ void fill(T* out, int64_t count, uint64_t seed) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += stride) {
    out[i] = static_cast<T>(value_at(seed * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(i) + 1));
  }
}
// Bytes that decode to NaN wherever a sequence has not stored a token.
__global__ void spoil(uint16_t* block_base, int heads, int dim, int first_token) {
  const int token = first_token + blockIdx.x;
  for (int i = threadIdx.x; i < 2 * heads * dim; i += blockDim.x) {
    block_base[(int64_t{i / dim} * kKvBlock + token) * dim + i % dim] = 0xffff;
  }
}
__global__ void read_all(const uint4* data, int64_t count, uint32_t* sink) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  uint32_t sum = 0;
#pragma unroll 8
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += stride) {
    const uint4 v = data[i];
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x12345678u) *sink = sum;
}

class Memory {
 public:
  explicit Memory(size_t bytes) { EXODE_CUDA_CHECK(cudaMalloc(&data_, bytes)); }
  template <class T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T) + 16) {
    EXODE_CUDA_CHECK(
        cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

const KvFormat& format_of(DType dtype) { return *find_kv_format(dtype_name(dtype)); }

// A step of a case, and a cache with the contexts of its sequences in scattered blocks.
class Step {
 public:
  explicit Step(const Case& c) : c_(c) {
    int32_t blocks = 0;
    for (const Part& part : c.parts) {
      width_ = std::max(width_, blocks_for_tokens(part.length));
      first_.push_back(rows_);
      count_.push_back(part.rows);
      for (int32_t i = 0; i < part.rows; ++i) {
        positions_.push_back(part.length - part.rows + i);
        seq_.push_back(static_cast<int32_t>(first_.size()) - 1);
      }
      rows_ += part.rows;
    }
    blocks = width_ * seqs();
    for (int32_t s = 0; s < seqs(); ++s) {
      for (int32_t b = 0; b < width_; ++b) table_.push_back((width_ - 1 - b) * seqs() + s);
    }
    block_bytes_ = format_of(c.dtype).block_bytes({1, c.heads, c.dim, 0});
    cache_ = std::make_unique<Memory>(block_bytes_ * static_cast<size_t>(blocks));
    fill_cache(static_cast<int64_t>(block_bytes_) / 2 * blocks);
    const size_t floats = static_cast<size_t>(rows_) * static_cast<size_t>(c.q_width());
    q_ = std::make_unique<Memory>(4 * floats);
    gate_ = std::make_unique<Memory>(4 * floats);
    out_ = std::make_unique<Memory>(4 * floats);
    fill<<<512, 256>>>(reinterpret_cast<float*>(q_->data()), static_cast<int64_t>(floats), 5);
    fill<<<512, 256>>>(reinterpret_cast<float*>(gate_->data()), static_cast<int64_t>(floats), 6);
    ints_ = std::make_unique<Memory>(joined());
  }

  // Rows [first, first + rows) of sequence s alone, or everything for s < 0.
  kv::Attend op(int32_t s = -1, int32_t first = 0, int32_t rows = 0) {
    const int32_t from = s < 0 ? 0 : first_[static_cast<size_t>(s)] + first;
    const int32_t count = s < 0 ? rows_ : rows;
    if (s >= 0) {  // one sequence with its own row numbers
      std::vector<int32_t> row_first(static_cast<size_t>(seqs()), 0), row_count(row_first);
      row_count[static_cast<size_t>(s)] = count;
      row_first.insert(row_first.end(), row_count.begin(), row_count.end());
      alone_ = std::make_unique<Memory>(row_first);
    }
    const std::byte* runs = s < 0 ? at(2 * rows_) : alone_->data();
    const int64_t offset = int64_t{from} * c_.q_width() * 4;
    const Shape shape{count, c_.q_width()};
    return {.cache = {.base = cache_->data(),
                      .block_stride = static_cast<int64_t>(block_bytes_),
                      .heads = c_.heads,
                      .head_dim = c_.dim,
                      .block_table =
                          dense_view(at(2 * rows_ + 2 * seqs()), DType::kI32, {seqs(), width_}),
                      .format = &format_of(c_.dtype)},
            .q = dense_view(q_->data() + offset, DType::kF32, shape),
            .out = dense_view(out_->data() + offset, DType::kF32, shape),
            .positions = dense_view(at(from), DType::kI32, {count}),
            .seq_of_row = dense_view(at(rows_ + from), DType::kI32, {count}),
            .gate = c_.gate ? dense_view(gate_->data() + offset, DType::kF32, shape) : TensorView{},
            .seqs = {.row_first = dense_view(runs, DType::kI32, {seqs()}),
                     .row_count = dense_view(runs + 4 * seqs(), DType::kI32, {seqs()})},
            .scale = 4.0f / std::sqrt(static_cast<float>(c_.dim)),
            .soft_cap = c_.soft_cap,
            .window = c_.window};
  }
  int32_t seqs() const { return static_cast<int32_t>(first_.size()); }
  int32_t first_row(int32_t s) const { return first_[static_cast<size_t>(s)]; }
  size_t block_bytes() const { return block_bytes_; }

 private:
  void fill_cache(int64_t values) {
    if (c_.dtype == DType::kBF16) {
      fill<<<1024, 256>>>(reinterpret_cast<__nv_bfloat16*>(cache_->data()), values, 7);
    } else {
      fill<<<1024, 256>>>(reinterpret_cast<__half*>(cache_->data()), values, 7);
    }
    for (int32_t s = 0; s < seqs(); ++s) {
      const int32_t length = c_.parts[static_cast<size_t>(s)].length;
      if (length % kKvBlock == 0) continue;
      const int32_t block = table_[static_cast<size_t>(s * width_ + length / kKvBlock)];
      spoil<<<kKvBlock - length % kKvBlock, 256>>>(
          reinterpret_cast<uint16_t*>(cache_->data() + block_bytes_ * static_cast<size_t>(block)),
          c_.heads, c_.dim, length % kKvBlock);
    }
  }
  std::vector<int32_t> joined() const {
    std::vector<int32_t> all;
    for (const auto* v : {&positions_, &seq_, &first_, &count_, &table_}) {
      all.insert(all.end(), v->begin(), v->end());
    }
    return all;
  }
  std::byte* at(int32_t index) const { return ints_->data() + 4 * int64_t{index}; }

  Case c_;
  int32_t width_ = 0, rows_ = 0;
  size_t block_bytes_ = 0;
  std::vector<int32_t> positions_, seq_, first_, count_, table_;
  std::unique_ptr<Memory> cache_, q_, gate_, out_, ints_, alone_;
};

class Runner {
 public:
  void start(const kv::Attend& op) {
    const auto& kernel = op.cache.format->attend[static_cast<size_t>(Backend::kCuda)];
    const size_t bytes = kernel.scratch_bytes({}, op);
    if (bytes > bytes_) {
      EXODE_CUDA_CHECK(cudaDeviceSynchronize());
      scratch_ = std::make_unique<Memory>(bytes_ = bytes);
    }
    kernel.launch(stream_, op, {scratch_->data(), bytes});
  }
  std::vector<float> fast(const kv::Attend& op) {
    EXODE_CUDA_CHECK(cudaDeviceSynchronize());
    clear(op);
    start(op);
    return result(op);
  }
  std::vector<float> exact(const kv::Attend& op, DType dtype) {
    EXODE_CUDA_CHECK(cudaDeviceSynchronize());
    clear(op);
    kv_dense::exact_attend(stream_, op, dtype);
    return result(op);
  }
  // Microseconds per call of `launches` launches in a graph.
  double time(int launches, const std::function<void(int)>& launch) {
    launch(0);
    EXODE_CUDA_CHECK(cudaDeviceSynchronize());
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    EXODE_CUDA_CHECK(cudaStreamBeginCapture(native_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; ++i) launch(i);
    EXODE_CUDA_CHECK(cudaStreamEndCapture(native_, &graph));
    EXODE_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t begin, end;
    EXODE_CUDA_CHECK(cudaEventCreate(&begin));
    EXODE_CUDA_CHECK(cudaEventCreate(&end));
    float best = 1e30f;
    for (int i = 0; i < 4; ++i) {
      EXODE_CUDA_CHECK(cudaEventRecord(begin, native_));
      EXODE_CUDA_CHECK(cudaGraphLaunch(exec, native_));
      EXODE_CUDA_CHECK(cudaEventRecord(end, native_));
      EXODE_CUDA_CHECK(cudaEventSynchronize(end));
      float ms = 0;
      EXODE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
      best = std::min(best, ms);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return 1e3 * static_cast<double>(best) / launches;
  }
  cudaStream_t native() const { return native_; }

 private:
  static size_t bytes_of(const kv::Attend& op) {
    return static_cast<size_t>(op.out.shape.elements()) * 4;
  }
  static void clear(const kv::Attend& op) {
    EXODE_CUDA_CHECK(cudaMemset(op.out.data, 0xff, bytes_of(op)));
    EXODE_CUDA_CHECK(cudaDeviceSynchronize());
  }
  std::vector<float> result(const kv::Attend& op) {
    EXODE_CUDA_CHECK(cudaStreamSynchronize(native_));
    std::vector<float> out(bytes_of(op) / 4);
    EXODE_CUDA_CHECK(cudaMemcpy(out.data(), op.out.data, bytes_of(op), cudaMemcpyDeviceToHost));
    return out;
  }

  std::unique_ptr<Device> device_ = open_cuda_device({.name = "cuda"}).value();
  Stream& stream_ = device_->stream();
  cudaStream_t native_ = cuda::native(stream_);
  size_t bytes_ = 0;
  std::unique_ptr<Memory> scratch_;
};

int failures = 0;

double relative(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0, most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(d < 1e30)) return 1e30;
    worst = std::max(worst, d);
    most = std::max(most, std::abs(static_cast<double>(b[i])));
  }
  return worst / most;
}

void report(const std::string& what, double error, double allowed) {
  const bool bad = !(error <= allowed);
  failures += bad ? 1 : 0;
  if (bad || allowed > 0)
    std::printf("%-64s%10.2e%s\n", what.c_str(), error, bad ? "  FAILED" : "");
}

std::string describe(const Case& c) {
  std::string s = format("%s D%d kv%d gqa%d%s%s", dtype_name(c.dtype).data(), c.dim, c.heads,
                         c.group, c.window > 0 ? " window" : "", c.soft_cap > 0 ? " cap" : "");
  for (const Part& p : c.parts) s += format(" %d:%d", p.length, p.rows);
  return s;
}

void compare(Runner& run, const Case& c) {
  Step step(c);
  const kv::Attend op = step.op();
  report(describe(c), relative(run.fast(op), run.exact(op, c.dtype)), 2e-2);
}

// Steps of one to eight rows of every part against each row alone.
void compare_bits(Runner& run, const Case& c) {
  Step step(c);
  const std::vector<float> all = run.fast(step.op());
  const auto width = static_cast<size_t>(c.q_width());
  double worst = 0;
  for (int32_t s = 0; s < step.seqs(); ++s) {
    for (int32_t r = 0; r < c.parts[static_cast<size_t>(s)].rows; ++r) {
      const std::vector<float> one = run.fast(step.op(s, r, 1));
      const float* same = all.data() + static_cast<size_t>(step.first_row(s) + r) * width;
      if (std::memcmp(one.data(), same, width * 4) != 0) worst += 1;
    }
  }
  report("bits: " + describe(c) + format(" (%.0f rows differ)", worst), worst, 0);
}

void check(Runner& run) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int32_t dim : {64, 128, 256}) {
      for (const int32_t group : {1, 4, 6, 8, 16}) {
        Case c{.dtype = dtype, .dim = dim, .heads = 2, .group = group};
        c.parts = {{1, 1}, {63, 2}, {64, 3}, {65, 4}, {1000, 8}, {4100, 5}, {33000, 7}};
        compare(run, c);
        compare_bits(run, c);
        c.parts = {{1, 1}, {70, 64}, {300, 65}, {4096, 3}, {1000, 1000}, {2000, 9}};
        compare(run, c);
      }
      Case c{.dtype = dtype, .dim = dim, .heads = 2, .group = 4, .window = 500, .soft_cap = 3};
      c.parts = {{1, 1}, {700, 8}, {5000, 4}, {33000, 4}, {700, 300}};
      compare(run, c);
      c.gate = false;
      c.parts.pop_back();
      compare(run, c);
      compare_bits(run, c);
    }
  }
  for (const int32_t chunk : {1, 7, 64, 65, 1000}) {  // how a prompt is cut changes little
    Case c{.heads = 1, .group = 6, .parts = {{1000, 1000}}};
    Step step(c);
    const std::vector<float> whole = run.fast(step.op());
    std::vector<float> pieces;
    for (int32_t first = 0; first < 1000; first += chunk) {
      const auto piece = run.fast(step.op(0, first, std::min(chunk, 1000 - first)));
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    report(format("prompt of 1000 in chunks of %d", chunk), relative(pieces, whole), 2e-2);
  }
}

void time_all(Runner& run) {
  constexpr int64_t kBytes = int64_t{2} << 30;
  Memory big(kBytes), sink(4);
  cudaMemset(big.data(), 0, kBytes);
  const double read_us = run.time(2, [&](int) {
    read_all<<<132 * 16, 512, 0, run.native()>>>(reinterpret_cast<const uint4*>(big.data()),
                                                 kBytes / 16,
                                                 reinterpret_cast<uint32_t*>(sink.data()));
  });
  const double read = kBytes / read_us / 1e3;
  std::printf("read bandwidth %.0f GB/s\n", read);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int32_t length : {128, 1024, 4096, 32768, 131072}) {
      for (const int32_t rows : {1, 2, 4, 8}) {
        Step step({.dtype = dtype, .heads = 4, .parts = {{length, rows}}});
        kv::Attend op = step.op();
        const int64_t bytes = static_cast<int64_t>(step.block_bytes()) * (length / kKvBlock);
        const int copies = static_cast<int>(std::clamp<int64_t>(kBytes / bytes, 2, 32));
        const double us = run.time(copies, [&](int i) {
          op.cache.base = big.data() + i * bytes;
          run.start(op);
        });
        std::printf("%s context %6d rows %d: %8.1f us %6.0f GB/s %4.0f %%\n",
                    dtype_name(dtype).data(), length, rows, us, bytes / us / 1e3,
                    100 * bytes / us / 1e3 / read);
      }
    }
    for (const Part part : {Part{2048, 2048}, Part{32768, 2048}}) {
      Step step({.dtype = dtype, .heads = 4, .parts = {part}});
      const kv::Attend op = step.op();
      const double us = run.time(2, [&](int) { run.start(op); });
      const double tokens = part.length - (part.rows - 1) / 2.0;
      std::printf("%s prompt %d rows to %d: %.1f us %.0f TFLOP/s\n", dtype_name(dtype).data(),
                  part.rows, part.length, us, 4 * tokens * part.rows * 24 * 256 / us / 1e6);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  Runner run;
  if (what != "time") check(run);
  if (what != "check") time_all(run);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
