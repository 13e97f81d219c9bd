// Checksums are stored in files, so their values must never change. The expected ones come from
// the Python package xxhash.
#include "base/checksum.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace weft {
namespace {

// Bytes 0, 1, 2, ... that start again after 255.
std::vector<std::byte> counting(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 256);
  return bytes;
}

// XXH3 has a separate path for each of these ranges of length.
TEST(Checksum, HasTheKnownValues) {
  const std::vector<std::pair<size_t, const char*>> known = {
      {0, "2d06800538d394c2"},   {1, "c44bdff4074eecdb"},   {3, "5f4299fc161c9cbb"},
      {8, "3a1c2d7c85af88f8"},   {16, "8355e3a6f61770db"},  {17, "9ef341a99de37328"},
      {64, "6187eb9089b0ed55"},  {128, "85c6174c7ff4c46b"}, {129, "ec7642b431ba3e5a"},
      {240, "375a384d957fe865"}, {241, "02e8cd95421c6d02"}, {1025, "78c86e91ee939852"}};
  for (const auto& [size, expected] : known) {
    EXPECT_EQ(to_hex(checksum(counting(size))), expected) << size;
  }
}

TEST(Checksum, DigestsHaveTheKnownValues) {
  EXPECT_EQ(digest(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(digest("abc"), "06b05ab6733a618578af5f94892f3950");
  EXPECT_EQ(digest("weft"), "69aeedc904d9a734126c4f6354db18ad");
}

// The digest of a text that begins at an odd address: vector loads must not assume alignment.
TEST(Checksum, DoesNotDependOnTheAddress) {
  const std::vector<std::byte> bytes = counting(1025);
  for (size_t shift = 1; shift < 16; ++shift) {
    std::vector<std::byte> moved(shift);
    moved.insert(moved.end(), bytes.begin(), bytes.end());
    EXPECT_EQ(checksum(std::span(moved).subspan(shift)), checksum(bytes));
  }
}

TEST(Checksum, EverySingleBitFlipChangesIt) {
  std::vector<std::byte> bytes = counting(64);
  std::set<uint64_t> seen = {checksum(bytes)};
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_TRUE(seen.insert(checksum(bytes)).second) << "bit " << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(Checksum, HexHasSixteenDigits) {
  EXPECT_EQ(to_hex(0), "0000000000000000");
  EXPECT_EQ(to_hex(0xfedcba9876543210U), "fedcba9876543210");
}

}  // namespace
}  // namespace weft
