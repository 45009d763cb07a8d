// A host device with a deliberate fault, to see that the conformance tests find it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "interop/device/device_api.h"

namespace cgtree::testing {

// Returns the names of the faults. tests/interop/mutation_test.py says which test finds each. One
// of them, "None", is no fault.
std::vector<std::string> mutants();

// Returns `target` with that fault. Requires that `target` outlives it, and a name of mutants().
std::unique_ptr<DeviceAPI> make_mutant(std::string_view name, DeviceAPI& target);

}  // namespace cgtree::testing
