// Finds libcublas: the loader's own places first, then the toolkit this was built with.
#include "examples/serve/cuda_blas_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "base/error.h"

namespace cgtree::serve {
namespace {

void* open_library() {
  const std::string name = fmt::format("libcublas.so.{}", CUBLAS_VER_MAJOR);
  if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const std::string reason = dlerror();
  // SERVE_CUDA_ROOT comes from the build.
  const std::string beside = fmt::format("{}/lib64/{}", SERVE_CUDA_ROOT, name);
  if (void* library = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  throw InvalidArgument(fmt::format(
      "cannot load cuBLAS ({}): add the toolkit's library folder to LD_LIBRARY_PATH, or use "
      "--device=host",
      reason));
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw InvalidArgument(fmt::format("the cuBLAS library has no function {}", name));
  }
}

}  // namespace

CublasLibrary::CublasLibrary() {
  void* const library = open_library();
  find(library, "cublasCreate_v2", create);
  find(library, "cublasDestroy_v2", destroy);
  find(library, "cublasSetStream_v2", set_stream);
  find(library, "cublasSetWorkspace_v2", set_workspace);
  find(library, "cublasSetMathMode", set_math_mode);
  find(library, "cublasSgemm_v2", sgemm);
}

}  // namespace cgtree::serve
