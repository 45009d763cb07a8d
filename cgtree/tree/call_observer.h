// CallObserver: what a context tells of its calls.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "base/log.h"
#include "cgtree/tree/tree.h"
#include "interop/device/profiler.h"

namespace cgtree {

// A skip that was announced, until its eager run has ended.
struct AnnouncedSkip {
  std::optional<Explanation> why;  // if it is to be written
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

// A CallObserver is told of what a context does when it has done it; this one ignores all of it.
// Telling never fails a call.
//
// Thread safety: used by the thread that is inside the context.
class CallObserver {
 public:
  CallObserver() = default;
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;
  virtual ~CallObserver() = default;

  // `us`: how long the call took, without what it has enqueued.
  virtual void warm_up(const FunctionState&, const KeyState&, const CallAxes&,
                       std::chrono::microseconds /*us*/) noexcept {}
  // The function's recording holds no work of its own.
  virtual void launched_nothing(const FunctionState&) noexcept {}
  // An output is handed out with the padded size.
  virtual void unsliced_output(const FunctionState&, std::string_view /*what*/) noexcept {}
  // Many recordings were made because outputs are held, and mark_step() was not called.
  virtual void held_outputs(const Node& /*last*/) noexcept {}
  virtual void record(const Node&, const CallAxes&) noexcept {}
  // The audit of the recording has ended; it may have found foreign memory.
  virtual void foreign_pointers(const Node&) noexcept {}
  // Whether replays are watched: if not, replay() is not called, and a replay asks nothing.
  virtual bool watches_replays() const noexcept { return false; }
  virtual void replay(const Node&, const CallAxes&, std::chrono::nanoseconds) noexcept {}
  // `divergence`: of the replay from an eager run, or null.
  virtual void verify(const Node&, const Divergence* /*divergence*/) noexcept {}
  virtual void unverified(const Node&, UnverifiedReason) noexcept {}
  // Returns whether a skip would be written anywhere. `warns`: it is the first for its reason.
  virtual bool tells_skip(bool /*warns*/) const noexcept { return false; }
  // The call is about to run eagerly. Requires: why.skip_reason.
  virtual void announce_skip(const FunctionState&, const Explanation& /*why*/,
                             bool /*warns*/) noexcept {}
  // It has run.
  virtual void skip(const FunctionState&, const AnnouncedSkip&) noexcept {}
  virtual void evict(const Node&, SkipReason /*limit*/) noexcept {}
  // The input will be copied; `last` is the move that was one too many.
  virtual void demote(const FunctionState&, const Mismatch& /*last*/) noexcept {}
  // The recording goes because it cannot be replayed any more.
  virtual void drop(const Node&, std::string_view /*what*/) noexcept {}
  virtual void failure(const FunctionState&, std::string_view /*what*/,
                       LogLevel /*level*/ = LogLevel::kWarn) noexcept {}
  // Something has changed that the context counts.
  virtual void counters(const Tree&) noexcept {}

  // Whether ranges are opened for a profiler that listened when the context was made.
  virtual bool is_profiled() const noexcept { return false; }
};

}  // namespace cgtree
