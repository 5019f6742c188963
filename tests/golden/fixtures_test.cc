// Every fixture against its reference: logits, greedy tokens, any chunking, any neighbours.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "golden/reference.h"

namespace exode::testing {
namespace {

constexpr float kLogitTolerance = 2e-3f;
constexpr int kCases = 4;
constexpr int32_t kWhole = 512;  // longer than every prompt

class FixtureTest : public ::testing::TestWithParam<const char*> {
 protected:
  FixtureTest()
      : reference_(
            fmt::format("{}/{}/reference.safetensors", golden_places().references, GetParam())) {}

  std::unique_ptr<Engine> open(int32_t chunk, DType dtype = DType::kF32) {
    const std::string folder = fmt::format("{}/{}", golden_places().checkpoints, GetParam());
    return Engine::create(engine_config(folder, chunk, dtype)).value();
  }
  std::vector<TokenId> prompt(int i) const {
    return reference_.ids(fmt::format("case{}.input_ids", i));
  }
  std::vector<TokenId> continuation(int i) const {
    return reference_.ids(fmt::format("case{}.greedy_ids", i));
  }

  // Largest |Δ| over the stored rows of all cases.
  float worst_logit(Engine& engine) {
    float worst = 0;
    const auto vocab = static_cast<size_t>(engine.facts().vocab);
    for (int i = 0; i < kCases; ++i) {
      const std::vector<float> actual = all_logits(engine, prompt(i));
      const std::vector<float> expected = reference_.floats(fmt::format("case{}.logits", i));
      const std::vector<TokenId> rows = reference_.ids(fmt::format("case{}.logit_rows", i));
      EXPECT_EQ(expected.size(), rows.size() * vocab);
      for (size_t r = 0; r < rows.size(); ++r) {
        for (size_t v = 0; v < vocab; ++v) {
          const float delta =
              actual[static_cast<size_t>(rows[r]) * vocab + v] - expected[r * vocab + v];
          worst = std::isfinite(delta) ? std::max(worst, std::fabs(delta)) : INFINITY;
        }
      }
    }
    return worst;
  }

  Reference reference_;
};

TEST_P(FixtureTest, LogitsForAnyChunkSize) {
  for (int32_t chunk : {1, 7, 64, 65, kWhole}) {
    const auto engine = open(chunk);
    EXPECT_LE(worst_logit(*engine), kLogitTolerance) << "chunk " << chunk;
  }
}

// 16-bit numerics: 2 % of a row's norm, and the likeliest token where the reference is sure.
TEST_P(FixtureTest, SixteenBitLogitsStayClose) {
  const auto engine = open(kWhole, DType::kBF16);
  const auto vocab = static_cast<size_t>(engine->facts().vocab);
  for (int i = 0; i < kCases; ++i) {
    const std::vector<float> actual = all_logits(*engine, prompt(i));
    const std::vector<float> expected = reference_.floats(fmt::format("case{}.logits", i));
    const std::vector<TokenId> rows = reference_.ids(fmt::format("case{}.logit_rows", i));
    for (size_t r = 0; r < rows.size(); ++r) {
      const float* a = actual.data() + static_cast<size_t>(rows[r]) * vocab;
      const float* e = expected.data() + r * vocab;
      double error = 0, norm = 0;
      for (size_t v = 0; v < vocab; ++v) {
        error += std::pow(static_cast<double>(a[v]) - e[v], 2);
        norm += std::pow(static_cast<double>(e[v]), 2);
      }
      EXPECT_LE(std::sqrt(error / norm), 2e-2) << "case " << i << " row " << rows[r];
      std::vector<float> sorted(e, e + vocab);
      std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
      if (sorted[0] - sorted[1] <= 0.1f) continue;
      EXPECT_EQ(std::max_element(a, a + vocab) - a, std::max_element(e, e + vocab) - e);
    }
  }
}

TEST_P(FixtureTest, GreedyTokensForAnyChunkSize) {
  for (int32_t chunk : {1, 7, 64, 65, kWhole}) {
    for (int i = 0; i < kCases; ++i) {
      const auto engine = open(chunk);
      EXPECT_EQ(generate_all(*engine, {greedy(prompt(i), 24)})[0], continuation(i))
          << "chunk " << chunk << " case " << i;
    }
  }
}

TEST_P(FixtureTest, GreedyTokensForAnyNeighbours) {
  for (int32_t chunk : {7, 65, kWhole}) {
    const auto engine = open(chunk);
    std::vector<Request> requests;
    for (int i = 0; i < kCases; ++i) {
      Request noise = greedy(prompt((i + 1) % kCases), 5 + 3 * i);
      noise.sampling.temperature = 1.5f;
      noise.sampling.seed = static_cast<uint64_t>(i);
      requests.push_back(greedy(prompt(i), 24));
      requests.push_back(noise);
    }
    const auto results = generate_all(*engine, std::move(requests));
    for (int i = 0; i < kCases; ++i) {
      EXPECT_EQ(results[static_cast<size_t>(2 * i)], continuation(i))
          << "chunk " << chunk << " case " << i;
    }
  }
}

TEST_P(FixtureTest, SampledTokensDependOnTheSeedOnly) {
  const auto request = [&](uint64_t seed) {
    Request r = greedy(prompt(1), 16);
    r.sampling.temperature = 50;
    r.sampling.top_p = 1;
    r.sampling.seed = seed;
    return r;
  };
  const auto alone = generate_all(*open(kWhole), {request(7)});
  const auto crowd = generate_all(*open(65), {request(1), request(7), request(2), request(7)});
  EXPECT_EQ(crowd[1], alone[0]);
  EXPECT_EQ(crowd[3], alone[0]);
  EXPECT_NE(crowd[0], crowd[2]);
}

INSTANTIATE_TEST_SUITE_P(All, FixtureTest,
                         ::testing::Values("llama-dense", "qwen3-dense", "qwen3_5-awq",
                                           "qwen3_5-ct", "qwen3_5-dense", "qwen3_5-equal-heads",
                                           "qwen3_5-fp8", "qwen3_5-gptq", "qwen3_5-moe",
                                           "qwen3_5-text-tied"),
                         [](const auto& fixture) {
                           std::string name = fixture.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace exode::testing
