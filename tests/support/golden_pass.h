// Golden pass tests: one file holds an English sentence, the passes to run, the graph before, and
// what comes out: the graph after, "unchanged", or the message of an error.
//
//   A cast to the type that a value has already is removed.
//   run: simplify
//   --- before
//   graph ...
//   --- after
//   graph ...
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// One pass of the "run:" line with its settings, "section.key=value", "goal=evaluate" or
// "mesh=[dp_replicate=2, dp_shard=2]".
struct GoldenPass {
  std::string name;
  std::vector<std::string> settings;
};

struct Golden {
  std::string sentence;
  std::string run;  // the text after "run: "
  std::string before;
  std::string outcome;   // "after", "unchanged" or "error"
  std::string expected;  // graph or message; empty when unchanged
};

// Throws std::runtime_error for a file without its sentence or in another format.
Golden parse_golden(std::string_view text);
std::string print_golden(const Golden& golden);

// "recompute(activation_checkpoint.mode=full), simplify" as a list.
std::vector<GoldenPass> parse_run(std::string_view run);

// Runs the passes on the graph before and returns the golden with the actual outcome.
Golden run_golden(const Golden& golden);

// Lines of both texts with "-", "+" or " " in front, three lines around each difference.
std::string unified_diff(std::string_view expected, std::string_view actual);

}  // namespace weft
