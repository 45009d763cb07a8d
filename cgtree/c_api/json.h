// Statistics as JSON.
#pragma once

#include <string>

#include "cgtree/stats.h"

namespace cgtree::capi {

std::string to_json(const FunctionStats& stats);
std::string to_json(const ContextStats& stats);

}  // namespace cgtree::capi
