// compile(): compiles CUDA C++ to code for a GPU with NVRTC. It needs no GPU and no driver.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cgtree::cuda {

struct CompileRequest {
  std::string source;
  std::vector<std::string> names;    // __global__ functions, as C++ writes them
  std::string architecture;          // "sm_90": a cubin; "compute_90": PTX
  std::vector<std::string> options;  // for NVRTC
  std::string cache_folder;          // created if necessary; empty: nothing is stored
};

struct CompiledCode {
  std::string image;                       // cubin, or PTX with its terminating zero
  std::vector<std::string> lowered_names;  // the linker's names, in the order of the request
  std::string log;                         // output of the compiler, such as warnings
  bool is_cached = false;                  // found in the cache
};

// Throws InvalidArgument with the compiler's log, or if NVRTC is not found. Thread safety: any
// thread.
CompiledCode compile(const CompileRequest& request);

// Returns why compile() cannot work on this machine; empty if it can.
std::string nvrtc_problem();

}  // namespace cgtree::cuda
