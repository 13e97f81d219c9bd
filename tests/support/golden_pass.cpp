// Reads, runs and compares golden pass tests.
#include "support/golden_pass.h"

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "base/text.h"
#include "config/load.h"
#include "graph/call_text.h"
#include "graph/text.h"
#include "passes/pass.h"

namespace weft {

namespace {

constexpr size_t kContextLines = 3;

[[noreturn]] void reject(const std::string& message) {
  throw std::runtime_error(message);
}

// Round numbers, so that a choice by cost can be checked by hand.
DeviceSpec golden_device() {
  DeviceSpec device;
  device.name = "golden";
  device.matmul_flops_f32 = 1e9;
  device.matmul_flops_bf16 = 2e9;
  device.memory_bandwidth = 1e9;
  device.launch_latency = 1e-6;
  device.memory_bytes = int64_t{1} << 30;
  return device;
}

// The settings of one pass as a config; lists are written [a,b].
Config config_of(const GoldenPass& pass, RunOptions& options) {
  std::vector<std::string> overrides;
  for (std::string setting : pass.settings) {
    if (setting.starts_with("goal=")) {
      if (setting != "goal=evaluate") reject(setting + ": only goal=evaluate can be set");
      options.goal = Goal::Evaluate;
      continue;
    }
    const size_t open = setting.find("=[");
    if (open != std::string::npos && setting.ends_with(']')) {
      setting.pop_back();
      setting.erase(open + 1, 1);
    }
    if (setting.starts_with("mesh=")) {
      options.mesh = parse_mesh(setting.substr(5));
      continue;
    }
    overrides.push_back("--" + setting);
  }
  return parse_config("", "golden", overrides);
}

// True if a pass changed the graph.
bool run_list(Graph& graph, const std::vector<GoldenPass>& list) {
  bool changed = false;
  for (const GoldenPass& item : list) {
    const Pass* pass = find_pass(item.name);
    if (pass == nullptr) reject(cat("run: no pass \"", item.name, "\""));
    RunOptions options;
    const Config config = config_of(item, options);
    const DeviceSpec device = golden_device();
    for (const auto& report : run_passes(graph, {&pass, 1}, config, device, options)) {
      changed |= report.changed;
    }
  }
  return changed;
}

struct DiffLine {
  char mark;
  std::string_view text;
};

// The longest common subsequence of lines, walked from the front.
std::vector<DiffLine> diff_lines(const std::vector<std::string>& a,
                                 const std::vector<std::string>& b) {
  std::vector<std::vector<size_t>> common(a.size() + 1, std::vector<size_t>(b.size() + 1, 0));
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      common[i][j] =
          a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
    }
  }
  std::vector<DiffLine> lines;
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      lines.push_back({' ', a[i]});
      ++i, ++j;
    } else if (j == b.size() || (i < a.size() && common[i + 1][j] >= common[i][j + 1])) {
      lines.push_back({'-', a[i++]});
    } else {
      lines.push_back({'+', b[j++]});
    }
  }
  return lines;
}

}  // namespace

Golden parse_golden(std::string_view text) {
  Golden golden;
  std::string* part = &golden.sentence;
  for (const auto& line : split(text, '\n')) {
    if (line.starts_with("run: ")) {
      if (!golden.run.empty()) reject("there are two run: lines");
      golden.run = trim(line.substr(5));
    } else if (line == "--- before") {
      part = &golden.before;
    } else if (line.starts_with("--- ")) {
      if (!golden.outcome.empty()) reject("there are two outcomes");
      golden.outcome = line.substr(4);
      part = &golden.expected;
    } else {
      *part += line + "\n";
    }
  }
  golden.sentence = trim(golden.sentence);
  golden.expected = trim(golden.expected);
  golden.before = trim(golden.before);
  const auto& sentence = golden.sentence;
  if (!sentence.ends_with('.') || sentence.find(' ') == std::string::npos) {
    reject("a golden starts with an English sentence that says what should be");
  }
  if (golden.run.empty()) reject("there is no line \"run: pass(section.key=value)\"");
  if (golden.before.empty()) reject("there is no graph after \"--- before\"");
  const std::vector<std::string> outcomes = {"after", "unchanged", "error"};
  if (std::find(outcomes.begin(), outcomes.end(), golden.outcome) == outcomes.end()) {
    reject("the outcome is \"--- after\", \"--- unchanged\" or \"--- error\"");
  }
  return golden;
}

std::string print_golden(const Golden& golden) {
  std::string text = cat(golden.sentence, "\nrun: ", golden.run, "\n--- before\n", golden.before,
                         "\n--- ", golden.outcome, "\n");
  return golden.expected.empty() ? text : cat(text, golden.expected, "\n");
}

std::vector<GoldenPass> parse_run(std::string_view run) {
  std::vector<GoldenPass> list;
  for (std::string_view item : split_top_level(run, ',')) {
    const size_t open = item.find('(');
    GoldenPass pass{.name = std::string(item.substr(0, open)), .settings = {}};
    if (open != std::string_view::npos) {
      if (!item.ends_with(')')) reject(cat("\"", item, "\" is not pass(section.key=value)"));
      for (auto setting : split_top_level(item.substr(open + 1, item.size() - open - 2), ',')) {
        pass.settings.emplace_back(setting);
      }
    }
    list.push_back(std::move(pass));
  }
  return list;
}

Golden run_golden(const Golden& golden) {
  Golden actual = golden;
  Graph graph = parse_graph(golden.before);
  try {
    const bool changed = run_list(graph, parse_run(golden.run));
    actual.outcome = changed ? "after" : "unchanged";
    actual.expected = changed ? std::string(trim(print_graph(graph))) : "";
  } catch (const UserError& error) {
    actual.outcome = "error";
    actual.expected = error.what();
  }
  return actual;
}

std::string unified_diff(std::string_view expected, std::string_view actual) {
  const auto a = split(expected, '\n');
  const auto b = split(actual, '\n');
  const std::vector<DiffLine> lines = diff_lines(a, b);
  std::string text = "--- expected\n+++ actual\n";
  bool gap = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t first = i < kContextLines ? 0 : i - kContextLines;
    const size_t last = std::min(lines.size(), i + kContextLines + 1);
    bool near = false;
    for (size_t j = first; j < last; ++j) near |= lines[j].mark != ' ';
    if (near) {
      if (gap) text += "@@\n";
      text += cat(lines[i].mark, lines[i].text, "\n");
    }
    gap = !near;
  }
  return text;
}

}  // namespace weft
