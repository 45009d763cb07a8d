// Statistics and reports as JSON.
#pragma once

#include <span>
#include <string>

#include "cgtree/precapture.h"
#include "cgtree/stats.h"
#include "cgtree/suggest_buckets.h"

namespace cgtree::capi {

std::string to_json(const FunctionStats& stats);
std::string to_json(const ContextStats& stats);
std::string to_json(std::span<const SizeCount> histogram);
std::string to_json(const Precaptured& entry);
std::string to_json(const PrecaptureReport& report);

}  // namespace cgtree::capi
