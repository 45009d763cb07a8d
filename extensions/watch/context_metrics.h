// metrics_of() and verification_of(): what monitors read of a context, as values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "cgtree/tree/tree_manager.h"
#include "cgtree/values/metrics.h"
#include "cgtree/values/verification.h"

namespace cgtree {

// Any thread, while calls go on.
ContextMetrics metrics_of(const TreeManager& context);
// By the name of the function.
std::map<std::string, ReplayTimes, std::less<>> replay_times_of(const TreeManager& context);
// By the number of the function.
std::map<std::uint32_t, FunctionCauses> causes_of(const TreeManager& context);
Verification verification_of(const TreeManager& context);

}  // namespace cgtree
