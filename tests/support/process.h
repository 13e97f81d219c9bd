// Runs a program as a real process: what it prints, how it ends, how much memory it took.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft {

struct ProcessOptions {
  std::string folder = {};       // where it runs; empty: where the test does
  std::string input = {};        // its standard input
  double timeout_seconds = 60;   // then it is killed
  int64_t file_size_limit = -1;  // bytes that it may write to one file; -1: any
  std::vector<int> closed = {};  // of its descriptors 0 to 2, those that are closed
  bool own_group = false;        // it leads a process group, which can be signalled as one
  int64_t open_file_limit = -1;  // descriptors that it may have open; -1: any
  bool reader_gone = false;      // its standard output is a pipe that nobody reads
  std::string output_file = {};  // a file to be its standard output; empty: it is recorded
  // Called every few milliseconds while it runs, with what it has written so far.
  std::function<void(pid_t, const std::string& output, const std::string& errors)> watch = {};
};

struct ProcessResult {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;
  bool timed_out = false;
  std::string output = {};
  std::string errors = {};
  double seconds = 0;
  int64_t peak_bytes = 0;  // of resident memory
};

// Runs `arguments`, the first of which is the program, to its end.
ProcessResult run_process(const std::vector<std::string>& arguments,
                          const ProcessOptions& options = {});

}  // namespace weft
