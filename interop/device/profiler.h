// Ranges on the timeline of a profiler, in the domain "cgtree" of NVTX. Without a profiler in the
// process, and in builds without CUDA, a range only tests a bool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/format.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// Returns the numbers of a node of the cuda device, if CUPTI is available: the first call loads
// libcupti. `exec`: made from the node's graph; may be null.
ProfileIds profile_ids(NodeHandle node, ExecHandle exec) noexcept;
// Returns why profile_ids() returns no numbers, or "".
std::string why_no_profile_ids();

// Returns whether a profiler listens: Nsight Systems, or the library that NVTX_INJECTION64_PATH
// names. NVTX looks for it once in a process, at the first call.
bool profiler_listens() noexcept;

// A ProfilerRange is a range of the calling thread, open during its lifetime. Ranges of a thread
// nest.
class ProfilerRange {
 public:
  // Opens nothing unless `listens`. The text is cut after 511 bytes. Does not allocate.
  template <typename... Arguments>
  ProfilerRange(bool listens, std::uint64_t payload, PatternFor<Arguments...> pattern,
                const Arguments&... arguments) noexcept
      : is_open_(listens) {
    if (!listens) return;
    char text[512];
    format_list_into(text, sizeof text, pattern.text(), {FormatArgument(arguments)...});
    push(text, payload);
  }
  ~ProfilerRange() {
    if (is_open_) pop();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  static void push(const char* text, std::uint64_t payload) noexcept;
  static void pop() noexcept;

  const bool is_open_;
};

}  // namespace cgtree
