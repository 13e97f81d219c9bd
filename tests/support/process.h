// Runs a program as a real process and records its output, exit and peak memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft {

struct ProcessOptions {
  std::string folder = {};       // working folder; empty: that of the test
  std::string input = {};        // its standard input
  double timeout_seconds = 60;   // then it is killed
  int64_t file_size_limit = -1;  // limit in bytes for one file; -1: none
  std::vector<int> closed = {};  // which of descriptors 0 to 2 are closed
  bool own_group = false;        // it leads a process group, which can be signalled as one
  int64_t open_file_limit = -1;  // limit of open descriptors; -1: none
  bool reader_gone = false;      // its standard output is a pipe that nobody reads
  std::string output_file = {};  // file for its standard output; empty: it is recorded
  // Called every few milliseconds while it runs, with its output so far.
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

// Runs `arguments`, the first of which is the program, until it exits.
ProcessResult run_process(const std::vector<std::string>& arguments,
                          const ProcessOptions& options = {});

}  // namespace weft
