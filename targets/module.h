// KernelSet and Module: named kernels, and the result of a code generator for a target.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interop/device/kernel.h"
#include "targets/target.h"

namespace cgtree {

// A KernelSet is the input of a code generator.
struct NamedKernel {
  // For CUDA, the name of a __global__ function as C++ writes it: "scale", "ns::scale<float>".
  std::string name;
  HostBody host = nullptr;                   // null: the kernel does not run on the host device
  std::vector<std::size_t> parameter_bytes;  // sizes of the parameters of `host`
};

struct KernelSet {
  std::string cuda_source;  // CUDA C++ with all the kernels; empty: not for GPUs
  std::vector<NamedKernel> kernels;

  // Adds a kernel with a host body `void(const LaunchDims&, parameters...)`.
  template <auto Body>
  KernelSet& add(std::string name) {
    using Entry = detail::HostEntry<Body, decltype(Body)>;
    kernels.push_back({std::move(name), &Entry::run,
                       bytes_of(static_cast<typename Entry::KernelType*>(nullptr))});
    return *this;
  }
  // Adds a kernel that only the CUDA source has.
  KernelSet& add(std::string name) {
    kernels.push_back({std::move(name), nullptr, {}});
    return *this;
  }

 private:
  template <typename... Parameters>
  static std::vector<std::size_t> bytes_of(Kernel<Parameters...>*) {
    return {sizeof(Parameters)...};
  }
};

// A ModuleFunction is a code generator's result for one kernel.
struct ModuleFunction {
  std::string name;
  HostBody host = nullptr;
  const void* cuda = nullptr;  // as in KernelFunction; a cudaKernel_t is accepted
  // Sizes of the parameters; empty if the generator does not know them.
  std::optional<std::vector<std::size_t>> parameter_bytes;
};

// A Module refers to the result of build_module(), which lives as long as the process, because
// recordings launch it. Its kernels are found by name and launched like any other.
//
// Thread safety: any thread.
class Module {
 public:
  struct Contents {
    Target target;
    std::vector<ModuleFunction> functions;
  };
  // build_module() calls this. Requires that `contents` lives as long as the process.
  explicit Module(const Contents& contents) noexcept : contents_(&contents) {}

  const Target& target() const noexcept { return contents_->target; }
  std::vector<std::string> names() const;

  // Returns a kernel for launch(). Throws InvalidArgument that lists the known names if there is
  // none of this name, and if the kernel has another number of parameters, or parameters of other
  // sizes.
  template <typename... Parameters>
  Kernel<Parameters...> kernel(std::string_view name) const {
    return {find(name, {sizeof(Parameters)...})};
  }

 private:
  KernelFunction find(std::string_view name, const std::vector<std::size_t>& bytes) const;

  const Contents* contents_;
};

}  // namespace cgtree
