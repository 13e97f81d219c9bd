#include <gtest/gtest.h>

#include <set>

#include "graph/op.h"
#include "runtime/device.h"
#include "support/user_error.h"

namespace weft {
namespace {

TEST(Backends, AreFoundByName) {
  for (const Backend& backend : all_backends()) EXPECT_EQ(&find_backend(backend.name), &backend);
  EXPECT_EQ(all_backends().front().name, "reference");
  EXPECT_EQ(all_backends().back().name, "null");
}

TEST(Backends, ThoseForPlansAloneAreNotFoundForResults) {
  const std::string expected = ", expected \"reference\", \"cpu\" or \"cuda\"";
  for (const Backend& backend : all_backends()) {
    if (!backend.computes) continue;
    EXPECT_EQ(&find_computing_backend(backend.name, "x"), &backend);
  }
  expect_user_error(ExitCode::Config,
                    "--b null computes nothing and is for weft plan only" + expected,
                    [] { find_computing_backend("null", "--b null"); });
  expect_user_error(ExitCode::Config, "--b tpu is unknown" + expected,
                    [] { find_computing_backend("tpu", "--b tpu"); });
}

TEST(Backends, EveryTableHasARowForEveryOp) {
  for (const Backend& backend : all_backends()) {
    std::set<std::string_view> ops;
    std::set<std::pair<std::string_view, std::string_view>> rows;
    for (const Kernel& kernel : backend.kernels()) {
      ops.insert(kernel.op);
      EXPECT_TRUE(rows.insert({kernel.op, kernel.name}).second)
          << backend.name << " has two rows " << kernel.op << "." << kernel.name;
      EXPECT_NE(find_op(kernel.op), nullptr) << backend.name << " " << kernel.op;
      EXPECT_NE(kernel.launch, nullptr) << backend.name << " " << kernel.op;
    }
    for (const OpDef* op : all_ops()) {
      if (op->traits.collective) continue;  // a backend need not have a transport
      EXPECT_EQ(ops.contains(op->name()), !op->traits.source) << backend.name << " " << op->name();
    }
  }
}

}  // namespace
}  // namespace weft
