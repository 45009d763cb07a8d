// The command line of a benchmark program, and its run with results as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interop/device/device.h"

namespace cgtree::benchmarks {

struct Options {
  Device device;
  std::int64_t samples = 0;         // per row
  std::vector<std::string> traces;  // files, if the program takes them
};

struct Program {
  const char* question;  // for --help
  void (*add_rows)(const Options&);
  bool takes_traces = false;
};

// Parses --device, --samples, --json and --commit, and passes the rest to google/benchmark. Then
// lets the program add its rows, runs them, and returns the exit status.
int run_program(int argc, char** argv, const Program& program);

}  // namespace cgtree::benchmarks
