#include "runtime/cuda/device/library.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/temp_folder.h"

namespace weft::cuda {
namespace {

std::string error_of(const std::string& file) {
  try {
    const Library library(file, "some package");
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ExitCode::Config);
    return error.what();
  }
  return "loaded";
}

TEST(CudaLibrary, SaysWhichFileItDoesNotFind) {
  EXPECT_EQ(error_of("libnowhere.so.1"),
            "cuda: libnowhere.so.1 does not load (libnowhere.so.1: cannot open shared object file: "
            "No such file or directory; /usr/local/cuda/lib64/libnowhere.so.1: cannot open shared "
            "object file: No such file or directory); install some package or add its folder to "
            "LD_LIBRARY_PATH");
}

// As for a library that depends on a missing one: the file itself exists.
TEST(CudaLibrary, SaysWhatIsWrongWithAFile) {
  const TempFolder folder;
  const std::string file = folder.write("libbroken.so", "no library");
  EXPECT_NE(error_of(file).find(file + ": file too short"), std::string::npos) << error_of(file);
}

}  // namespace
}  // namespace weft::cuda
