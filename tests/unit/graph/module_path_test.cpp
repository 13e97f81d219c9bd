// Blocks and patterns of module paths.
#include "graph/module_path.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace weft {
namespace {

std::string path_of(std::string_view pattern, std::string_view name) {
  const auto match = match_module(pattern, name);
  return match ? match->path : "no";
}

TEST(BlockOf, ReadsTheNumberOfABlock) {
  EXPECT_EQ(block_of("layers.0"), 0);
  EXPECT_EQ(block_of("layers.12.attention"), 12);
  EXPECT_EQ(block_of("layers.12.attention.0"), 12);
  EXPECT_EQ(block_of("layers"), -1);
  EXPECT_EQ(block_of("layers.x"), -1);
  EXPECT_EQ(block_of("norm"), -1);
  EXPECT_EQ(block_of(""), -1);
}

TEST(BlockPath, NamesABlockInPathsAndValues) {
  EXPECT_EQ(block_path(3), "layers.3");
  EXPECT_EQ(short_path("layers.3.attention"), "l3.attention");
  EXPECT_EQ(short_path("output"), "output");
  EXPECT_EQ(short_path("layers"), "layers");
  EXPECT_EQ(without_block("layers.13.attention"), "layers.*.attention");
  EXPECT_EQ(without_block("d.l3.attention.out"), "d.l*.attention.out");
  EXPECT_EQ(without_block("output.logits.w13"), "output.logits.w13");
}

TEST(MatchModule, CoversTheBeginningOfANameBySegments) {
  EXPECT_EQ(path_of("norm", "norm.weight"), "norm");
  EXPECT_EQ(path_of("norm", "normal.weight"), "no");
  EXPECT_EQ(path_of("layers.1", "layers.10.w"), "no");
  EXPECT_EQ(path_of("layers.*", "layers.10.attention.w"), "layers.10");
  EXPECT_EQ(path_of("layers.*.att*n", "layers.3.attention.w"), "layers.3.attention");
  EXPECT_EQ(path_of("layers.?.w", "layers.10.w"), "no");
  EXPECT_EQ(path_of("a.b.c", "a.b"), "no");
}

TEST(MatchModule, RangesAreOfNumbers) {
  EXPECT_EQ(path_of("layers.[0-5]", "layers.5.w"), "layers.5");
  EXPECT_EQ(path_of("layers.[0-5]", "layers.6.w"), "no");
  EXPECT_EQ(path_of("layers.[2-11]", "layers.10.w"), "layers.10");
  EXPECT_EQ(path_of("layers.[2-11]", "layers.1.w"), "no");
  EXPECT_EQ(path_of("layers.[7]", "layers.7.w"), "layers.7");
  EXPECT_NO_THROW(check_module_pattern("layers.[1-2].w[3]", "key"));
  for (const char* bad : {"layers.[a-c]", "layers.[1-2", "layers.[2-1]", "layers.[1-2].["}) {
    EXPECT_THROW(check_module_pattern(bad, "key"), UserError) << bad;
  }
}

TEST(MatchModule, WildcardsTellMatchesApart) {
  EXPECT_EQ(match_module("layers.*.w?", "layers.3.w1.weight")->wildcard, "3.w1");
  EXPECT_EQ(match_module("norm", "norm.weight")->wildcard, "");
  EXPECT_EQ(count_wildcards("layers.*.w?"), 2u);
  EXPECT_EQ(count_wildcards("layers.[0-3].norm"), 1u);
  EXPECT_EQ(count_wildcards("norm"), 0u);
}

}  // namespace
}  // namespace weft
