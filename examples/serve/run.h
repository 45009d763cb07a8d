// run() and run_soak(): the whole job, from options to a report.
#pragma once

#include "examples/serve/options.h"
#include "examples/serve/report.h"
#include "examples/serve/soak.h"

namespace cgtree::serve {

// Checks everything that can be checked before serving, then serves; writes the JSON file if asked
// to. Throws cgtree::Error.
Report run(const Options& options);
SoakReport run_soak(const Options& options);

}  // namespace cgtree::serve
