// CallEvent and CallObserver: what a context tells of its calls.
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

// A CallEvent has happened in a context. Pointers are valid while it is told.
struct CallEvent {
  enum Kind : std::uint8_t {
    kWarmUp,      // key, axes, time: without what the call has enqueued
    kRecord,      // node, axes: it is in the tree, and its audit has ended
    kReplay,      // node, axes, time
    kVerify,      // node, divergence: of the replay from an eager run, or null
    kUnverified,  // node, unverified
    kSkip,        // skip: the call has run eagerly
    kEvict,       // node, limit
    kDemote,      // mismatch: the last move of a static input that will be copied from now on
    kDrop,        // node, what: it cannot be replayed any more
    kFailure,     // what, level: the call has thrown
    kCounters,    // tree: something has changed that the context counts
  };

  Kind kind;
  FunctionState* function = nullptr;  // of all but kCounters, and of `node`
  const Node* node = nullptr;
  const KeyState* key = nullptr;
  const CallAxes* axes = nullptr;
  std::chrono::nanoseconds time{0};
  std::string_view what;
  LogLevel level = LogLevel::kWarn;
  SkipReason limit = SkipReason::kPoolLimit;
  UnverifiedReason unverified = UnverifiedReason::kNoMemory;
  const AnnouncedSkip* skip = nullptr;
  const Divergence* divergence = nullptr;
  const Mismatch* mismatch = nullptr;
  const Tree* tree = nullptr;
};

// A CallObserver is told of the events of a context; this one ignores them.
//
// Thread safety: used by the thread that is inside the context.
class CallObserver {
 public:
  CallObserver() = default;
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;
  virtual ~CallObserver() = default;

  // Never fails a call. kReplay comes only while watches_replays().
  virtual void after(const CallEvent&) noexcept {}
  // Whether replays are watched: if not, a replay tells and asks nothing.
  virtual bool watches_replays() const noexcept { return false; }
  // Returns what lasts until a replay is launched, or null.
  virtual std::shared_ptr<const void> open_replay(Node&, const InputList&) noexcept { return {}; }
  // What is enqueued on the context's stream from now on is the launch.
  virtual void begin_launch() noexcept {}
  // Returns whether a skip would be written anywhere. `warns`: it is the first for its reason.
  virtual bool tells_skip(bool /*warns*/) const noexcept { return false; }
  // The call is about to run eagerly. Requires: why.skip_reason.
  virtual void announce_skip(const FunctionState&, const Explanation& /*why*/,
                             bool /*warns*/) noexcept {}
  // Returns what the last call that threw has thrown, or "". Any thread.
  virtual std::string last_failure(const FunctionState&) const { return {}; }

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
