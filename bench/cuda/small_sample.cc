// The sampler on CUDA against the reference, and its times on a vocabulary of 248,320.
#include "cuda/small_ops.h"

namespace exode::bench {
namespace {

constexpr int32_t kVocab = 248'320, kLimit = 248'077;

struct Rows {
  int32_t vocab = kVocab, limit = kLimit;
  std::vector<float> logits;
  std::vector<ops::SampleRow> rows;
  std::vector<ops::TokenCount> history;
  std::vector<ops::TokenBias> bias;
};

// Few likely ids and a long tail, as a model has; `spread` 0 makes all equal.
std::vector<float> logits_like_a_model(int32_t vocab, uint64_t seed, float spread) {
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = -spread * std::log(-std::log(0.0001f + 0.9998f * random_unit(seed, i)));
  }
  return logits;
}

class Sampler {
 public:
  Sampler(Lab& lab, const Rows& data)
      : lab_(lab),
        data_(data),
        logits_(lab.upload(data.logits)),
        rows_(lab.upload(data.rows)),
        history_(lab.upload(data.history)),
        bias_(lab.upload(data.bias)),
        next_(lab.take(data.rows.size() * 4 + 64)) {}

  ops::Sample op() { return make(logits_.bytes().data(), rows_, history_, bias_, next_.bytes()); }
  std::vector<int32_t> run() {
    lab_.run(lab_.fast(), op());
    return lab_.download<int32_t>(next_, data_.rows.size());
  }
  std::vector<int32_t> reference() {
    std::vector<int32_t> next(data_.rows.size());
    std::vector<float> logits = data_.logits;
    const auto cpu = open_device({.name = "cpu", .threads = 1}).value();
    Arena none = Arena::counting();
    const auto view = [](const auto& v) {
      return ConstTensorView(dense_view(reinterpret_cast<const std::byte*>(v.data()), DType::kU8,
                                        {static_cast<int32_t>(v.size() * sizeof(v[0]))}));
    };
    Exec(Exec::Mode::kRun, ref_ops(cpu->caps()), cpu->stream(), none)(ops::Sample{
        .logits = dense_view(logits.data(), DType::kF32,
                             {static_cast<int32_t>(data_.rows.size()), data_.vocab}),
        .rows = view(data_.rows),
        .history = view(data_.history),
        .bias = view(data_.bias),
        .vocab_limit = data_.limit,
        .next_token = dense_view(next.data(), DType::kI32, {static_cast<int32_t>(next.size())})});
    return next;
  }

 private:
  ops::Sample make(std::byte* logits, const Buffer& rows, const Buffer& history, const Buffer& bias,
                   std::span<std::byte> next) {
    const auto n = static_cast<int32_t>(data_.rows.size());
    const auto view = [](const Buffer& b) {
      return ConstTensorView(dense_view(std::as_const(b).bytes().data(), DType::kU8,
                                        {static_cast<int32_t>(b.bytes().size())}));
    };
    return {.logits = dense_view(logits, DType::kF32, {n, data_.vocab}),
            .rows = view(rows),
            .history = view(history),
            .bias = view(bias),
            .vocab_limit = data_.limit,
            .next_token = dense_view(next.data(), DType::kI32, {n})};
  }
  Lab& lab_;
  Rows data_;
  Buffer logits_, rows_, history_, bias_, next_;
};

ops::SampleRow row_of(float temperature, int32_t top_k, float top_p, float min_p, uint64_t seed) {
  ops::SampleRow r;
  r.temperature = temperature;
  r.top_k = top_k;
  r.top_p = top_p;
  r.min_p = min_p;
  r.active = 1;
  r.seed = seed;
  r.position = 3 * seed;
  return r;
}

void check_case(Lab& lab, const char* what, Rows data, float spread, const ops::SampleRow& like,
                int count) {
  for (int i = 0; i < count; ++i) {
    ops::SampleRow r = like;
    r.seed += static_cast<uint64_t>(i);
    data.rows.push_back(r);
    const std::vector<float> one =
        logits_like_a_model(data.vocab, 100 + static_cast<uint64_t>(i), spread);
    data.logits.insert(data.logits.end(), one.begin(), one.end());
  }
  Sampler sampler(lab, data);
  const std::vector<int32_t> expected = sampler.reference(), actual = sampler.run();
  int different = 0;
  for (size_t i = 0; i < expected.size(); ++i) different += expected[i] != actual[i] ? 1 : 0;
  lab.check(different == 0, fmt::format("sample {}: {} of {} differ (first {} for {})", what,
                                        different, count, actual[0], expected[0]));
}

}  // namespace

