// Manifests: exact text, and every damage is found before anything in it is used.
#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "support/user_error.h"

namespace weft {
namespace {

Manifest small() {
  return {.step = 7,
          .files = {{"a.safetensors", {{3, 1}, {2, 0xfedcba9876543210U}}}, {"empty", {}}}};
}

constexpr const char* kText =
    R"({"format":1,
"step":7,
"files":[
{"name":"a.safetensors","bytes":5,"block_bytes":[3,2],"checksums":["0000000000000001","fedcba9876543210"]},
{"name":"empty","bytes":0,"block_bytes":[],"checksums":[]}],
"digest":"21bb418a18dc922a96f0b5d9f0086b1d"}
)";

// The text of a manifest that somebody else wrote, with the right digest.
std::string with_digest(const std::string& body) {
  return cat(body, ",\n\"digest\":\"", digest(body), "\"}\n");
}

std::string with_files(const std::string& files) {
  return with_digest(cat(R"({"format":1,"step":7,"files":[)", files, "]"));
}

// One file "a" with these sizes and checksums of its blocks.
std::string with_blocks(const std::string& bytes, const std::string& sizes,
                        const std::string& sums) {
  return with_files(cat(R"({"name":"a","bytes":)", bytes, R"(,"block_bytes":[)", sizes,
                        R"(],"checksums":[)", sums, "]}"));
}

void expect_refused(const std::string& message, const std::string& text) {
  expect_user_error(ExitCode::Integrity, message, [&] { parse_manifest(text, "m"); });
}

// The digest was computed by the Python package xxhash.
TEST(Manifest, HasThisText) {
  const std::string text = manifest_text(small());
  EXPECT_EQ(manifest_digest(text), "21bb418a18dc922a96f0b5d9f0086b1d");
  EXPECT_EQ(text, kText);
  EXPECT_EQ(manifest_text({}), with_digest("{\"format\":1,\n\"step\":0,\n\"files\":[]"));
}

TEST(Manifest, ReadsWhatItWrites) {
  Manifest manifest = small();
  manifest.step = INT64_MAX;
  manifest.files.push_back({"quote\" tab\t \xc3\xa9", {{kMaxBlockBytes, UINT64_MAX}}});
  for (const Manifest& written : {Manifest{}, small(), manifest}) {
    EXPECT_EQ(parse_manifest(manifest_text(written), "m"), written);
  }
}

TEST(Manifest, FindsFilesAndCountsBytes) {
  Manifest manifest = small();
  manifest.files.push_back({"b", {{9, 0}}});
  EXPECT_EQ(manifest.bytes(), 14);
  EXPECT_EQ(manifest.find("b"), &manifest.files[2]);
  EXPECT_EQ(manifest.find("a"), nullptr);
}

TEST(Manifest, EveryTruncationIsFound) {
  const std::string text = manifest_text(small());
  for (size_t size = 0; size < text.size(); ++size) {
    try {
      parse_manifest(text.substr(0, size), "m");
      ADD_FAILURE() << size << " bytes were accepted";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::Integrity) << error.what();
    }
  }
}

// Damage never looks like a newer format or a foreign file.
TEST(Manifest, EverySingleBitFlipIsFound) {
  std::string text = manifest_text(small());
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    const auto flip = [&] { text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8))); };
    flip();
    try {
      parse_manifest(text, "m");
      ADD_FAILURE() << "accepted with a flip of bit " << bit;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::Integrity) << error.what();
    }
    flip();
  }
}

TEST(Manifest, SaysWhatIsDamaged) {
  expect_refused("m: has no digest; it is damaged", "");
  expect_refused("m: has no digest; it is damaged", "{\"format\":1}");
  std::string text = manifest_text(small());
  expect_refused(
      "m: its digest is 21bb418a18dc922a96f0b5d9f0086b1d, expected "
      "\"21bb418a18dc922a96f0b5d9f0086b1d\"; it is damaged",
      text + "\n");
  text[text.find('7')] = '8';
  expect_refused(cat("m: its digest is ", digest(text.substr(0, text.find(",\n\"digest\""))),
                     ", expected \"21bb418a18dc922a96f0b5d9f0086b1d\"; it is damaged"),
                 text);
}

TEST(Manifest, ANewerFormatIsRefused) {
  expect_user_error(ExitCode::InputFile,
                    "m: format 2, this build reads formats up to 1; use a newer build", [] {
                      // Nothing else of it is read: its other members may mean something else.
                      parse_manifest(with_digest(R"({"format":2,"files":"elsewhere")"), "m");
                    });
}

TEST(Manifest, MembersAreChecked) {
  const std::string file = R"({"name":"a","bytes":0,"block_bytes":[],"checksums":[]})";
  EXPECT_NO_THROW(parse_manifest(with_files(file), "m"));
  expect_refused("m: lists \"a\" twice", with_files(file + "," + file));
  expect_refused("m: step -1, expected 0 or more",
                 with_digest(R"({"format":1,"step":-1,"files":[])"));
  expect_refused("m: \"files\" is an object, expected a list",
                 with_digest(R"({"format":1,"step":1,"files":{})"));
  expect_refused("m: file \"a\": \"checksums\" is a string, expected a list",
                 with_files(R"({"name":"a","bytes":0,"block_bytes":[],"checksums":""})"));
  const auto message_of = [](const std::string& text) {
    return user_error_of([&] { parse_manifest(text, "m"); });
  };
  EXPECT_EQ(message_of(with_digest(R"({"format":1,"files":[])")), "m: \"step\" is missing");
  EXPECT_EQ(message_of(with_digest(R"({"step":1,"files":[])")), "m: \"format\" is missing");
  EXPECT_EQ(message_of(with_files("1")), "m: found a number, expected an object with \"name\"");
}

TEST(Manifest, FilesLieInTheFolderItself) {
  for (const std::string name : {"", ".", "..", "../a", "/a", "a/b"}) {
    expect_refused(cat("m: file \"", name, "\": not a plain file name"),
                   with_files(cat(R"({"name":")", name, "\"}")));
  }
  using namespace std::string_view_literals;
  for (const std::string_view name : {"a", "...", ".a", "a b"}) EXPECT_TRUE(is_plain_name(name));
  for (const std::string_view name : {"a\\b"sv, "/"sv, "a\0b"sv}) {
    EXPECT_FALSE(is_plain_name(name));
  }
}

TEST(Manifest, BlocksAddUp) {
  const std::string sum = "\"0000000000000001\"";
  EXPECT_EQ(parse_manifest(with_blocks("3", "3", sum), "m").files[0].bytes(), 3);
  expect_refused("m: file \"a\": \"bytes\" is 4, its blocks have 3", with_blocks("4", "3", sum));
  expect_refused("m: file \"a\": 2 blocks with 1 checksums", with_blocks("3", "1,2", sum));
  for (const std::string size : {"0", "-1", "4194305", "1.5", "\"3\"", "18446744073709551615"}) {
    expect_refused("m: file \"a\": block 0 is malformed", with_blocks("0", size, sum));
  }
  expect_refused("m: file \"a\": block 1 is malformed", with_blocks("4", "1,3", sum + ",1"));
  for (const std::string text : {"", "1", "00000000000000001", "000000000000000g",
                                 "0x00000000000001", "-000000000000001", "+000000000000001"}) {
    expect_refused(cat("m: file \"a\": checksum \"", text, "\", expected 16 hexadecimal digits"),
                   with_blocks("3", "3", cat("\"", text, "\"")));
  }
}

}  // namespace
}  // namespace weft
