// target.build.cuda: compiles with NVRTC and loads.
#pragma once

#include <string>
#include <vector>

#include "interop/target/cuda/nvrtc.h"
#include "interop/target/module.h"

namespace cgtree::cuda {

// As CodeGenerator::generate. The code stays loaded as long as the process.
std::vector<ModuleFunction> build_with_nvrtc(const KernelSet& kernels, const Target& target);

// What build_with_nvrtc() compiles.
CompileRequest request_of(const KernelSet& kernels, const Target& target);

}  // namespace cgtree::cuda
