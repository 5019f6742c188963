// Configs that lie: every contradiction is an error that names the field.
#include <gtest/gtest.h>

#include <cmath>

#include "model/config_reader.h"
#include "model/registry.h"
#include "model/rope.h"

namespace exode {
namespace {

using nlohmann::json;

TEST(ConfigReader, NamesTheFieldThatIsWrong) {
  const json j = {{"a", "x"}, {"b", 5}, {"big", 99999999999}, {"f", 1.5}};
  const auto message = [&](auto&& read) {
    ConfigReader r(j, "text_config");
    read(r);
    return r.status().ok() ? std::string() : r.status().error().message;
  };
  EXPECT_NE(message([](auto& r) { r.integer("a", 0, 9); }).find("text_config.a"),
            std::string::npos);
  EXPECT_NE(message([](auto& r) { r.integer("b", 0, 4); }).find("outside"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.integer("missing", 0, 4); }).find("missing"),
            std::string::npos);
  EXPECT_NE(message([](auto& r) { r.integer("big", 0, 100); }).find("big"), std::string::npos);
  EXPECT_NE(message([](auto& r) { r.integer("f", 0, 100); }).find("integer"), std::string::npos);
  EXPECT_EQ(message([](auto& r) { r.integer("b", 0, 9); }), "");
  EXPECT_NE(message([](auto& r) { r.require_string("a", {"silu"}); }).find("silu"),
            std::string::npos);
}

TEST(Rope, DefaultFrequenciesAndPartialWidth) {
  const auto rope = parse_rope(json::object(), 256, 1e7, 0.25).value();
  EXPECT_EQ(rope.rotary_dim, 64);
  EXPECT_FLOAT_EQ(rope.inv_freq[0], 1.0f);
  EXPECT_NEAR(rope.inv_freq[31], std::pow(1e7, -62.0 / 64), 1e-12);
}

TEST(Rope, NestedFieldsWinOverFlatOnes) {
  const json config = {{"rope_theta", 5.0}, {"rope_parameters", {{"rope_theta", 100.0}}}};
  EXPECT_NEAR(parse_rope(config, 4, 1e4, 1).value().inv_freq[1], 0.1, 1e-7);
}

TEST(Rope, Llama3StretchesLongWavelengthsOnly) {
  const json config = {{"rope_parameters",
                        {{"rope_type", "llama3"},
                         {"rope_theta", 500000.0},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 512}}}};
  const auto rope = parse_rope(config, 64, 1e4, 1).value();
  EXPECT_FLOAT_EQ(rope.inv_freq[0], 1.0f);
  EXPECT_NEAR(rope.inv_freq[31], std::pow(5e5, -62.0 / 64) / 8, 1e-9);
}

TEST(Rope, UnknownTypeIsRefused) {
  const json config = {{"rope_parameters", {{"rope_type", "dynamic-ntk"}}}};
  const auto rope = parse_rope(config, 64, 1e4, 1);
  ASSERT_FALSE(rope.ok());
  EXPECT_NE(rope.error().message.find("llama3"), std::string::npos);
}

TEST(Registry, EveryArchitectureHasAName) {
  EXPECT_GE(architectures().size(), 6u);
  EXPECT_TRUE(is_skipped_tensor("mtp.fc.weight"));
  EXPECT_FALSE(is_skipped_tensor("model.norm.weight"));
}

}  // namespace
}  // namespace exode
