// A host device with a deliberate fault, which the conformance tests must find.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "interop/device/device_api.h"

namespace cgtree::testing {

// Returns the names of the faults. tests/interop/mutation_test.py has the test that finds each. The
// name "None" is a device without a fault.
std::vector<std::string> mutants();

// Returns `target` with that fault. Requires: `target` outlives it, and the name is one of
// mutants().
std::unique_ptr<DeviceAPI> make_mutant(std::string_view name, DeviceAPI& target);

}  // namespace cgtree::testing
