// build_module(): from named kernels and a target to a module, by the kind's code generator.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "interop/target/module.h"

namespace cgtree {

// What stands behind TVM's key "target.build.<kind>".
struct CodeGenerator {
  std::string name;  // of the kind of target
  // Makes all the kernels of the set, in their order, or throws InvalidArgument that says why not.
  std::vector<ModuleFunction> (*generate)(const KernelSet& kernels, const Target& target) = nullptr;
  // Why it cannot work on this machine; empty if it can. Null: it always can.
  std::string (*problem)() = nullptr;
};

// Ours are for "host", which binds C++ functions, and for "cuda", which compiles with NVRTC and
// loads for the GPUs of the target's architecture: the first launch should not be in a capture, and
// a warm-up sees to that.
//
// The same kernels and target give the same module, built once. Throws InvalidArgument for a kind
// without a generator, for kernels that the set does not have for it, for no kernels or two of one
// name, and with the compiler's log; DeviceError when the code cannot be loaded. Any thread; one
// builds at a time.
Module build_module(const KernelSet& kernels, const Target& target);

// Why build_module() cannot work on this machine for such a target; empty if it can.
std::string build_problem(std::string_view kind);

// Throws InvalidArgument for a kind that has one already, and when there are 32 of users' already.
// Any thread.
void register_code_generator(CodeGenerator generator);

}  // namespace cgtree
