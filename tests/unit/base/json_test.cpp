// JSON: values are unchanged, and each kind of bad text has its own message.
#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

using nlohmann::json;

void expect_input_error(const std::string& message, const std::string& text) {
  expect_user_error(ExitCode::InputFile, message, [&] { parse_json(text, "x.json"); });
}

TEST(Json, ParsesWhatTheLibraryParses) {
  for (const char* text :
       {"{}", "[]", "null", "-3", "18446744073709551615", "2.5e-3", "\"a\\u00e9\\n\"",
        R"({"a":[1,[2,{"b":[]}],{"c":null}],"d":{"e":true,"f":{}},"g":"h"})"}) {
    EXPECT_EQ(parse_json(text, "x").dump(), json::parse(text).dump()) << text;
  }
}

TEST(Json, MalformedTextNamesLineAndByte) {
  expect_input_error("x.json:1: malformed JSON at byte 1", "");
  expect_input_error("x.json:2: malformed JSON at byte 7", "{\n\"a\":}");
  expect_input_error("x.json:1: malformed JSON at byte 5", "{\"a\":");
  expect_input_error("x.json:1: malformed JSON at byte 4", "{} x");
  expect_input_error("x.json:1: malformed JSON at byte 2", "\"\xff\"");
  expect_input_error("x.json:1: malformed JSON at byte 6", "1e9999");
}

TEST(Json, DuplicateKeysAreRejected) {
  expect_input_error("x.json:3: duplicate key \"a\"", "{\"a\":1,\n\"b\":{\"a\":2},\n\"a\":3}");
}

TEST(Json, HostileKeysAreShownSafely) {
  const std::string key = std::string(70, 'k');
  expect_input_error(cat("x.json:1: duplicate key \"", std::string(60, 'k'), "...\""),
                     cat("{\"", key, "\":1,\"", key, "\":1}"));
  expect_input_error("x.json:1: duplicate key \"?[2J\"", "{\"\\u001b[2J\":1,\"\\u001b[2J\":1}");
}

TEST(Json, NestingIsLimited) {
  const auto nested = [](int levels) {
    return std::string(size_t(levels), '[') + std::string(size_t(levels), ']');
  };
  EXPECT_NO_THROW(parse_json(nested(kMaxJsonNesting), "x"));
  expect_input_error("x.json:1: JSON is nested deeper than 64 levels", nested(65));
  expect_input_error("x.json:1: JSON is nested deeper than 64 levels", std::string(1000000, '['));
}

TEST(Json, ReadsAFile) {
  const TempFolder folder;
  EXPECT_EQ(read_json_file(folder.write("a.json", "{\"a\":1}"), 100)["a"], 1);
}

TEST(Json, FieldsSayWhatIsWrong) {
  const json object = parse_json(
      R"({"name":"gpt2","layers":12,"rate":0.5,"big":18446744073709551615,"list":[]})", "x");
  EXPECT_EQ(json_string(object, "name", "x"), "gpt2");
  EXPECT_EQ(json_int(object, "layers", "x"), 12);
  const auto fails = [](const std::string& message, auto action) {
    expect_user_error(ExitCode::InputFile, message, action);
  };
  fails("x: \"heads\" is missing", [&] { json_int(object, "heads", "x"); });
  fails("x: \"layers\" is a number, expected a string",
        [&] { json_string(object, "layers", "x"); });
  fails("x: \"rate\" is 0.5, expected a whole number", [&] { json_int(object, "rate", "x"); });
  fails("x: \"list\" is an array, expected a whole number", [&] { json_int(object, "list", "x"); });
  fails("x: \"big\" is 18446744073709551615, beyond 64 bits",
        [&] { json_int(object, "big", "x"); });
  fails("x: found an array, expected an object with \"a\"",
        [&] { json_int(object["list"], "a", "x"); });
}

}  // namespace
}  // namespace weft
