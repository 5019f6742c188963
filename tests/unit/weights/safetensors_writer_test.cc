#include "weights/safetensors_writer.h"

#include <gtest/gtest.h>

#include "unit/weights/writer.h"

namespace exode {
namespace {

TEST(SafetensorsWriter, FilesCanBeReadBack) {
  const test::TestFolder folder("writer");
  folder.write("config.json", "{}");
  const std::vector<float> values{1, -2, 3, 4, 5, 6};
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(
      folder.path() + "/out.safetensors", "logits \"1\"", FileDType::kF32, {3, 2});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_TRUE(writer.value().append(bytes.first(8)).ok());
  EXPECT_TRUE(writer.value().append(bytes.subspan(8)).ok());
  ASSERT_TRUE(writer.value().finish().ok());

  const Result<Checkpoint> read = Checkpoint::open(folder.path());
  ASSERT_TRUE(read.ok()) << read.error().message;
  const RawTensor* tensor = read.value().find("logits \"1\"");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, FileDType::kF32);
  EXPECT_EQ(tensor->shape, (std::vector<int64_t>{3, 2}));
  EXPECT_TRUE(std::equal(tensor->data.begin(), tensor->data.end(), bytes.begin(), bytes.end()));
}

TEST(SafetensorsWriter, UnwritablePathIsAnError) {
  const auto writer =
      SafetensorsWriter::create("/nonexistent/out.safetensors", "x", FileDType::kU8, {1});
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace exode
