#include "golden/reference.h"

#include <cstring>
#include <future>

namespace exode::testing {

Reference::Reference(const std::string& path)
    : file_(MappedFile::open(path).value()),
      tensors_(parse_safetensors(file_.bytes(), path).value()) {}

std::vector<TokenId> Reference::ids(const std::string& name) const {
  const RawTensor& t = tensors_.at(name);
  EXODE_CHECK(t.dtype == FileDType::kI64, name);
  std::vector<TokenId> out;
  for (size_t i = 0; i < t.data.size(); i += sizeof(int64_t)) {
    int64_t value = 0;
    std::memcpy(&value, t.data.data() + i, sizeof(value));
    out.push_back(static_cast<TokenId>(value));
  }
  return out;
}

std::vector<float> Reference::floats(const std::string& name) const {
  const RawTensor& t = tensors_.at(name);
  EXODE_CHECK(t.dtype == FileDType::kF32, name);
  std::vector<float> out(t.data.size() / sizeof(float));
  std::memcpy(out.data(), t.data.data(), t.data.size());
  return out;
}

int64_t Reference::dim(const std::string& name, size_t axis) const {
  return tensors_.at(name).shape.at(axis);
}

GoldenPlaces& golden_places() {
  static GoldenPlaces places{.references = EXODE_SOURCE_DIR "/tests/golden/fixtures",
                             .checkpoints = EXODE_BINARY_DIR "/assets/fixtures"};
  return places;
}

EngineConfig engine_config(const std::string& model, int32_t chunk, DType dtype) {
  EngineConfig config;
  config.model = model;
  config.device = golden_places().device;
  config.dtype = dtype;
  config.threads = 2;
  config.max_num_batched_tokens = chunk;
  config.max_model_len = 512;
  config.evaluation = true;
  return config;
}

std::vector<float> all_logits(Engine& engine, const std::vector<TokenId>& ids) {
  std::vector<float> out;
  const auto vocab = static_cast<size_t>(engine.facts().vocab);
  const Status status = engine.evaluate(ids, [&](int32_t, int32_t count, const float* logits) {
    out.insert(out.end(), logits, logits + static_cast<size_t>(count) * vocab);
  });
  EXODE_CHECK(status.ok(), status.error().message);
  return out;
}

std::vector<std::vector<TokenId>> generate_all(Engine& engine, std::vector<Request> requests) {
  struct Job {
    std::vector<TokenId> ids;
    std::promise<void> done;
  };
  std::vector<Job> jobs(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Job& job = jobs[i];
    const auto id = engine.submit(std::move(requests[i]), [&job](const TokenEvent& event) {
      job.ids.insert(job.ids.end(), event.tokens.begin(), event.tokens.end());
      if (event.finish != FinishReason::kNone) job.done.set_value();
    });
    EXODE_CHECK(id.ok(), id.error().message);
  }
  engine.start();
  std::vector<std::vector<TokenId>> out;
  for (Job& job : jobs) {
    job.done.get_future().wait();
    out.push_back(std::move(job.ids));
  }
  return out;
}

Request greedy(std::vector<TokenId> prompt, int32_t count) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0;
  r.tokens_max = count;
  return r;
}

}  // namespace exode::testing
