// weft plan: any preset within seconds, on a machine that could never hold it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "cli/workspace.h"
#include "config/device_spec.h"
#include "config/load.h"
#include "model/model.h"
#include "plan/summary.h"
#include "plan/text.h"
#include "support/read_file.h"

namespace weft {
namespace {

// The time that the command measured: starting a process is not its work.
double compile_milliseconds(const ProcessResult& result) {
  const size_t at = result.output.find("compiled in");
  return at == std::string::npos ? 1e9 : std::stod(result.output.substr(at + 11));
}

TEST(Plan, TheDefaultsAgree) {
  const Workspace work;
  work.folder().write("empty.toml", "");
  const ProcessResult result = work.run_ok({"plan", "empty.toml"});
  EXPECT_NE(result.output.find("model         gpt2 tiny: "), std::string::npos) << result.output;
}

TEST(Plan, EveryPresetIsPlannedAtOnceWithoutAllocatingIt) {
  const Workspace work;
  work.folder().write("plan.toml", "");
  for (const ModelDef* model : all_models()) {
    for (const ModelSpec& preset : model->presets()) {
      const std::string length = std::to_string(std::min<int64_t>(preset.max_seq_len, 1024));
      const auto plan = [&] {
        return work.run_ok({"plan", "plan.toml", "--model.name=" + std::string(model->name),
                            "--model.flavor=" + preset.flavor, "--training.seq_len=" + length,
                            "--device.backend=null", "--no-fit"});
      };
      const ProcessResult result = plan();
      EXPECT_NE(result.output.find("peak"), std::string::npos) << result.output;
      // The weights of "124M" alone are 0.5 GB.
      EXPECT_LT(result.peak_bytes, int64_t{200} << 20) << preset.flavor;
      double milliseconds = compile_milliseconds(result);
      // Other programs may occupy the core for a while.
      for (int again = 0; again < 4 && milliseconds >= 1000; ++again) {
        milliseconds = std::min(milliseconds, compile_milliseconds(plan()));
      }
      EXPECT_LT(milliseconds, 1000) << preset.flavor;
    }
  }
  EXPECT_EQ(work.folder().names(), (std::vector<std::string>{"plan.toml", "run.toml"}));
}

TEST(Plan, TheTextOfAPlanReadsBack) {
  const Workspace work;
  work.prepare_data();
  const ProcessResult result = work.run_ok({"plan", "run.toml", "--text", "plan.txt", "--passes"});
  EXPECT_NE(result.output.find("autodiff"), std::string::npos) << result.output;
  const std::string text = work.folder().read("plan.txt");
  EXPECT_EQ(print_plan(parse_plan(text)), text);
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "out"));
}

TEST(Plan, TheSameConfigGivesTheSameBytes) {
  const Workspace work;
  work.prepare_data();
  work.run_ok({"plan", "run.toml", "--text", "one.txt"});
  work.run_ok({"plan", "run.toml", "--text", "two.txt"});
  EXPECT_EQ(work.folder().read("one.txt"), work.folder().read("two.txt"));
}

