// metrics_of() and verification_of(): what monitors read of a context, as values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "cgtree/tree/engine.h"
#include "cgtree/values/metrics.h"
#include "cgtree/values/verification.h"

namespace cgtree {

// Any thread, while calls go on.
ContextMetrics metrics_of(const Engine& engine);
Verification verification_of(const Engine& engine);

}  // namespace cgtree
