#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/weights/writer.h"
#include "weights/checkpoint.h"

namespace exode {
namespace {

using test::safetensors_image;
using testing::HasSubstr;

// Parses a copy of exactly the image's size, so that a sanitizer sees any read past its end.
auto parse(const std::string& image) {
  const auto* data = reinterpret_cast<const std::byte*>(image.data());
  const std::vector<std::byte> bytes(data, data + image.size());
  Result<std::map<std::string, RawTensor>> result = parse_safetensors(bytes, "f.safetensors");
  if (result.ok()) {
    for (auto& [name, tensor] : result.value()) tensor.data = {};  // `bytes` dies here
  }
  return result;
}

TEST(Safetensors, ReadsNamesShapesAndData) {
  const std::string header = R"({"__metadata__":{"format":"pt","a":"b"},)"
                             R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[3,11]},)"
                             R"("scalar\u00e9":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                             R"("empty":{"dtype":"BF16","shape":[0,7],"data_offsets":[11,11]}}   )";
  const std::string image = safetensors_image(header, "\x05..\x01\x02\x03\x04\x05\x06\x07\x08tail");
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(image.data()),
                                         image.size());
  const auto result = parse_safetensors(bytes, "f");
  ASSERT_TRUE(result.ok()) << result.error().message;
  const auto& tensors = result.value();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors.at("a").dtype, FileDType::kF32);
  EXPECT_EQ(tensors.at("a").shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(tensors.at("a").data.size(), 8u);
  EXPECT_EQ(tensors.at("a").data[0], std::byte{1});
  EXPECT_EQ(tensors.at("a").elements(), 2);
  EXPECT_EQ(tensors.at("scalar\xc3\xa9").data[0], std::byte{5});
  EXPECT_EQ(tensors.at("scalar\xc3\xa9").elements(), 1);
  EXPECT_EQ(tensors.at("empty").elements(), 0);
}

TEST(Safetensors, KnowsEveryDType) {
  for (const auto& [name, bytes] : std::map<std::string, size_t>{{"F64", 8},
                                                                 {"F32", 4},
                                                                 {"F16", 2},
                                                                 {"BF16", 2},
                                                                 {"F8_E4M3", 1},
                                                                 {"F8_E5M2", 1},
                                                                 {"I64", 8},
                                                                 {"I32", 4},
                                                                 {"I16", 2},
                                                                 {"I8", 1},
                                                                 {"U8", 1},
                                                                 {"BOOL", 1}}) {
    const std::string header = R"({"x":{"dtype":")" + name + R"(","shape":[1],"data_offsets":[0,)" +
                               std::to_string(bytes) + "]}}";
    const auto result = parse(safetensors_image(header, std::string(bytes, 'x')));
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(file_dtype_name(result.value().at("x").dtype), name);
    EXPECT_EQ(file_dtype_bytes(result.value().at("x").dtype), bytes);
  }
}

std::string tensor(const std::string& fields) { return R"({"x":{)" + fields + "}}"; }

struct Malformed {
  std::string header;
  std::string message;
};

const std::vector<Malformed>& malformed_headers() {
  static const std::vector<Malformed> kCases{
      {"", "header is not a JSON object"},
      {"   ", "header is not a JSON object"},
      {"[1]", "header is not a JSON object"},
      {"3", "header is not a JSON object"},
      {"{\"x\":", "header is not a JSON object"},
      {"{} trailing", "header is not a JSON object"},
      {"{\"\xff\":1}", "header is not a JSON object"},
      {std::string(100000, '['), "header is not a JSON object"},
      {R"({"x":)" + std::string(500, '[') + std::string(500, ']') + "}", "not a JSON object"},
      {R"({"x":5})", "tensor x is not described by an object"},
      {R"({"x":{}})", "tensor x has no dtype"},
      {tensor(R"("dtype":5,"shape":[1],"data_offsets":[0,4])"), "tensor x has no dtype"},
      {tensor(R"("dtype":"F4","shape":[1],"data_offsets":[0,4])"),
       "tensor x has dtype F4, which is not supported"},
      {tensor(R"("dtype":"F32","data_offsets":[0,4])"), "tensor x has no shape"},
      {tensor(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), "tensor x has no shape"},
      {tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), "not a count"},
      {tensor(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), "not a count"},
      {tensor(R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])"), "not a count"},
      {tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])"),
       "not a count"},
      {tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"),
       "more than 8 dimensions"},
      {tensor(R"("dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4])"),
       "impossibly large"},
      {tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
       "impossibly large"},
      {tensor(R"("dtype":"F32","shape":[1])"), "no valid data_offsets"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), "no valid data_offsets"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), "no valid data_offsets"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"), "no valid data_offsets"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[8,4])"), "claims bytes 8…4"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[6,10])"), "may be truncated"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,0])"),
       "may be truncated"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "its shape and dtype need 8"},
      {tensor(R"("dtype":"F32","shape":[0],"data_offsets":[0,4])"), "its shape and dtype need 0"},
      {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("x":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       "tensor x is listed twice"},
      {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("y":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
       "tensors x and y overlap"},
      {R"({"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
       R"("y":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       "tensors x and y overlap"},
  };
  return kCases;
}

TEST(Safetensors, MalformedHeadersAreErrors) {
  for (const Malformed& c : malformed_headers()) {
    const auto result = parse(safetensors_image(c.header, "12345678"));
    SCOPED_TRACE(c.header.substr(0, 80));
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().message, HasSubstr(c.message));
    EXPECT_THAT(result.error().message, HasSubstr("f.safetensors"));
  }
}

TEST(Safetensors, LyingLengthsAreErrors) {
  EXPECT_THAT(parse("").error().message, HasSubstr("0 bytes are too few"));
  EXPECT_THAT(parse("1234567").error().message, HasSubstr("7 bytes are too few"));
  std::string image = safetensors_image("{}", "");
  image[0] = 3;
  EXPECT_THAT(parse(image).error().message, HasSubstr("the file is truncated"));
  image[7] = '\x7f';
  EXPECT_THAT(parse(image).error().message, HasSubstr("not a safetensors file?"));
}

TEST(Safetensors, EveryTruncationIsAnError) {
  test::SafetensorsWriter writer;
  writer.add("a", "F32", {2}, std::vector<float>{1, 2});
  writer.add("b", "U8", {3}, std::vector<uint8_t>{1, 2, 3});
  const std::string image = writer.bytes();
  ASSERT_TRUE(parse(image).ok());
  for (size_t size = 0; size < image.size(); ++size) {
    EXPECT_FALSE(parse(image.substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace exode
