// CUPTI, only for the numbers by which profilers know the nodes of graphs. It is loaded at run
// time, and most machines do not have it.
#pragma once

#include <string>

#include "interop/device/node_contents.h"

namespace cgtree::cuda {

// As profile_ids().
ProfileIds cupti_ids(NodeHandle node, ExecHandle exec) noexcept;
// As why_no_profile_ids().
std::string why_no_cupti();

}  // namespace cgtree::cuda
