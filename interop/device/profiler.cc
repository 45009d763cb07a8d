// Passes ranges on to NVTX, in builds that have it.
#include "interop/device/profiler.h"

#ifdef CGTREE_WITH_CUDA
#include "interop/device/cuda/cupti.h"
#include "interop/device/cuda/nvtx.h"
#endif

namespace cgtree {

#ifdef CGTREE_WITH_CUDA

bool profiler_listens() noexcept {
  return nvtx::listens();
}
void ProfilerRange::push(const char* text, std::uint64_t payload) noexcept {
  nvtx::push(text, payload);
}
void ProfilerRange::pop() noexcept {
  nvtx::pop();
}
ProfileIds profile_ids(NodeHandle node, ExecHandle exec) noexcept {
  return cuda::cupti_ids(node, exec);
}
std::string why_no_profile_ids() {
  return cuda::why_no_cupti();
}

#else

bool profiler_listens() noexcept {
  return false;
}
void ProfilerRange::push(const char*, std::uint64_t) noexcept {
}
void ProfilerRange::pop() noexcept {
}
ProfileIds profile_ids(NodeHandle, ExecHandle) noexcept {
  return {};
}
std::string why_no_profile_ids() {
  return "cgtree was built without CUDA";
}

#endif

}  // namespace cgtree
