// Token files in all three layouts, with and without their JSON files.
#include "data/token_file.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "support/token_bytes.h"
#include "support/user_error.h"

namespace weft {
namespace {

void expect_open_error(const std::string& message, const std::string& bytes) {
  const TempFolder folder;
  const std::string path = folder.write("t.bin", bytes);
  expect_user_error(ExitCode::InputFile, cat(path, message), [&] { TokenFile::open(path); });
}

void expect_info_error(const std::string& message, const std::string& text) {
  expect_user_error(ExitCode::InputFile, message, [&] { parse_token_info(text, "x"); });
}

TEST(TokenFile, NanoGptIsHeaderless) {
  const TempFolder folder;
  const auto file = TokenFile::open(folder.write("t.bin", raw<uint16_t>({5, 65535, 7})));
  EXPECT_EQ(file.size(), 3);
  EXPECT_EQ(file.at(0), 5);
  EXPECT_EQ(file.at(1), 65535);
  EXPECT_EQ(file.at(2), 7);
  EXPECT_FALSE(file.vocab_size());
  EXPECT_EQ(file.max_token().position, 1);
  EXPECT_EQ(file.max_token().token, 65535);
  EXPECT_THROW(file.at(3), InternalError);
}

TEST(TokenFile, LlmCHeaders) {
  const TempFolder folder;
  const auto narrow =
      TokenFile::open(folder.write("a.bin", header(20240520, 1, 2) + raw<uint16_t>({50256, 3})));
  EXPECT_EQ(narrow.size(), 2);
  EXPECT_EQ(narrow.at(0), 50256);
  const auto wide =
      TokenFile::open(folder.write("b.bin", header(20240801, 7, 2) + raw<uint32_t>({3, 128000})));
  EXPECT_EQ(wide.size(), 2);
  EXPECT_EQ(wide.at(1), 128000);
  EXPECT_EQ(wide.max_token().position, 1);
}

TEST(TokenFile, BadFiles) {
  expect_open_error(": file has 3 bytes, expected an even number for 16-bit tokens", "abc");
  expect_open_error(": file is empty", "");
  expect_open_error(": file has 1020 bytes, too short for its header of 1024",
                    header(20240520, 1, 0).substr(0, 1020));
  expect_open_error(": header 20240520 has version 2, expected 1", header(20240520, 2, 0));
  expect_open_error(": header 20240801 has version 1, expected 7", header(20240801, 1, 0));
  expect_open_error(": header claims 3 tokens of 2 bytes, the file holds 4 bytes of them",
                    header(20240520, 1, 3) + "abcd");
  expect_open_error(": header claims 1 tokens of 4 bytes, the file holds 8 bytes of them",
                    header(20240801, 7, 1) + "abcdefgh");
  expect_open_error(": header claims -1 tokens of 2 bytes, the file holds 0 bytes of them",
                    header(20240520, 1, -1));
}

TEST(TokenFile, TheJsonNextToItGivesTheTokenizer) {
  const TempFolder folder;
  // These two tokens look like a magic number; the JSON file means that there is no header.
  const std::string path = folder.write("t.bin", raw<int32_t>({20240520}));
  TokenFileInfo info{
      .tokens = 2, .tokenizer = refer_to(Tokenizer::bytes()), .source = {"a.txt", "b"}};
  folder.write("t.bin.json", token_info_text(info));
  const auto file = TokenFile::open(path);
  EXPECT_EQ(file.size(), 2);
  EXPECT_EQ(file.vocab_size(), 256);
  EXPECT_EQ(file.info()->tokenizer.identity(), Tokenizer::bytes().identity());
  EXPECT_EQ(file.info()->source, (std::vector<std::string>{"a.txt", "b"}));
  info.tokens = 3;
  folder.write("t.bin.json", token_info_text(info));
  expect_user_error(
      ExitCode::InputFile,
      cat(path, ".json: \"tokens\" is 3, the token file holds 2; prepare the data again"),
      [&] { TokenFile::open(path); });
}

TEST(TokenFile, InfoIsReadable) {
  const TokenFileInfo info{.tokens = 7,
                           .tokenizer = refer_to(Tokenizer::characters({U'\n', U'\u00e9'})),
                           .source = {"a\xff"}};
  EXPECT_EQ(token_info_text(info), R"({
  "format": "weft-tokens",
  "dtype": "uint16",
  "tokens": 7,
  "vocab_size": 2,
  "tokenizer": {
    "hash": ")" + hex64(info.tokenizer.hash) +
                                       R"(",
    "kind": "char",
    "vocab": "\n)"
                                       "\u00e9"
                                       R"("
  },
  "source": [
    "a)"
                                       "\ufffd"
                                       R"("
  ]
}
)");
}

TEST(TokenFile, BadInfo) {
  const std::string start = R"({"format":"weft-tokens","dtype":"uint16","tokens":1,)";
  const std::string bytes = R"("tokenizer":{"kind":"byte","hash":"6828a99c1e3216ff"})";
  EXPECT_EQ(parse_token_info(start + R"("vocab_size":256,)" + bytes + "}", "x").tokens, 1);
  expect_info_error("x:1: malformed JSON at byte 1", "{");
  expect_info_error("x: \"format\" is \"other\", expected \"weft-tokens\"",
                    R"({"format":"other"})");
  expect_info_error("x: \"dtype\" is \"uint8\", expected \"uint16\" or \"uint32\"",
                    R"({"format":"weft-tokens","dtype":"uint8"})");
  expect_info_error("x: \"vocab_size\" is 65537, expected 1 to 65536 for 16-bit tokens",
                    start + R"("vocab_size":65537})");
  expect_info_error("x: \"vocab_size\" is 0, expected 1 to 65536 for 16-bit tokens",
                    start + R"("vocab_size":0})");
  for (const char* end : {"-1", "256"}) {
    expect_info_error(cat("x: \"end_token\" is ", end, ", expected an id below 256"),
                      cat(start, R"("vocab_size":256,"end_token":)", end, ",", bytes, "}"));
  }
  expect_info_error("x: \"vocab_size\" is 65, its tokenizer has 256",
                    start + R"("vocab_size":65,)" + bytes + "}");
  expect_info_error("x: \"source\" is a string, expected an array of strings",
                    start + R"("vocab_size":256,"source":"a",)" + bytes + "}");
  expect_info_error("x: \"source\" holds a number, expected an array of strings",
                    start + R"("vocab_size":256,"source":[1],)" + bytes + "}");
}

TEST(TokenFile, CheckVocabularyNamesTheFirstIdThatIsTooLarge) {
  const TempFolder folder;
  const std::string path = folder.write("t.bin", raw<uint16_t>({5, 64, 65, 70}));
  const auto file = TokenFile::open(path);
  EXPECT_NO_THROW(file.check_vocabulary(71));
  EXPECT_NO_THROW(file.check_vocabulary(65536));
  expect_user_error(ExitCode::InputFile,
                    cat(path,
                        ": token 2 has id 65, the model's vocabulary has 65; raise "
                        "model.vocab_size or use other data"),
                    [&] { file.check_vocabulary(65); });
  const auto wide =
      TokenFile::open(folder.write("w.bin", header(20240801, 7, 1) + raw<uint32_t>({4000000000})));
  EXPECT_THROW(wide.check_vocabulary(65536), UserError);
}

}  // namespace
}  // namespace weft
