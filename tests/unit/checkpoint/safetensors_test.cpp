// The reader: tensors are read as stored, and every violated rule has its own message.
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

std::string length_bytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i));
  return bytes;
}

// A file with this header text and this many bytes of data.
std::string file_of(const std::string& header, size_t data_size) {
  std::string file = length_bytes(header.size()) + header;
  for (size_t i = 0; i < data_size; ++i) file += static_cast<char>('a' + i);
  return file;
}

SafetensorsHeader parse(const std::string& file) {
  const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
  const auto size = static_cast<int64_t>(file.size());
  const int64_t length = safetensors_header_length(bytes, size, "x");
  return parse_safetensors_header(std::string_view(file).substr(8, static_cast<size_t>(length)),
                                  size, "x");
}

void expect_error(const std::string& message, const std::string& file) {
  expect_user_error(ExitCode::InputFile, message, [&] { parse(file); });
}

// A header with one tensor "a".
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return cat("{\"a\":{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":", offsets,
             "}}");
}

std::string text_of(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

TEST(Safetensors, ReadsTensorsInDataOrder) {
  const TempFolder folder;
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("a":{"dtype":"F32","shape":[2],"data_offsets":[3,11]},)"
                             R"("b":{"dtype":"U8","shape":[3,1],"data_offsets":[0,3]},)"
                             R"("none":{"dtype":"F32","shape":[0,4],"data_offsets":[3,3]},)"
                             R"("scalar":{"dtype":"BF16","shape":[],"data_offsets":[11,13]}}   )";
  const auto file = SafetensorsFile::open(folder.write("m.safetensors", file_of(header, 13)));
  ASSERT_EQ(file.entries().size(), 4u);
  EXPECT_EQ(file.entries()[0].name, "b");
  EXPECT_EQ(file.entries()[0].shape, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(file.entries()[3].dtype, "BF16");
  EXPECT_EQ(text_of(file.bytes("b")), "abc");
  EXPECT_EQ(text_of(file.bytes("a")), "defghijk");
  EXPECT_EQ(text_of(file.bytes("none")), "");
  EXPECT_EQ(text_of(file.bytes("scalar")), "lm");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.find("c"), nullptr);
  expect_user_error(ExitCode::InputFile, cat(folder / "m.safetensors", ": tensor \"c\" is missing"),
                    [&] { file.bytes("c"); });
}

TEST(Safetensors, EmptyHeaderIsAFileWithoutTensors) {
  EXPECT_TRUE(parse(file_of("{}", 0)).entries.empty());
}

TEST(Safetensors, SubByteTypesCountBits) {
  EXPECT_EQ(parse(file_of(one("F4", "[3,2]", "[0,3]"), 3)).entries.size(), 1u);
  EXPECT_EQ(parse(file_of(one("F6_E2M3", "[4]", "[0,3]"), 3)).entries.size(), 1u);
  expect_error("x: tensor \"a\": F4[3] is not a whole number of bytes below 2^60",
               file_of(one("F4", "[3]", "[0,2]"), 2));
}

TEST(Safetensors, BadLength) {
  expect_error("x: file has 7 bytes, too short for a safetensors file", "1234567");
  expect_error(
      "x: header claims 100000001 bytes, expected at most 100000000; this is not a safetensors "
      "file",
      length_bytes(100'000'001) + "{}");
  expect_error(
      "x: header claims 18446744073709551615 bytes, expected at most 100000000; this is not a "
      "safetensors file",
      length_bytes(~uint64_t{0}) + "{}");
  expect_error(
      "x: header claims 3 bytes, only 2 follow; the file is truncated or not a safetensors file",
      length_bytes(3) + "{}");
  expect_error("x: header does not start with '{'; this is not a safetensors file",
               file_of(" {}", 0));
  expect_error("x: header does not start with '{'; this is not a safetensors file", file_of("", 0));
}

TEST(Safetensors, BadJson) {
  expect_error("x: header:1: malformed JSON at byte 1", file_of("{", 0));
  expect_error("x: header:1: malformed JSON at byte 4", file_of("{} {}", 0));
  expect_error("x: header:1: duplicate key \"a\"", file_of("{\"a\":1,\"a\":2}", 0));
}

TEST(Safetensors, BadEntry) {
  expect_error("x: tensor \"a\": found a number, expected an object with \"dtype\"",
               file_of("{\"a\":1}", 0));
  expect_error("x: tensor \"a\": \"dtype\" is missing", file_of("{\"a\":{}}", 0));
  expect_error("x: tensor \"a\": unknown dtype \"F33\"", file_of(one("F33", "[1]", "[0,4]"), 4));
  expect_error("x: tensor \"a\": \"shape\" is a number, expected an array of whole numbers",
               file_of(one("F32", "1", "[0,4]"), 4));
  expect_error("x: tensor \"a\": \"shape\" holds -1, expected whole numbers of 0 or more",
               file_of(one("F32", "[-1]", "[0,4]"), 4));
  expect_error("x: tensor \"a\": \"shape\" holds 1.0, expected whole numbers of 0 or more",
               file_of(one("F32", "[1.0]", "[0,4]"), 4));
  expect_error("x: tensor \"a\": \"shape\" holds an array, expected whole numbers of 0 or more",
               file_of(one("F32", "[[1]]", "[0,4]"), 4));
  expect_error(
      "x: tensor \"a\": \"data_offsets\" holds 18446744073709551615, expected whole numbers of 0 "
      "or more",
      file_of(one("F32", "[1]", "[0,18446744073709551615]"), 4));
  expect_error("x: tensor \"a\": \"data_offsets\" has 3 numbers, expected 2",
               file_of(one("F32", "[1]", "[0,4,8]"), 4));
}

TEST(Safetensors, BadExtent) {
  expect_error("x: tensor \"a\": \"data_offsets\" run backwards, from 4 to 0",
               file_of(one("F32", "[1]", "[4,0]"), 4));
  expect_error("x: tensor \"a\": ends at byte 8 of the data, which has 7; the file is truncated",
               file_of(one("F32", "[2]", "[0,8]"), 7));
  expect_error("x: tensor \"a\": F32[2,3] needs 24 bytes, \"data_offsets\" give 4",
               file_of(one("F32", "[2,3]", "[0,4]"), 4));
  const std::string huge = "[4611686018427387904,4,0]";
  expect_error(cat("x: tensor \"a\": F32", huge, " is not a whole number of bytes below 2^60"),
               file_of(one("F32", huge, "[0,4]"), 4));
  expect_error("x: tensor \"a\": U8[1,1,1,1,1,1,1,1,...] needs 1 bytes, \"data_offsets\" give 4",
               file_of(one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4));
}

TEST(Safetensors, TensorsMustTileTheData) {
  const auto two = [](const std::string& first, const std::string& second) {
    return cat("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":", first,
               "},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":", second, "}}");
  };
  EXPECT_EQ(parse(file_of(two("[4,8]", "[0,4]"), 8)).entries.size(), 2u);
  expect_error("x: tensors \"a\" and \"b\" overlap", file_of(two("[0,4]", "[3,7]"), 7));
  expect_error("x: bytes 4 to 5 of the data belong to no tensor",
               file_of(two("[0,4]", "[5,9]"), 9));
  expect_error("x: bytes 0 to 1 of the data belong to no tensor",
               file_of(two("[1,5]", "[5,9]"), 9));
  expect_error("x: bytes 8 to 9 of the data belong to no tensor",
               file_of(two("[0,4]", "[4,8]"), 9));
}

TEST(Safetensors, BadMetadata) {
  expect_error("x: \"__metadata__\" is an array, expected an object",
               file_of("{\"__metadata__\":[]}", 0));
  expect_error("x: \"__metadata__\": \"a\" is a number, expected a string",
               file_of("{\"__metadata__\":{\"a\":1}}", 0));
}

}  // namespace
}  // namespace weft
