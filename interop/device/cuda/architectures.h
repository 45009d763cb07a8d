// Architectures for which kernels were compiled, and tests whether a GPU can run them.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace cgtree::cuda {

struct ComputeCapability {
  int major = 0;
  int minor = 0;

  auto operator<=>(const ComputeCapability&) const = default;
};

// Returns "9.0" and so on.
std::string to_string(ComputeCapability gpu);

enum class KernelCode {
  kNone,
  kPtx,      // compiled by the driver at its first use
  kMachine,  // runs as it is
};

// Returns the best code for a GPU among `architectures`, which are written as in CMake's
// CUDA_ARCHITECTURES, with commas: "75-virtual,90-real"; "80" is both. Machine code runs on the
// same major number with at least the same minor number, PTX on each number that is not smaller;
// code for "90a" runs on 9.0 alone, and for "100f" on 10.x. Source: CUDA C++ Programming Guide,
// "Compute Capabilities".
KernelCode kernel_code(std::string_view architectures, ComputeCapability gpu) noexcept;

// Returns why a GPU cannot run kernels that were compiled for `architectures`, and the remedy.
// `versions` are those of the driver and of the program, for a GPU that can only use PTX. No `gpu`:
// the driver does not report its number.
std::string why_no_kernels(std::string_view architectures, std::optional<ComputeCapability> gpu,
                           std::string_view versions);

}  // namespace cgtree::cuda
