// CallObserver: what a context tells of its calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "cgtree/tree/decide.h"
#include "cgtree/tree/tree.h"

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
  virtual void warm_up(FunctionState&, const KeyState&, const CallAxes&,
                       std::chrono::microseconds /*us*/) noexcept {}
  // The recording is in the tree, and its audit has ended.
  virtual void record(const Node&, const CallAxes&) noexcept {}
  // Whether replays are watched: if not, a replay tells and asks nothing.
  virtual bool watches_replays() const noexcept { return false; }
  // The next three are of one replay. Returns what lasts until it is launched, or null.
  virtual std::shared_ptr<const void> open_replay(Node&, const InputList&) noexcept { return {}; }
  // What is enqueued on the context's stream from now on is the launch.
  virtual void begin_launch() noexcept {}
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
  // Returns what the last call that threw has thrown, or "". Any thread.
  virtual std::string last_failure(const FunctionState&) const { return {}; }
  // Something has changed that the context counts.
  virtual void counters(const Tree&) noexcept {}

  // Returns a range on the timeline of a profiler that lasts as long as the result, or null.
  virtual std::shared_ptr<const void> open_range(std::string_view /*what*/, const FunctionState&,
                                                 std::uint64_t /*recording*/,
                                                 const InputList* /*inputs*/ = nullptr,
                                                 std::optional<SkipReason> = {}) const noexcept {
    return nullptr;
  }

  // The next three say it in words; a core that is alone has the names of reasons.
  virtual void put_into_words(Explanation&, const Situation&, const Call&) const {}
  virtual std::vector<std::string> notes_on(const Decision&, const Call&) const { return {}; }
  // For errors. Requires: why.skip_reason.
  virtual std::string text_of(const Explanation& why) const {
    return std::string(name(*why.skip_reason));
  }
};

}  // namespace cgtree