void check_sample(Lab& lab) {
  const Rows full;
  Rows small;
  small.vocab = 5003;  // rows off 16 bytes
  small.limit = 4999;
  for (const auto& [size, data] : {std::pair{"full", full}, std::pair{"small", small}}) {
    const auto check = [&](const char* what, float spread, const ops::SampleRow& like) {
      check_case(lab, fmt::format("{} {}", size, what).c_str(), data, spread, like, 4);
    };
    check("greedy", 2, row_of(0, 0, 1, 0, 1));
    check("plain", 2, row_of(1, 0, 1, 0, 2));
    check("top-k 20 top-p 0.95", 2, row_of(0.7f, 20, 0.95f, 0, 3));
    check("top-k 1", 2, row_of(1, 1, 1, 0, 4));
    check("top-p 0.9", 2, row_of(0.6f, 0, 0.9f, 0, 5));
    check("min-p 0.05", 2, row_of(1.2f, 0, 1, 0.05f, 6));
    check("all three", 2, row_of(1.2f, 50, 0.9f, 0.02f, 7));
    check("flat top-p 0.9", 0.3f, row_of(1, 0, 0.9f, 0, 8));
    check("flat top-k 4900", 0.3f, row_of(1, 4900, 1, 0, 9));
    check("flat top-k 4900 top-p 0.8", 0.3f, row_of(1, 4900, 0.8f, 0, 10));
    check("flat min-p", 0.3f, row_of(1, 0, 1, 0.05f, 11));
    check("equal top-k 7", 0, row_of(1, 7, 1, 0, 12));
    check("equal top-p 0.3", 0, row_of(1, 0, 0.3f, 0, 13));
    check("equal top-k 4500 top-p 0.5", 0, row_of(1, 4500, 0.5f, 0, 14));
  }
  Rows adjusted;
  for (int32_t i = 0; i < 3000; ++i) adjusted.history.push_back({i * 80, i % 4});
  for (int32_t i = 0; i < 300; ++i) adjusted.bias.push_back({i * 800 + 5, i % 2 == 0 ? 3.f : -3.f});
  ops::SampleRow r = row_of(0.8f, 40, 0.95f, 0, 15);
  r.history_count = 3000;
  r.bias_count = 300;
  r.presence = 0.5f;
  r.frequency = 0.3f;
  r.repetition = 1.2f;
  check_case(lab, "penalties and bias", adjusted, 2, r, 4);
}

void time_sample(Lab& lab) {
  const auto time = [&](const char* what, int rows, float spread, const ops::SampleRow& like) {
    Rows data;
    const std::vector<float> one = logits_like_a_model(kVocab, 7, spread);
    for (int i = 0; i < rows; ++i) {
      data.rows.push_back(like);
      data.rows.back().seed = static_cast<uint64_t>(i);
      data.logits.insert(data.logits.end(), one.begin(), one.end());
    }
    Sampler sampler(lab, data);
    const double t = lab.time(20, [&](int) { lab.run(lab.fast(), sampler.op()); });
    fmt::print("time  sample {:>2} rows {:<26} {:>7.1f} us\n", rows, what, t);
  };
  for (const int rows : {1, 4, 32}) {
    time("greedy", rows, 2, row_of(0, 0, 1, 0, 1));
    time("plain", rows, 2, row_of(1, 0, 1, 0, 1));
    time("top-k 20 top-p 0.95", rows, 2, row_of(0.7f, 20, 0.95f, 0, 1));
    time("top-p 0.95", rows, 2, row_of(0.7f, 0, 0.95f, 0, 1));
    time("flat top-p 0.9", rows, 0.3f, row_of(1, 0, 0.9f, 0, 1));
  }
}

}  // namespace exode::bench
