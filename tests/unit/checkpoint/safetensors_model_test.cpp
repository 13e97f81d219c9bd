// Models stored in one file and in several.
#include "checkpoint/safetensors_model.h"

#include <gtest/gtest.h>

#include "support/safetensors_file.h"
#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

// A file with one tensor: eight bytes of text as two I32.
void write_tensor(const std::string& path, const std::string& name, std::string_view text) {
  const std::vector<TensorSpec> specs = {{name, "I32", {2}}};
  write_safetensors(path, specs, text);
}

// The eight bytes of a tensor.
std::string text_of(const SafetensorsModel& model, const std::string& name) {
  std::string text(8, ' ');
  model.read(name, 0, std::as_writable_bytes(std::span(text)));
  return text;
}

void expect_index_error(const std::string& message, const std::string& index) {
  const TempFolder folder;
  write_tensor(folder / "one", "a", "aaaaaaaa");
  folder.write(kIndex, index);
  expect_user_error(ExitCode::InputFile, cat(folder / kIndex, message),
                    [&] { SafetensorsModel::open(folder.path()); });
}

TEST(SafetensorsModel, SingleFileByFolderOrByName) {
  const TempFolder folder;
  write_tensor(folder / "model.safetensors", "a", "12345678");
  for (const std::string& path : {folder.path(), folder / "model.safetensors"}) {
    const auto model = SafetensorsModel::open(path);
    EXPECT_EQ(model.names(), std::vector<std::string>{"a"});
    EXPECT_EQ(text_of(model, "a"), "12345678");
    EXPECT_EQ(model.find("b"), nullptr);
    expect_user_error(ExitCode::InputFile, cat(path, ": tensor \"b\" is missing"),
                      [&] { text_of(model, "b"); });
  }
}

TEST(SafetensorsModel, FindsTensorsAcrossFiles) {
  const TempFolder folder;
  write_tensor(folder / "one", "a", "aaaaaaaa");
  write_tensor(folder / "two", "b", "bbbbbbbb");
  write_tensor(folder / "three", "c", "cccccccc");
  folder.write(kIndex,
               R"({"metadata":{"total_size":24},"weight_map":{"a":"one","b":"two","c":"three"}})");
  const auto model = SafetensorsModel::open(folder.path());
  EXPECT_EQ(model.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(text_of(model, "a"), "aaaaaaaa");
  EXPECT_EQ(text_of(model, "b"), "bbbbbbbb");
  EXPECT_EQ(model.find("c")->name, "c");
}

TEST(SafetensorsModel, FolderWithoutWeights) {
  const TempFolder folder;
  expect_user_error(
      ExitCode::InputFile,
      cat(folder.path(), ": holds neither model.safetensors nor model.safetensors.index.json"),
      [&] { SafetensorsModel::open(folder.path()); });
}

TEST(SafetensorsModel, BadIndex) {
  expect_index_error(": \"weight_map\" is missing", "{}");
  expect_index_error(": \"weight_map\" is an array, expected an object", R"({"weight_map":[]})");
  expect_index_error(": the file of \"a\" is a number, expected a string",
                     R"({"weight_map":{"a":1}})");
  for (const std::string name : {"", ".", "..", "../one", "/one", "a/b"}) {
    expect_index_error(cat(": the file of \"a\" is \"", name, "\", expected a plain file name"),
                       cat("{\"weight_map\":{\"a\":\"", name, "\"}}"));
  }
  expect_index_error(": places \"b\" in \"one\", which does not hold it",
                     R"({"weight_map":{"b":"one"}})");
}

TEST(SafetensorsModel, MissingShard) {
  const TempFolder folder;
  folder.write(kIndex, R"({"weight_map":{"a":"one"}})");
  expect_user_error(ExitCode::InputFile,
                    cat(folder / "one", ": cannot open the file: No such file or directory"),
                    [&] { SafetensorsModel::open(folder.path()); });
}

}  // namespace
}  // namespace weft