TEST(Plan, SaysWhetherTheMachineHoldsIt) {
  const Workspace work;
  work.folder().write("plan.toml", "[model]\nname = \"llama\"\nflavor = \"405B\"\n");
  const ProcessResult result = work.run_ok({"plan", "plan.toml"});
  EXPECT_NE(result.output.find("fits          no"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("\nto fit  "), std::string::npos) << result.output;
  EXPECT_NE(result.output.find(" needs "), std::string::npos) << result.output;
  const ProcessResult brief = work.run_ok({"plan", "plan.toml", "--no-fit"});
  EXPECT_EQ(brief.output.find("to fit"), std::string::npos) << brief.output;
}

TEST(Plan, SaysMfuWhereTheSpecHasAPeak) {
  const Workspace work;
  work.folder().write("plan.toml", "[model]\nflavor = \"124M\"\n[training]\nseq_len = 1024\n");
  const std::string cpu = work.run_ok({"plan", "plan.toml"}).output;
  EXPECT_EQ(cpu.find("mfu"), std::string::npos) << cpu;
  const std::string gpu = work.run_ok({"plan", "plan.toml", "--device.spec=h100"}).output;
  EXPECT_NE(gpu.find(" % of 67 TFLOP/s (h100)\n"), std::string::npos) << gpu;
}

TEST(Plan, SaysWhatARankCommunicates) {
  const Workspace work;
  work.folder().write("plan.toml",
                      "[model]\nname = \"gpt2\"\nflavor = \"tiny\"\n[training]\nseq_len = 64\n");
  const std::string one = work.run_ok({"plan", "plan.toml"}).output;
  EXPECT_NE(one.find("\nstep time  "), std::string::npos) << one;
  EXPECT_EQ(one.find("collectives"), std::string::npos) << one;
  const std::string two = work.run_ok({"plan", "plan.toml", "--ranks", "2"}).output;
  for (const char* line :
       {"\nbuckets  ", "collectives all_gather dp_shard=2", "reduce_scatter",
        "copied for packing 0 B\n", "\ncomputing  ", "\nexposed comm  ", "\nthroughput  "}) {
    EXPECT_NE(two.find(line), std::string::npos) << line << " in\n" << two;
  }
}

// Two layers with four edges forward and four backward, and two of the head.
TEST(Plan, SaysWhatIsComputedInChunks) {
  const Workspace work;
  work.folder().write("plan.toml",
                      "[model]\nname = \"gpt2\"\nflavor = \"tiny\"\n[training]\nseq_len = 64\n"
                      "[parallelism]\ntensor_parallel_degree = 2\n");
  const std::string forced = work.run_ok({"plan", "plan.toml", "--ranks", "2",
                                          "--parallelism.async_tensor_parallel_chunks=2"})
                                 .output;
  EXPECT_NE(forced.find("\nasync tp      18 of 18 edges in chunks, 4 repeated gathers earlier, "
                        "predicted step time +"),
            std::string::npos)
      << forced;
  const std::string off = work.run_ok({"plan", "plan.toml", "--ranks", "2",
                                       "--parallelism.enable_async_tensor_parallel=false"})
                              .output;
  EXPECT_EQ(off.find("\nasync tp"), std::string::npos) << off;
}

using nlohmann::json;

std::string bytes(const json& count) {
  return human_bytes(count.get<double>());
}

// The lines of the text about a program, rebuilt from the JSON.
std::vector<std::string> lines_of_program(const json& program) {
  const json& time = program.at("time");
  std::string steps = cat("program ", program.at("name").get<std::string>());
  steps.resize(14, ' ');
  steps += cat(program.at("steps").get<int64_t>(), " steps");
  for (const char* phase : {"fwd", "bwd", "opt"}) {
    const json& phases = program.at("phases");
    if (phases.contains(phase)) steps += cat("  ", phase, " ", phases[phase].get<int64_t>());
  }
  if (const auto again = program.at("recomputed").get<int64_t>(); again > 0) {
    steps += cat("  recomputed ", again);
  }
  std::string where = cat("  time        ", short_time(time.at("seconds")), " predicted");
  const auto percent = [&](const json& seconds) {
    return cat(std::llround(seconds.get<double>() / time.at("seconds").get<double>() * 100), "%");
  };
  if (time.at("collective_seconds") > 0) {
    where += cat("  exposed comm ", percent(time.at("exposed_seconds")));
  }
  for (size_t i = 0; i < 5; ++i) {
    const json& op = program.at("ops").at(i);
    where += cat("  ", op.at("op").get<std::string>(), " ", percent(op.at("seconds")));
  }
  std::vector<std::string> lines = {
      steps,
      cat("  flops       ", human_count(program.at("flops")), "  memory traffic ",
          bytes(program.at("memory_traffic_bytes"))),
      where};
  for (const json& sent : program.at("collectives")) {
    const std::string smallest = bytes(sent.at("smallest_bytes"));
    const std::string largest = bytes(sent.at("largest_bytes"));
    lines.push_back(cat(lines.size() == 3 ? "  collectives " : std::string(14, ' '),
                        sent.at("kind").get<std::string>(), " ", sent.at("axis").get<std::string>(),
                        "=", sent.at("ranks").get<int64_t>(), "  ", sent.at("calls").get<int64_t>(),
                        " of ", smallest, smallest == largest ? "" : " to " + largest,
                        "  sent per rank ", bytes(sent.at("sent_bytes"))));
  }
  if (lines.size() > 3) {
    lines.push_back(
        cat(std::string(14, ' '), "copied for packing ", bytes(program.at("packing_bytes"))));
  }
  std::string exposed;
  for (const json& axis : program.at("exposed")) {
    exposed += cat("  ", axis.at("axis").get<std::string>(), " ", short_time(axis.at("seconds")));
  }
  if (program.at("exposed").size() > 1) lines.push_back(cat("  exposed   ", exposed));
  const json& peak = program.at("peak");
  lines.push_back(
      cat("  peak        ", bytes(peak.at("bytes")), " at ", peak.at("label").get<std::string>()));
  std::vector<std::string> kinds;
  int64_t sum = 0;
  for (const char* kind : {"param", "copy", "gradient", "optimizer", "activation", "gathered",
                           "input", "output", "workspace"}) {
    const auto live = peak.at("kinds").at(kind).get<int64_t>();
    if (live > 0) kinds.push_back(cat(kind, " ", bytes(live)));
    sum += live;
  }
  EXPECT_EQ(sum, peak.at("bytes").get<int64_t>());
  lines.push_back(cat("  of it       ", join(kinds, "  ")));
  return lines;
}

std::vector<std::string> async_lines(const json& report) {
  std::vector<std::string> lines;
  for (const json& pass : report.at("passes")) {
    if (pass.at("pass") != "async_tp" || !pass.at("changed").get<bool>()) continue;
    lines.push_back(cat("async tp      ", pass.at("note").get<std::string>()));
  }
  return lines;
}

// The line of the text about the memory that the plan needs.
std::vector<std::string> lines_of_memory(const json& report) {
  const auto text = [](const json& value) { return value.get<std::string>(); };
  std::vector<std::string> lines;
  const json& memory = report.at("memory");
  lines.push_back(cat("fits          ", memory.at("fits") ? "yes" : "no", ": ",
                      bytes(memory.at("plan_bytes")), " of ", bytes(memory.at("limit_bytes")), " (",
                      text(report.at("device")), ")"));
  if (const int64_t libraries = memory.at("driver_and_libraries_bytes"); libraries > 0) {
    const int64_t all = memory.at("plan_bytes").get<int64_t>() + libraries;
    lines.push_back(cat("device memory ", bytes(all), " with ", bytes(libraries),
                        " of driver and libraries (", all, " bytes)"));
  }
  if (const json& change = report.at("alternative"); !change.is_null()) {
    lines.push_back(cat("to fit        ", change.at("fits") ? "" : "no alternative fits; closest: ",
                        text(change.at("change")), " needs ", bytes(change.at("plan_bytes")),
                        text(change.at("change")).starts_with("--ranks") ? " per rank" : ""));
  }
  return lines;
}

// The lines of the text except the last, rebuilt from the JSON.
std::vector<std::string> lines_of(const json& report) {
  const json& plan = report.at("plan");
  const auto number = [](const json& object, const char* key) {
    return object.at(key).get<int64_t>();
  };
  const auto text = [](const json& value) { return value.get<std::string>(); };
  const std::string blank(14, ' ');
  std::vector<std::string> axes, streams;
  for (const json& axis : plan.at("mesh")) {
    axes.push_back(cat(text(axis.at("axis")), "=", number(axis, "ranks")));
  }
  for (const json& stream : plan.at("streams")) streams.push_back(stream);
  const json& model = report.at("model");
  std::vector<std::string> lines = {
      cat("model         ", text(model.at("name")), " ", text(model.at("flavor")), ": ",
          human_count(model.at("parameters")), " parameters, ", number(model, "layers"),
          " layers, ", number(model, "width"), " wide, ", number(model, "heads"), " heads, ",
          number(model, "vocabulary"), " token ids"),
      cat("graph         ", number(report, "graph_nodes"), " nodes"),
      cat("plan          ", text(plan.at("name")), "  backend ", text(plan.at("backend")),
          "  mesh ", axes.empty() ? "1 rank" : join(axes, " ")),
      cat("bound         ", number(plan, "params"), " params  ", number(plan, "states"),
          " states  ", number(plan, "inputs"), " inputs  ", number(plan, "outputs"), " outputs"),
      cat("streams       ", join(streams, " "), "  events ", number(plan, "events")),
      cat("arena         ", bytes(plan.at("arena_bytes")), " (", number(plan, "arena_bytes"),
          " bytes)  persistent ", bytes(plan.at("persistent_bytes")))};
  for (const json& space : plan.at("shared_spaces")) {
    lines.push_back(cat("shared        ", bytes(space.at("bytes")), " (", number(space, "bytes"),
                        " bytes)  gathered weights, once per host for ", text(space.at("axis")),
                        "=", number(space, "ranks")));
  }
  if (const json& low = plan.at("low_precision_weights"); !low.is_null()) {
    lines.push_back(
        cat("weights       ", number(low, "kept_bytes") == 0
                                  ? cat("cast to ", text(low.at("dtype")), " for every use")
                                  : cat("kept in ", text(low.at("dtype")), " too, ",
                                        bytes(low.at("kept_bytes")), ", written by the update")));
  }
  const auto times = [&](const json& group) {
    return number(group, "count") > 1 ? cat(" x ", number(group, "count")) : std::string();
  };
  for (const json& bucket : plan.at("buckets")) {
    lines.push_back(cat(&bucket == &plan["buckets"].front() ? "buckets       " : blank,
                        bytes(bucket.at("bytes")), "  ", text(bucket.at("name")), times(bucket)));
  }
  for (const json& program : plan.at("programs")) {
    for (std::string& line : lines_of_program(program)) lines.push_back(std::move(line));
  }
  for (size_t i = 0; i < 5; ++i) {
    const json& group = plan.at("buffers_at_peak").at(i);
    lines.push_back(cat(i == 0 ? "largest       " : blank, bytes(group.at("bytes")), "  ",
                        text(group.at("name")), " (", text(group.at("kind")), ")", times(group)));
  }
  lines.emplace_back("");
  const json& step = report.at("step");
  const int64_t micro_batches = number(step, "micro_batches");
  lines.push_back(
      cat("step time     ", short_time(step.at("seconds")), " predicted",
          micro_batches > 1 ? cat(", ", micro_batches, " micro-batches") : std::string()));
  lines.push_back(cat("computing     ", short_time(step.at("compute_seconds"))));
  if (step.at("collective_seconds") > 0) {
    lines.push_back(cat("exposed comm  ", short_time(step.at("exposed_seconds")), " of ",
                        short_time(step.at("collective_seconds")), " of collectives"));
  }
  for (const std::string& line : async_lines(report)) lines.push_back(line);
  std::string rate = cat("throughput    ", human_count(step.at("tokens_per_second")), " tok/s",
                         number(report, "ranks") > 1 ? " per rank" : "");
  if (const json& mfu = step.at("mfu"); !mfu.is_null()) {
    rate += cat(", mfu ", std::llround(mfu.get<double>() * 100), " % of ",
                human_count(step.at("peak_flops")), "FLOP/s (", text(report.at("device")), ")");
    EXPECT_DOUBLE_EQ(mfu.get<double>(), step.at("model_flops_per_token").get<double>() *
                                            step.at("tokens_per_second").get<double>() /
                                            step.at("peak_flops").get<double>());
  }
  lines.push_back(rate);
  for (std::string& line : lines_of_memory(report)) lines.push_back(std::move(line));
  return lines;
}

// Every key in an object and below it.
void collect_keys(const json& value, std::set<std::string>& keys) {
  for (const auto& [key, member] : value.items()) {
    if (value.is_object()) keys.insert(key);
    if (member.is_structured()) collect_keys(member, keys);
  }
}

// A batch that does not fit any GPU.
const std::vector<std::string> kTooLarge = {"--model.flavor=124M", "--device.backend=cuda",
                                            "--training.local_batch_size=8192"};

struct JsonCase {
  std::string name;
  std::vector<std::string> flags;
};

class PlanJson : public testing::TestWithParam<JsonCase> {};

// The text says nothing that the JSON does not, with the same numbers.
TEST_P(PlanJson, HasTheFiguresOfTheText) {
  const Workspace work;
  work.folder().write("plan.toml", "[training]\nseq_len = 64\n");
  std::vector<std::string> command = {"plan", "plan.toml"};
  command.insert(command.end(), GetParam().flags.begin(), GetParam().flags.end());
  std::vector<std::string> text = split(work.run_ok(command).output, '\n');
  command.emplace_back("--json");
  const json report = parse_json(work.run_ok(command).output, "output");
  ASSERT_GT(text.size(), 2U);
  EXPECT_EQ(text.back(), "");
  text.pop_back();
  EXPECT_TRUE(text.back().starts_with("compiled in   ")) << text.back();
  text.pop_back();
  EXPECT_EQ(lines_of(report), text);
  EXPECT_GT(report.at("compile_seconds").get<double>(), 0);
  EXPECT_EQ(report.at("passes").at(0).at("pass"), "mixed_precision");
}

const JsonCase kJsonCases[] = {
    {"one_rank", {}},
    {"micro_batches", {"--training.global_batch_size=16", "--training.local_batch_size=4"}},
    {"fsdp", {"--ranks=2"}},
    {"hsdp_bf16",
     {"--ranks=4", "--parallelism.data_parallel_replicate_degree=2",
      "--training.mixed_precision_param=bfloat16"}},
    {"kept_bf16",
     {"--training.mixed_precision_param=bfloat16", "--training.keep_low_precision=true"}},
    {"gpu", {"--device.backend=cuda", "--ranks=2"}},
    {"recomputed", {"--activation_checkpoint.mode=full"}},
    {"evaluation", {"--validation.enable=true"}},
    {"too_large", kTooLarge},
};

INSTANTIATE_TEST_SUITE_P(Cli, PlanJson, testing::ValuesIn(kJsonCases),
                         [](const auto& test) { return test.param.name; });

json plan_too_large(std::vector<std::string> flags) {
  const Workspace work;
  work.folder().write("plan.toml", "[training]\nseq_len = 64\n");
  flags.insert(flags.begin(), {"plan", "plan.toml", "--json"});
  flags.insert(flags.end(), kTooLarge.begin(), kTooLarge.end());
  return parse_json(work.run_ok(flags).output, "output");
}

TEST(Plan, JsonSearchesForWhatFitsUnlessToldNotTo) {
  const json found = plan_too_large({});
  EXPECT_EQ(found.at("memory").at("fits"), false);
  EXPECT_TRUE(found.at("alternative").is_object());
  EXPECT_TRUE(plan_too_large({"--no-fit"}).at("alternative").is_null());
}

// A plan that fits only if nothing is gathered ahead.
json plan_to_fit(const Workspace& work) {
  const auto plan = [&](int64_t memory, int64_t prefetch) {
    DeviceSpec device = load_device_spec(parse_config("", "test", {}), "cpu");
    device.memory_bytes = memory;
    device.ranks_share_memory = false;
    work.folder().write("device.toml", device_spec_to_toml(device));
    return parse_json(
        work.run_ok({"plan", "plan.toml", "--json", "--no-fit", "--ranks=4", "--model.n_layers=8",
                     "--device.spec=device.toml", cat("--compile.prefetch=", prefetch)})
            .output,
        "output");
  };
  return plan(plan(1, 0).at("memory").at("plan_bytes").get<int64_t>(), 6);
}

TEST(Plan, JsonSaysWhatWasChangedToFit) {
  const Workspace work;
  work.folder().write("plan.toml", "");
  const json replanned = plan_to_fit(work).at("plan").at("replanned");
  ASSERT_TRUE(replanned.is_object());
  EXPECT_GE(replanned.at("times"), 1);
  EXPECT_EQ(replanned.at("asked_prefetch"), 6);
}

// The page lists exactly the keys that exist.
TEST(Plan, ThePageListsTheKeysOfTheJson) {
  std::set<std::string> keys, listed;
  collect_keys(plan_too_large({"--ranks=2", "--training.mixed_precision_param=bfloat16"}), keys);
  // Ranks on a CPU share memory.
  const Workspace work;
  work.folder().write("plan.toml", "");
  collect_keys(
      parse_json(work.run_ok({"plan", "plan.toml", "--json", "--ranks=2"}).output, "output"), keys);
  collect_keys(plan_to_fit(work), keys);
  const std::string page = read_file(WEFT_TESTS_DIR "/../docs/plan_json.md");
  for (const std::string& line : split(page, '\n')) {
    if (!line.starts_with("| `")) continue;
    const std::vector<std::string> quoted = split(split(line, '|').at(1), '`');
    for (size_t i = 1; i < quoted.size(); i += 2) listed.insert(quoted[i]);
  }
  EXPECT_EQ(listed, keys);
}

}  // namespace
}  // namespace weft
