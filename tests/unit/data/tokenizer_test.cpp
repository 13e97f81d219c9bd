// Tokenizers: encode, decode, JSON and identity.
#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "data/tokenizer_json.h"
#include "support/temp_folder.h"
#include "support/tiny_bpe.h"
#include "support/user_error.h"

namespace weft {
namespace {

using Ids = std::vector<int32_t>;

Tokenizer abc() {
  return Tokenizer::characters({U'\n', U'a', U'b', U'\u00e9', U'\U0001f600'});
}

void expect_json_error(const std::string& message, const std::string& json) {
  expect_user_error(ExitCode::InputFile, message,
                    [&] { Tokenizer::from_json(parse_json(json, "x"), "x"); });
}

TEST(Tokenizer, CharactersHaveTheirRankAsId) {
  const Tokenizer tokenizer = abc();
  EXPECT_EQ(tokenizer.vocab_size(), 5);
  EXPECT_EQ(tokenizer.encode("ba\n\xc3\xa9\xf0\x9f\x98\x80", "x"), (Ids{2, 1, 0, 3, 4}));
  EXPECT_EQ(tokenizer.decode(Ids{2, 1, 0, 3, 4}), "ba\n\xc3\xa9\xf0\x9f\x98\x80");
}

TEST(Tokenizer, BytesAreTheirOwnIds) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  EXPECT_EQ(tokenizer.encode("a\xff", "x"), (Ids{97, 255}));
  EXPECT_EQ(tokenizer.decode(Ids{97, 255}), "a\xff");
}

TEST(Tokenizer, IdsBeyondTheVocabularyShowAsReplacement) {
  EXPECT_EQ(abc().decode(Ids{1, 5, -1}), "a\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(Tokenizer::bytes().decode(Ids{256}), "\xef\xbf\xbd");
}

TEST(Tokenizer, BadTextNamesTheByte) {
  expect_user_error(ExitCode::InputFile, "prompt: invalid UTF-8 at byte 1",
                    [] { abc().encode("a\xff", "prompt"); });
  expect_user_error(ExitCode::InputFile,
                    "prompt: character U+0063 at byte 2 is not in the vocabulary",
                    [] { abc().encode("abc", "prompt"); });
  expect_user_error(ExitCode::InputFile,
                    "prompt: character U+1F601 at byte 0 is not in the vocabulary",
                    [] { abc().encode("\xf0\x9f\x98\x81", "prompt"); });
}

TEST(Tokenizer, KindsHaveNames) {
  EXPECT_EQ(tokenizer_kind("char"), TokenizerKind::Char);
  EXPECT_EQ(tokenizer_kind("byte"), TokenizerKind::Byte);
  EXPECT_EQ(tokenizer_kind("bpe"), TokenizerKind::Bpe);
  EXPECT_EQ(tokenizer_kind("word"), std::nullopt);
}

TEST(Tokenizer, IdentityTellsVocabulariesApart) {
  EXPECT_EQ(Tokenizer::bytes().identity(), "byte, 256 ids, 6828a99c1e3216ff");
  EXPECT_NE(abc().hash(), Tokenizer::characters({U'a', U'b'}).hash());
  EXPECT_EQ(abc().hash(), abc().hash());
}

TEST(Tokenizer, JsonRoundTrips) {
  for (const Tokenizer& tokenizer : {abc(), Tokenizer::bytes()}) {
    const Tokenizer again = Tokenizer::from_json(parse_json(tokenizer.to_json().dump(), "x"), "x");
    EXPECT_EQ(again.kind(), tokenizer.kind());
    EXPECT_EQ(again.identity(), tokenizer.identity());
    EXPECT_EQ(again.encode("ab\n", "x"), tokenizer.encode("ab\n", "x"));
  }
}

// The file for Hugging Face is the one that Weft reads back.
TEST(Tokenizer, FilesRoundTrip) {
  const Tokenizer merges =
      Tokenizer::bpe(bpe_from_json(tokenizer_json_text(tiny_bpe_parts()), "t"));
  for (const Tokenizer& tokenizer : {abc(), Tokenizer::bytes(), merges}) {
    const Tokenizer again = Tokenizer::from_file_text(tokenizer.file_text(), "t");
    EXPECT_EQ(again.kind(), tokenizer.kind());
    EXPECT_EQ(again.identity(), tokenizer.identity());
    EXPECT_EQ(again.file_text(), tokenizer.file_text());
  }
}

TEST(Tokenizer, AFileNextToWeightsTakesPrecedence) {
  const TempFolder folder;
  folder.write("weft_tokenizer.json", Tokenizer::bytes().to_json().dump());
  EXPECT_EQ(Tokenizer::open(folder.path()).identity(), Tokenizer::bytes().identity());
  folder.write("tokenizer.json", abc().file_text());
  EXPECT_EQ(Tokenizer::open(folder.path()).identity(), abc().identity());
}

TEST(Tokenizer, OtherModelsOfWordsAreRefused) {
  const auto expect_refused = [](const std::string& message, const nlohmann::json& file) {
    expect_user_error(ExitCode::InputFile, message,
                      [&] { Tokenizer::from_file_text(file.dump(), "t"); });
  };
  const nlohmann::json file = nlohmann::json::parse(abc().file_text());
  nlohmann::json words = file;
  words["model"]["vocab"]["ab"] = 5;
  expect_refused(
      "t: token \"ab\" of a \"WordLevel\" model is more than one character, expected one", words);
  const std::string other =
      "t: model \"WordLevel\" has ids or parts that a character tokenizer does not have, expected "
      "one as Weft writes it";
  nlohmann::json swapped = file;
  swapped["model"]["vocab"]["a"] = 2;
  swapped["model"]["vocab"]["b"] = 1;
  expect_refused(other, swapped);
  nlohmann::json lower = file;
  lower["normalizer"] = {{"type", "Lowercase"}};
  expect_refused(other, lower);
}

TEST(Tokenizer, BadJson) {
  expect_json_error("x: \"kind\" is missing", "{}");
  expect_json_error("x: tokenizer \"bpe\" is unknown, expected char or byte", R"({"kind":"bpe"})");
  expect_json_error("x: \"vocab\" is missing", R"({"kind":"char","hash":""})");
  expect_json_error("x: \"vocab\" is empty", R"({"kind":"char","vocab":"","hash":""})");
  expect_json_error("x: \"vocab\" is not in order at U+0061, expected rising code points",
                    R"({"kind":"char","vocab":"ba","hash":""})");
  expect_json_error("x: \"vocab\" is not in order at U+0061, expected rising code points",
                    R"({"kind":"char","vocab":"aa","hash":""})");
  expect_json_error("x: tokenizer hash is \"0\", expected \"6828a99c1e3216ff\" for this vocabulary",
                    R"({"kind":"byte","hash":"0"})");
}

}  // namespace
}  // namespace weft
