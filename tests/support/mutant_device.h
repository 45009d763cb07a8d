// A host device with a deliberate fault, to see that the conformance tests find it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "interop/device/device_api.h"

namespace cgtree::testing {

// tests/interop/mutation_test.py says what finds each. One of them, "None", has no fault.
std::vector<std::string> mutants();

// `target` with that fault; must outlive it. Requires a name of mutants().
std::unique_ptr<DeviceAPI> make_mutant(std::string_view name, DeviceAPI& target);

}  // namespace cgtree::testing
