// The trained demo model: the committed int4 folder, and the bf16 original where it is at hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "golden/reference.h"
#include "text/tokenizer.h"

namespace exode::testing {
namespace {

const std::string kBf16 = std::string(EXODE_SHARED_DIR) + "/models/mini-bf16";
const std::string kInt4 = std::string(EXODE_SOURCE_DIR) + "/models/exode-demo-int4";
const std::string kGolden = std::string(EXODE_SOURCE_DIR) + "/tests/golden/demo";

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return nlohmann::json::parse(file);
}

TEST(DemoBf16, LogitsAndGreedyTokensEqualTheReference) {
  if (!std::filesystem::exists(kBf16)) GTEST_SKIP() << kBf16 << " is not on this machine";
  const Reference reference(kBf16 + "/reference.safetensors");
  for (int i = 0; reference.has(fmt::format("case{}.input_ids", i)); ++i) {
    EngineConfig config = engine_config(kBf16, 64);
    const auto engine = Engine::create(config).value();
    const std::vector<TokenId> prompt = reference.ids(fmt::format("case{}.input_ids", i));
    const std::vector<float> logits = all_logits(*engine, prompt);
    const std::vector<float> expected = reference.floats(fmt::format("case{}.logits", i));
    ASSERT_EQ(logits.size(), expected.size());
    float worst = 0;
    for (size_t k = 0; k < logits.size(); ++k)
      worst = std::max(worst, std::fabs(logits[k] - expected[k]));
    EXPECT_LE(worst, 2e-3f) << "case " << i;
    EXPECT_EQ(generate_all(*engine, {greedy(prompt, 96)})[0],
              reference.ids(fmt::format("case{}.greedy_ids", i)))
        << "case " << i;
  }
}

TEST(DemoBf16, PromptsTokeniseAsTheReferenceDid) {
  if (!std::filesystem::exists(kBf16)) GTEST_SKIP() << kBf16 << " is not on this machine";
  const Reference reference(kBf16 + "/reference.safetensors");
  const auto tokenizer = text::Tokenizer::load(kBf16).value();
  const nlohmann::json prompts = read_json(kBf16 + "/reference_prompts.json");
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(tokenizer.encode(prompts[i].get<std::string>(), {}),
              reference.ids(fmt::format("case{}.input_ids", i)));
  }
}

TEST(DemoInt4, LogitsEqualTheReferenceOfTheDequantisedWeights) {
  const nlohmann::json golden = read_json(kGolden + "/logits.json");
  const auto engine = Engine::create(engine_config(kInt4, 512)).value();
  const std::vector<float> logits =
      all_logits(*engine, golden["input_ids"].get<std::vector<TokenId>>());
  const auto vocab = static_cast<size_t>(engine->facts().vocab);
  const nlohmann::json& ids = golden["top_ids"];
  for (size_t row = 0; row < ids.size(); ++row) {
    for (size_t k = 0; k < ids[row].size(); ++k) {
      EXPECT_NEAR(logits[row * vocab + ids[row][k].get<size_t>()],
                  golden["top_logits"][row][k].get<float>(), 2e-3f);
    }
  }
}

TEST(DemoInt4, GreedyTokensEqualTheReference) {
  const nlohmann::json golden = read_json(kGolden + "/greedy.json");
  ASSERT_FALSE(golden["cases"].empty());
  for (const nlohmann::json& c : golden["cases"]) {
    const auto engine = Engine::create(engine_config(kInt4, 64)).value();
    const auto expected = c["greedy_ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(generate_all(*engine, {greedy(c["input_ids"].get<std::vector<TokenId>>(),
                                            static_cast<int32_t>(expected.size()))})[0],
              expected)
        << c["prompt"];
  }
}

}  // namespace
}  // namespace exode::testing
