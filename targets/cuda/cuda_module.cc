// Compiles kernels for the target, loads the code, and finds the kernels in it.
#include "targets/cuda/cuda_module.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/cuda/cuda_device.h"
#include "interop/device/cuda/driver.h"
#include "interop/device/cuda/runtime.h"
#include "interop/device/cuda/versions.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "targets/cuda/code_cache.h"

namespace cgtree::cuda {
namespace {

#if CUDART_VERSION >= 12080
// Returns nothing if the driver does not support the query.
std::optional<std::vector<std::size_t>> parameters_of(CUkernel kernel) {
  const ModuleDriver* const driver = module_driver();
  if (driver == nullptr) return std::nullopt;
  std::vector<std::size_t> bytes;
  std::size_t offset = 0;
  std::size_t size = 0;
  // The call returns CUDA_ERROR_INVALID_VALUE after the last parameter.
  while (driver->kernel_get_param_info(kernel, bytes.size(), &offset, &size) == CUDA_SUCCESS)
    bytes.push_back(size);
  return bytes;
}
#endif

}  // namespace

CompileRequest request_of(const KernelSet& kernels, const Target& target) {
  if (kernels.cuda_source.empty()) {
    throw InvalidArgument(
        str_format("kernel '{}' has no CUDA source: set cuda_source, or build for the host device",
                   kernels.kernels.front().name));
  }
  CompileRequest request{.source = kernels.cuda_source, .cache_folder = default_cache_folder()};
  for (const NamedKernel& kernel : kernels.kernels)
    request.names.push_back(kernel.name);
  request.architecture = target.option<std::string>("arch").value();
  if (target.option<bool>("fast_math").value()) request.options.push_back("--use_fast_math");
  for (const std::string& option : target.option<std::vector<std::string>>("nvrtc_options")
                                       .value_or(std::vector<std::string>()))
    request.options.push_back(option);
  return request;
}

#if CUDART_VERSION >= 12080
std::string build_with_nvrtc_problem() {
  return nvrtc_problem();
}

std::vector<ModuleFunction> build_with_nvrtc(const KernelSet& kernels, const Target& target) {
  const CompileRequest request = request_of(kernels, target);
  const CompiledCode compiled = compile(request);
  const std::string what =
      str_format("load kernels '{}' for {}", joined(request.names, "', '"), request.architecture);
  const RelaxedCapture relaxed(cuda_device_api().graphs());
  Library library = nullptr;
  check(to_code(load_library(&library, compiled.image.data())), what);
  std::unique_ptr<std::remove_pointer_t<Library>, decltype(&unload_library)> code(library,
                                                                                  &unload_library);
  std::vector<ModuleFunction> functions;
  for (std::size_t i = 0; i < request.names.size(); ++i) {
    CUkernel kernel = nullptr;
    check(to_code(find_kernel(&kernel, code.get(), compiled.lowered_names[i].c_str())), what);
    // A cudaKernel_t may replace the address of a __global__ function. Source: CUDA Runtime API
    // 13.0, cudaLaunchKernel, cudaGraphAddKernelNode.
    functions.push_back({request.names[i], nullptr, kernel, parameters_of(kernel)});
  }
  static_cast<void>(code.release());  // the code stays loaded
  return functions;
}
#else
std::string build_with_nvrtc_problem() {
  return str_format(
      "kernels that are compiled at run time need CUDA 12.8 or later, and this program was built "
      "with {}.{}",
      CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

std::vector<ModuleFunction> build_with_nvrtc(const KernelSet&, const Target&) {
  throw InvalidArgument(build_with_nvrtc_problem());
}
#endif

}  // namespace cgtree::cuda
