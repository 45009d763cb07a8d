// MarkedRecording: executable graphs of a recording that write down how far they have come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cgtree/check/mark_plan.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/record/recording.h"

namespace cgtree {

// A MarkedRecording belongs to a recording, whose graphs have got a memset of four bytes at each
// mark, and of all marks in front. The memory is pinned: the host reads it while the device works,
// and as long as it hangs. Executable graphs that were made of the graphs before are as they were.
//
// Thread safety: used by the thread that is inside the context, but for marks() and is_reached().
class MarkedRecording {
 public:
  // Returns why a recording cannot leave marks, or an empty text.
  static std::string why_not(const Recording& recording);

  // Requires: why_not(recording) is empty. `memory`: borrowed. Throws OutOfMemory, DeviceError; the
  // recording can be replayed as before then.
  MarkedRecording(Recording& recording, ContextMemory& memory);
  ~MarkedRecording();
  MarkedRecording(const MarkedRecording&) = delete;
  MarkedRecording& operator=(const MarkedRecording&) = delete;

  // Exchanges the executable graphs of the recording and these, all of whose root and tail nodes
  // are patched at the next launch.
  void exchange(Recording& recording) noexcept;

  const std::vector<PlannedMark>& marks() const noexcept { return marks_; }
  // As of the launch that has begun last.
  bool is_reached(std::size_t mark) const noexcept;

 private:
  ContextMemory& memory_;
  std::vector<PlannedMark> marks_;  // over all graphs
  Tensor page_;                     // a word for each mark; null without marks
  std::vector<GraphExec> execs_;    // in the order of the recording's graphs
};

// Returns what a device has written to a word of pinned memory, now.
std::uint32_t read_word(const Tensor& page, std::size_t word) noexcept;
// Clears it. Requires: no work that writes it is enqueued.
void clear_word(const Tensor& page, std::size_t word) noexcept;
// Notes that work on `stream` may use the memory of the tensor, and releases it.
void release_page(Tensor page, StreamRef stream) noexcept;

}  // namespace cgtree
