#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/weights/writer.h"

namespace exode {
namespace {

using nlohmann::json;
using test::SafetensorsWriter;
using test::TestFolder;
using testing::HasSubstr;

std::string file_with(const std::vector<std::string>& names, uint8_t value = 1) {
  SafetensorsWriter writer;
  for (const std::string& name : names) {
    writer.add(name, "U8", {1}, std::vector<uint8_t>{value});
  }
  return writer.bytes();
}

std::string index_of(const json& weight_map) {
  return json{{"metadata", json::object()}, {"weight_map", weight_map}}.dump();
}

std::string open_error(const TestFolder& folder) {
  const Result<Checkpoint> result = Checkpoint::open(folder.path());
  return result.ok() ? "opened" : result.error().message;
}

TEST(Checkpoint, SingleFile) {
  const TestFolder folder("single");
  folder.write("config.json", R"({"model_type":"qwen3_5"})");
  folder.write("model.safetensors", file_with({"a", "b"}));
  const Result<Checkpoint> result = Checkpoint::open(folder.path());
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result.value().config().at("model_type"), "qwen3_5");
  EXPECT_EQ(result.value().directory(), folder.path());
  EXPECT_EQ(result.value().tensors().size(), 2u);
  EXPECT_EQ(result.value().file_bytes(), file_with({"a", "b"}).size());
  EXPECT_EQ(result.value().find("c"), nullptr);
  ASSERT_NE(result.value().find("a"), nullptr);
  EXPECT_EQ(result.value().find("a")->data[0], std::byte{1});
}

TEST(Checkpoint, SeveralFilesWithoutIndex) {
  const TestFolder folder("no_index");
  folder.write("config.json", "{}");
  folder.write("x-1.safetensors", file_with({"a"}));
  folder.write("x-2.safetensors", file_with({"b"}));
  const Result<Checkpoint> result = Checkpoint::open(folder.path());
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result.value().tensors().size(), 2u);

  folder.write("x-3.safetensors", file_with({"a"}));
  EXPECT_THAT(open_error(folder),
              HasSubstr("tensor a is in both x-1.safetensors and x-3.safetensors"));
}

TEST(Checkpoint, IndexPicksTheShardAndExtraTensorsAreAdded) {
  const TestFolder folder("index");
  folder.write("config.json", "{}");
  folder.write("s1.safetensors", file_with({"a"}, 1));
  folder.write("s2.safetensors", file_with({"a", "b"}, 2));  // a stale copy of a
  folder.write("stray.safetensors", file_with({"a"}, 3));    // not in the index: not read
  folder.write("model_extra_tensors.safetensors", file_with({"mtp.fc.weight"}, 4));
  folder.write("model.safetensors.index.json",
               index_of({{"a", "s1.safetensors"}, {"b", "s2.safetensors"}}));
  const Result<Checkpoint> result = Checkpoint::open(folder.path());
  ASSERT_TRUE(result.ok()) << result.error().message;
  const Checkpoint& checkpoint = result.value();
  EXPECT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(checkpoint.find("a")->data[0], std::byte{1});
  EXPECT_EQ(checkpoint.find("b")->data[0], std::byte{2});
  EXPECT_EQ(checkpoint.find("mtp.fc.weight")->data[0], std::byte{4});
}

TEST(Checkpoint, MissingShardOrTensorIsNamed) {
  const TestFolder folder("missing");
  folder.write("config.json", "{}");
  folder.write("s1.safetensors", file_with({"a"}));
  folder.write("model.safetensors.index.json",
               index_of({{"a", "s1.safetensors"}, {"b", "s2.safetensors"}}));
  EXPECT_THAT(open_error(folder), HasSubstr("shard s2.safetensors of the index is missing"));
  folder.write("s2.safetensors", file_with({"c"}));
  EXPECT_THAT(open_error(folder), HasSubstr("tensor b in s2.safetensors, which does not hold it"));
}

TEST(Checkpoint, IndexCannotLeaveTheFolder) {
  for (const std::string& name :
       {std::string("../s.safetensors"), std::string("/etc/passwd"),
        std::string("sub/s.safetensors"), std::string(".."), std::string("."), std::string(),
        std::string("a\\b"), std::string("a\0b", 3)}) {
    const TestFolder folder("escape");
    folder.write("config.json", "{}");
    folder.write("s.safetensors", file_with({"a"}));
    folder.write("model.safetensors.index.json", index_of({{"a", name}}));
    EXPECT_THAT(open_error(folder), HasSubstr("not a file name of this folder")) << name;
  }
}

TEST(Checkpoint, BadIndexes) {
  for (const auto& [text, message] : std::map<std::string, std::string>{
           {"[]", "not a JSON object"},
           {"{\"weight_map\":", "not a JSON object"},
           {"{}", "has no weight_map object"},
           {R"({"weight_map":[]})", "has no weight_map object"},
           {R"({"weight_map":{"a":5}})", "the file of tensor a is not a string"}}) {
    const TestFolder folder("bad_index");
    folder.write("config.json", "{}");
    folder.write("s.safetensors", file_with({"a"}));
    folder.write("model.safetensors.index.json", text);
    EXPECT_THAT(open_error(folder), HasSubstr(message)) << text;
  }
}

TEST(Checkpoint, BadConfigs) {
  for (const auto& [text, message] : std::map<std::string, std::string>{
           {"", "not a JSON object"},
           {"[]", "not a JSON object"},
           {"{\"a\":}", "not a JSON object"},
           {"{\"a\":" + std::string(5000, '[') + std::string(5000, ']') + "}", "nested deeper"},
           {std::string(1000000, '['), "nested deeper"}}) {
    const TestFolder folder("bad_config");
    folder.write("config.json", text);
    folder.write("s.safetensors", file_with({"a"}));
    EXPECT_THAT(open_error(folder), HasSubstr(message)) << text.substr(0, 40);
  }
}

TEST(Checkpoint, OtherFoldersGetAdvice) {
  const Result<Checkpoint> absent = Checkpoint::open("/nonexistent/model");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("/nonexistent/model: cannot read"));

  const TestFolder gguf("gguf");
  gguf.write("model.gguf", "GGUF");
  EXPECT_THAT(open_error(gguf), HasSubstr("no config.json. It holds GGUF files"));

  const TestFolder bin("bin");
  bin.write("config.json", "{}");
  bin.write("pytorch_model.bin", "x");
  EXPECT_THAT(open_error(bin), HasSubstr("no .safetensors files. It holds PyTorch .bin files"));
  EXPECT_THAT(open_error(bin), HasSubstr("Give a Hugging Face folder"));
}

TEST(Checkpoint, BrokenShardIsNamed) {
  const TestFolder folder("broken");
  folder.write("config.json", "{}");
  folder.write("model.safetensors", "short");
  EXPECT_THAT(open_error(folder), HasSubstr("model.safetensors: 5 bytes are too few"));
}

}  // namespace
}  // namespace exode
