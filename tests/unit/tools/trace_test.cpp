#include "tools/trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/temp_folder.h"
#include "support/user_error.h"

namespace weft {
namespace {

using nlohmann::json;

const json kTrace = {{"tokens", {{0, 1, 2}, {2, 1, 0}}},
                     {"losses", {2.0, 1.5}},
                     {"grad_norms_before_clip", {1.0, 0.5}},
                     {"optimizer",
                      {{"lr", 1e-3},
                       {"beta1", 0.9},
                       {"beta2", 0.95},
                       {"eps", 1e-8},
                       {"weight_decay", 0.1},
                       {"clip_norm", 1.0}}}};

// A folder with a small model's config.json and this trace.json.
class TraceFolder {
 public:
  explicit TraceFolder(const std::string& trace) {
    folder_.write("config.json", R"({"model_type": "gpt2", "vocab_size": 3, "n_positions": 16,
                                     "n_embd": 8, "n_layer": 1, "n_head": 2})");
    folder_.write("trace.json", trace);
  }
  Trace read() const { return read_trace(folder_.path()); }
  void expect_error(const std::string& message) const {
    expect_user_error(ExitCode::InputFile, folder_ / "trace.json" + message, [&] { read(); });
  }

 private:
  TempFolder folder_;
};

TEST(Trace, RowsBecomeInputsAndTargets) {
  const Trace trace = TraceFolder(kTrace.dump()).read();
  EXPECT_EQ(trace.spec.model, "gpt2");
  EXPECT_EQ(trace.batch, 2);
  EXPECT_EQ(trace.seq_len, 2);
  EXPECT_EQ(trace.tokens, (std::vector<int32_t>{0, 1, 2, 1}));
  EXPECT_EQ(trace.targets, (std::vector<int32_t>{1, 2, 1, 0}));
  EXPECT_EQ(trace.losses, (std::vector<double>{2.0, 1.5}));
  EXPECT_EQ(trace.grad_norms, (std::vector<double>{1.0, 0.5}));
  EXPECT_EQ(trace.optimizer.beta2, 0.95);
  EXPECT_EQ(trace.optimizer.clip_norm, 1.0);
}

TEST(Trace, EveryFieldIsNeeded) {
  for (const char* key : {"tokens", "losses", "grad_norms_before_clip", "optimizer"}) {
    json trace = kTrace;
    trace.erase(key);
    TraceFolder(trace.dump()).expect_error(std::string(": the field \"") + key + "\" is missing");
  }
  for (const auto& [key, value] : kTrace.at("optimizer").items()) {
    json trace = kTrace;
    trace["optimizer"].erase(key);
    TraceFolder(trace.dump()).expect_error(": the field \"" + key + "\" is missing");
  }
}

TEST(Trace, WrongTypesAreRefused) {
  json trace = kTrace;
  trace["losses"] = {1.0, "two"};
  TraceFolder(trace.dump()).expect_error(": the field \"losses\" is not a list of numbers");
  trace = kTrace;
  trace["losses"] = json::array();
  TraceFolder(trace.dump()).expect_error(": the field \"losses\" is not a list of numbers");
  trace = kTrace;
  trace["optimizer"]["lr"] = "fast";
  TraceFolder(trace.dump()).expect_error(": the field \"lr\" is not a number");
  TraceFolder("[]").expect_error(": the field \"tokens\" is missing");
}

TEST(Trace, TokensMustBeEvenRowsOfTheVocabulary) {
  json trace = kTrace;
  trace["tokens"][1] = {0, 1};
  TraceFolder(trace.dump()).expect_error(": the rows of \"tokens\" differ in length");
  trace["tokens"] = {{0}};
  TraceFolder(trace.dump()).expect_error(": \"tokens\" is not a list of rows of at least 2 tokens");
  for (const json& bad : {json(3), json(-1), json(1.5), json("a"), json(uint64_t{1} << 63)}) {
    trace = kTrace;
    trace["tokens"][0][1] = bad;
    TraceFolder(trace.dump())
        .expect_error(": token " + bad.dump() + " is outside the vocabulary of 3");
  }
}

TEST(Trace, AsManyNormsAsLosses) {
  json trace = kTrace;
  trace["losses"].push_back(1.0);
  TraceFolder(trace.dump()).expect_error(": 3 losses but 2 gradient norms");
}

TEST(Trace, NamesTheFileThatIsMissing) {
  const TempFolder folder;
  expect_user_error(ExitCode::InputFile,
                    folder / "config.json" + ": cannot open the file: No such file or directory",
                    [&] { read_trace(folder.path()); });
}

}  // namespace
}  // namespace weft
