// Log lines and progress, as they appear in a file and on a terminal.
#include "base/log.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

std::string contents(std::FILE* file) {
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

TEST(Log, LinesGoToStandardOutput) {
  testing::internal::CaptureStdout();
  log_line("step 1");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "step 1\n");
}

TEST(ProgressBar, PlainLinesEveryTenthOfTheWay) {
  std::FILE* file = std::tmpfile();
  {
    ProgressBar bar("encode", 1000, {.stream = file, .live = {}});
    for (int done = 0; done <= 1000; done += 50) bar.update(done);
    bar.update(1000);
  }
  EXPECT_EQ(contents(file),
            "encode: 10%\nencode: 20%\nencode: 30%\nencode: 40%\nencode: 50%\nencode: 60%\n"
            "encode: 70%\nencode: 80%\nencode: 90%\nencode: 100%\n");
}

TEST(ProgressBar, NoWorkIsDoneAtOnce) {
  std::FILE* file = std::tmpfile();
  ProgressBar("encode", 0, {.stream = file, .live = {}}).update(0);
  EXPECT_EQ(contents(file), "encode: 100%\n");
}

TEST(ProgressBar, LiveLineIsRewrittenAndEnded) {
  std::FILE* file = std::tmpfile();
  {
    ProgressBar bar("encode", 2, {.stream = file, .live = true});
    bar.update(0);
    bar.update(1);
  }
  EXPECT_EQ(contents(file),
            "\r\x1b[Kencode [..............................] 0% unknown left"
            "\r\x1b[Kencode [###############...............] 50% 0.0 s left\n");
}

}  // namespace
}  // namespace weft
