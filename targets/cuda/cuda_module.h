// The code generator for CUDA, target.build.cuda: compiles with NVRTC and loads the result.
#pragma once

#include <string>
#include <vector>

#include "targets/cuda/nvrtc.h"
#include "targets/module.h"

namespace cgtree::cuda {

// Implements CodeGenerator::generate. The code stays loaded as long as the process.
std::vector<ModuleFunction> build_with_nvrtc(const KernelSet& kernels, const Target& target);

// Implements CodeGenerator::problem.
std::string build_with_nvrtc_problem();

// Returns the request that build_with_nvrtc() compiles.
CompileRequest request_of(const KernelSet& kernels, const Target& target);

}  // namespace cgtree::cuda
