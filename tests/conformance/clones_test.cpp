// Every variant of the vector kernels that this machine supports gives the same bits (simd.h). The
// variant is selected before main runs, so there is one program per variant (cpu_level.cpp), which
// prints the variant it selected.
#include <gtest/gtest.h>

#include "base/text.h"
#include "support/process.h"

namespace weft {
namespace {

#if defined(WEFT_KERNEL_DIGESTS)
struct Variant {
  int level = 1;
  std::string name = "default";
  bool runs_here = true;
};

std::vector<Variant> variants() {
  return {{3, "x86-64-v3", __builtin_cpu_supports("x86-64-v3") != 0},
          {4, "x86-64-v4", __builtin_cpu_supports("x86-64-v4") != 0}};
}

// The lines after the first, which is the variant's name.
std::vector<std::string> digests(const Variant& variant) {
  const ProcessResult run = run_process({cat(WEFT_KERNEL_DIGESTS, variant.level)});
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  std::vector<std::string> lines = split(run.output, '\n');
  EXPECT_EQ(lines.front(), variant.name);
  lines.erase(lines.begin());
  return lines;
}

class Clones : public ::testing::TestWithParam<Variant> {};

TEST_P(Clones, GiveTheBitsOfThePortableOne) {
  if (!GetParam().runs_here) GTEST_SKIP() << "this machine has no " << GetParam().name;
  static const std::vector<std::string> portable = digests({});
  const std::vector<std::string> found = digests(GetParam());
  EXPECT_GT(portable.size(), 300u);
  ASSERT_EQ(found.size(), portable.size());
  for (size_t i = 0; i < portable.size(); ++i) EXPECT_EQ(found[i], portable[i]);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Clones, ::testing::ValuesIn(variants()),
                         [](const auto& test) { return cat("v", test.param.level); });
#else
TEST(Clones, GiveTheBitsOfThePortableOne) {
  GTEST_SKIP() << "this build has one variant of each vector kernel";
}
#endif

}  // namespace
}  // namespace weft
