// A CUDA Array Interface as JSON, for tools, tests and fuzzers.
#pragma once

#include <nlohmann/json.hpp>

#include "interop/exchange/cuda_array_interface.h"

namespace cgtree {

// Keys that the protocol does not know are ignored. Throws BoundaryError for what is no object.
InterfaceEntries entries_of_json(const nlohmann::json& json);

nlohmann::json json_of_entries(const InterfaceEntries& entries);

}  // namespace cgtree
