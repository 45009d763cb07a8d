// Rehearsal: a recording that was captured but not instantiated, to see what it takes.
#pragma once

#include <utility>

#include "cgtree/record/recording.h"

namespace cgtree {

// A Rehearsal holds what a recording would hold, but for the executable graph: its tables, and the
// slots of its outputs, which keep their numbers. It is never replayed.
// Thread safety: made and destroyed by the thread that is inside the context.
class Rehearsal {
 public:
  explicit Rehearsal(Recording recording) noexcept : recording_(std::move(recording)) {
    for (const OutputRecord& output : recording_.outputs) {
      if (output.slot != nullptr) ++output.slot->recordings;
    }
  }
  ~Rehearsal() {
    for (const OutputRecord& output : recording_.outputs) {
      if (output.slot != nullptr) --output.slot->recordings;
    }
  }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  const Recording& recording() const noexcept { return recording_; }

 private:
  Recording recording_;
};

}  // namespace cgtree
