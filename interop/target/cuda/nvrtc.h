// compile(): CUDA C++ to code for a GPU, with NVRTC. Needs no GPU and no driver.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cgtree::cuda {

struct CompileRequest {
  std::string source;
  std::vector<std::string> names;    // of __global__ functions, as C++ writes them
  std::string architecture;          // "sm_90": a cubin; "compute_90": PTX
  std::vector<std::string> options;  // NVRTC's
  std::string cache_folder;          // made if need be; empty: nothing is kept
};

struct CompiledCode {
  std::string image;                       // cubin, or PTX with its terminating zero
  std::vector<std::string> lowered_names;  // the linker's, in the order of the request
  std::string log;                         // what the compiler had to say, warnings for instance
  bool is_cached = false;                  // it was compiled before, perhaps by another process
};

// Throws InvalidArgument with the compiler's log, or that NVRTC is not there and where it was
// looked for. Any thread.
CompiledCode compile(const CompileRequest& request);

// Why compile() cannot work on this machine; empty if it can.
std::string nvrtc_problem();

}  // namespace cgtree::cuda
