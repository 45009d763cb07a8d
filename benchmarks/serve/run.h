// run() and run_soak(): the program without its command line, from options to a report.
#pragma once

#include "benchmarks/serve/options.h"
#include "benchmarks/serve/report.h"
#include "benchmarks/serve/soak.h"

namespace cgtree::serve {

// Checks everything that can be checked before serving, serves, and writes the JSON file if the
// options name one. Throws cgtree::Error.
Report run(const Options& options);
SoakReport run_soak(const Options& options);

}  // namespace cgtree::serve
