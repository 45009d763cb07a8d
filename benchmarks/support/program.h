// Program: the command line of a benchmark program, and the run with its results as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interop/device/device.h"

namespace cgtree::benchmarks {

struct Options {
  Device device;
  std::int64_t samples = 0;         // per row
  std::vector<std::string> traces;  // files, of a program that takes them
};

struct Program {
  const char* question;  // for --help
  void (*add_rows)(const Options&);
  bool takes_traces = false;
};

// Parses --device, --samples, --json and --commit; the rest is google/benchmark's. Then lets the
// program add its rows and runs them. Returns the exit status.
int run_program(int argc, char** argv, const Program& program);

}  // namespace cgtree::benchmarks
