// The watch of a process, for the functions that stand between it and the driver.
#pragma once

#include "check/cuda/watch.h"

namespace cgtree::graph_check {

// Called by cuInit(), perhaps on several threads. Returns null if nothing can be watched.
Watch* watch_of_process() noexcept;

}  // namespace cgtree::graph_check
