// build_module(): makes a module of named kernels for a target, by the code generator of its kind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "targets/module.h"

namespace cgtree {

// A CodeGenerator serves TVM's key "target.build.<kind>".
struct CodeGenerator {
  std::string name;  // the kind of target
  // Returns all kernels of the set, in their order. Throws InvalidArgument with the reason if it
  // cannot.
  std::vector<ModuleFunction> (*generate)(const KernelSet& kernels, const Target& target) = nullptr;
  // Returns why it cannot work on this machine; empty if it can. A null pointer: always works.
  std::string (*problem)() = nullptr;
};

// The built-in generators are "host", which binds C++ functions, and "cuda", which compiles with
// NVRTC and loads for the GPUs of the target's architecture. A GPU loads code at its first launch,
// which should not be inside a capture; the warm-up of a step function is such a launch.
//
// The same kernels and target give the same module, which is built once. Throws InvalidArgument for
// a kind without a generator, for kernels that the set lacks for the kind, for a set without
// kernels or with duplicate names, and with the compiler's log; DeviceError if the code cannot be
// loaded. Thread safety: any thread; one builds at a time.
Module build_module(const KernelSet& kernels, const Target& target);

// Returns why build_module() cannot work on this machine for such a target; empty if it can.
std::string build_problem(std::string_view kind);

// Throws InvalidArgument for a kind that has a generator, and if users have registered 32 already.
// Thread safety: any thread.
void register_code_generator(CodeGenerator generator);

}  // namespace cgtree
