// Finds libnvrtc: the loader's own places first, then the toolkit this was built with.
#include "interop/target/cuda/nvrtc_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "base/error.h"

namespace cgtree::cuda {
namespace {

void* open_library() {
  const std::string name = fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000);
  if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const std::string reason = dlerror();
  // CGTREE_CUDA_ROOT comes from the build.
  const std::string beside = fmt::format("{}/lib64/{}", CGTREE_CUDA_ROOT, name);
  if (void* library = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  throw InvalidArgument(fmt::format(
      "cannot load NVRTC ({}): add the toolkit's library folder to LD_LIBRARY_PATH", reason));
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw InvalidArgument(fmt::format("the NVRTC library has no function {}", name));
  }
}

}  // namespace

NvrtcLibrary::NvrtcLibrary() {
  void* const library = open_library();
  find(library, "nvrtcVersion", version);
  find(library, "nvrtcGetErrorString", error_string);
  find(library, "nvrtcCreateProgram", create);
  find(library, "nvrtcDestroyProgram", destroy);
  find(library, "nvrtcAddNameExpression", add_name);
  find(library, "nvrtcCompileProgram", compile);
  find(library, "nvrtcGetLoweredName", lowered_name);
  find(library, "nvrtcGetProgramLogSize", log_size);
  find(library, "nvrtcGetProgramLog", log);
  find(library, "nvrtcGetCUBINSize", cubin_size);
  find(library, "nvrtcGetCUBIN", cubin);
  find(library, "nvrtcGetPTXSize", ptx_size);
  find(library, "nvrtcGetPTX", ptx);
}

}  // namespace cgtree::cuda
