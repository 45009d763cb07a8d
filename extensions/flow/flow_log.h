// FlowLog: reports the bodies of a capture, and loops that hand out rows.
#pragma once

#include <functional>
#include <span>

#include "interop/device/stream.h"

namespace cgtree {

// An open FlowLog is notified of the streams on which its thread captures bodies.
//
// Thread safety: used by the thread that captures.
class FlowLog {
 public:
  // look(stream) is called just before the capture of a body ends there. It must not throw.
  using Look = std::function<void(StreamRef)>;
  explicit FlowLog(Look look = nullptr) noexcept;
  ~FlowLog() { close(); }
  FlowLog(const FlowLog&) = delete;
  FlowLog& operator=(const FlowLog&) = delete;

  // Ends the notifications.
  void close() noexcept;

  // True if a loop hands out rows, which an eager run beside a replay would hand out again.
  bool hands_out_rows() const noexcept { return hands_out_rows_; }

  // The streams on which bodies are captured on this thread, the innermost last.
  static std::span<const StreamRef> streams() noexcept;

  // While a BodyOn lives, a body is captured on its stream. Throws std::bad_alloc.
  class BodyOn {
   public:
    explicit BodyOn(StreamRef stream);
    ~BodyOn();
    BodyOn(const BodyOn&) = delete;
    BodyOn& operator=(const BodyOn&) = delete;
  };

  // Tells all open logs of the thread that a loop hands out rows.
  static void note_rows() noexcept;

 private:
  const Look look_;
  FlowLog* next_;  // open on the same thread
  bool hands_out_rows_ = false;
};

}  // namespace cgtree
