// Where tensors lie: exact bytes of the header, and how files are split.
#include "checkpoint/tensor_layout.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "support/safetensors_file.h"
#include "support/temp_folder.h"

namespace weft {
namespace {

TEST(TensorLayout, ExactHeader) {
  const std::vector<TensorSpec> specs = {{"w\"x", "F32", {1, 2}}, {"s", "BF16", {}}};
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("w\"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                       R"("s":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string length = {static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(safetensors_header(specs), length + header);
}

TEST(TensorLayout, ReadsBack) {
  const TempFolder folder;
  const std::vector<TensorSpec> specs = {{"c", "I64", {1}},
                                         {"e", "F32", {0, 7}},
                                         {"d", "I32", {1}},
                                         {"a", "BF16", {1}},
                                         {"b", "F16", {3}}};
  write_safetensors(folder / "m", specs, "ccccccccddddaabbbbbb");
  const auto file = SafetensorsFile::open(folder / "m");
  for (const char* name : {"a", "b", "c", "d"}) {
    for (const std::byte byte : file.bytes(name)) EXPECT_EQ(static_cast<char>(byte), name[0]);
  }
  EXPECT_EQ(file.find("e")->shape, (std::vector<int64_t>{0, 7}));
}

TEST(TensorLayout, RefusesWhatItCannotWrite) {
  const std::vector<TensorSpec> unknown = {{"a", "F8_E4M3", {2}}};
  const std::vector<TensorSpec> twice = {{"a", "F32", {}}, {"a", "F32", {}}};
  EXPECT_THROW(safetensors_header(unknown), InternalError);
  EXPECT_THROW(safetensors_header(twice), InternalError);
}

TEST(TensorLayout, OneFile) {
  const std::vector<TensorSpec> specs = {{"a", "F32", {2}}, {"b", "F32", {3}}};
  const TensorLayout layout = lay_out("model", specs, 20);
  ASSERT_EQ(layout.files.size(), 1u);
  EXPECT_EQ(layout.files[0].name, "model.safetensors");
  const auto data = static_cast<int64_t>(layout.files[0].header.size());
  EXPECT_EQ(layout.files[0].bytes, data + 20);
  EXPECT_EQ(layout.places[0].offset, data);
  EXPECT_EQ(layout.places[1].offset, data + 8);
  EXPECT_EQ(layout.index_name, "");
}

// The second file is full; a tensor above the limit has a file of its own.
TEST(TensorLayout, SeveralFilesWithAnIndex) {
  const std::vector<TensorSpec> specs = {
      {"a", "F32", {10}}, {"b", "F32", {2}}, {"c", "F32", {3}}, {"d", "F32", {1}}};
  const TensorLayout layout = lay_out("model", specs, 20);
  ASSERT_EQ(layout.files.size(), 3u);
  EXPECT_EQ(layout.files[1].name, "model-00002-of-00003.safetensors");
  std::vector<size_t> files;
  for (const TensorPlace& place : layout.places) files.push_back(place.file);
  EXPECT_EQ(files, (std::vector<size_t>{0, 1, 1, 2}));
  EXPECT_EQ(layout.index_name, "model.safetensors.index.json");
  const auto index = nlohmann::json::parse(layout.index_text);
  EXPECT_EQ(index.at("metadata").at("total_size"), 64);
  EXPECT_EQ(index.at("weight_map").at("c"), "model-00002-of-00003.safetensors");
}

}  // namespace
}  // namespace weft
