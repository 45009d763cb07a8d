// Program: the command line of a benchmark program, and the run with its results as JSON.
#pragma once

#include <cstdint>

#include "interop/device.h"

namespace cgtree::benchmarks {

struct Options {
  Device device;
  std::int64_t samples = 0;  // per row
};

// Parses --device, --samples, --json and --commit; the rest is google/benchmark's. Then lets
// `add_rows` register the rows and runs them. Returns the exit status.
int run_program(int argc, char** argv, const char* question, void (*add_rows)(const Options&));

}  // namespace cgtree::benchmarks
