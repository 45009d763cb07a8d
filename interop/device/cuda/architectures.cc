// Reads lists of architectures.
#include "interop/device/cuda/architectures.h"

#include <algorithm>
#include <charconv>

namespace cgtree::cuda {
namespace {

constexpr ComputeCapability kOldest = {7, 5};

KernelCode code_of(std::string_view architecture, ComputeCapability gpu) noexcept {
  int number = 0;
  const char* const end = architecture.data() + architecture.size();
  const auto [rest, error] = std::from_chars(architecture.data(), end, number);
  if (error != std::errc()) return KernelCode::kNone;
  const ComputeCapability least = {number / 10, number % 10};
  const std::string_view kind(rest, static_cast<std::size_t>(end - rest));
  const bool is_for_family = kind.starts_with('f');
  if (gpu < least || (kind.starts_with('a') && gpu != least)) return KernelCode::kNone;
  const bool is_machine_code_for_it = gpu.major == least.major && !kind.ends_with("-virtual");
  if (is_machine_code_for_it) return KernelCode::kMachine;
  const bool has_ptx = !kind.ends_with("-real") && (!is_for_family || gpu.major == least.major);
  return has_ptx ? KernelCode::kPtx : KernelCode::kNone;
}

}  // namespace

std::string to_string(ComputeCapability gpu) {
  return std::to_string(gpu.major) + "." + std::to_string(gpu.minor);
}

KernelCode kernel_code(std::string_view architectures, ComputeCapability gpu) noexcept {
  KernelCode best = KernelCode::kNone;
  while (!architectures.empty()) {
    const std::string_view one = architectures.substr(0, architectures.find(','));
    best = std::max(best, code_of(one, gpu));
    architectures.remove_prefix(std::min(one.size() + 1, architectures.size()));
  }
  return best;
}

std::string why_no_kernels(std::string_view architectures, std::optional<ComputeCapability> gpu,
                           std::string_view versions) {
  const std::string which =
      gpu ? "has compute capability " + to_string(*gpu) : "does not tell its compute capability";
  if (gpu && *gpu < kOldest) {
    return "the GPU " + which + ", and cgtree needs " + to_string(kOldest) + " or later";
  }
  std::string why = "the GPU " + which + ", and cgtree's kernels were compiled for ";
  why += architectures;
  if (gpu && kernel_code(architectures, *gpu) == KernelCode::kPtx) {
    why += "; of these only PTX suits it, for which ";
    why += versions;
    why += ": update the driver, or ";
  } else {
    why += ": ";
  }
  return why + "compile them for it with CGTREE_CUDA_ARCHS or --//bazel/cuda:archs";
}

}  // namespace cgtree::cuda
