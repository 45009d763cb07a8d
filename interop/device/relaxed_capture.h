// RelaxedCapture: while it lives, this thread may do what a capture of its own would forbid.
#pragma once

#include "interop/device/graph_api.h"

namespace cgtree {

// Taking and freeing memory and destroying executable graphs are "potentially unsafe" calls: while
// this thread captures they answer 900, and the capture is lost. In relaxed mode they are allowed;
// none of them touches a stream. Source: cudaThreadExchangeStreamCaptureMode.
class RelaxedCapture {
 public:
  // `graphs` may be null: then there is nothing to relax.
  explicit RelaxedCapture(GraphAPI* graphs) noexcept : graphs_(graphs) { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() noexcept {
    if (graphs_ != nullptr) static_cast<void>(graphs_->exchange_capture_mode(&mode_));
  }

  GraphAPI* graphs_;
  CaptureMode mode_ = CaptureMode::kRelaxed;  // outside: the mode to go back to
};

}  // namespace cgtree
