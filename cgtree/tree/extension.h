// Extension: takes part in the calls of a context: watches them, examines their graphs, compares
// their replays.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cgtree/record/examination.h"
#include "cgtree/record/step.h"
#include "cgtree/tree/tree.h"
#include "interop/random/generator.h"

namespace cgtree {

// A skip that was announced, until its eager run has ended.
struct AnnouncedSkip {
  SkipReason reason = SkipReason::kDisabled;
  std::optional<Explanation> why;  // if it is to be written
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

// A CallEvent has happened in a context. Pointers are valid while it is told.
struct CallEvent {
  enum Kind : std::uint8_t {
    kWarmUp,        // key, axes, time: without the work that is enqueued
    kRecord,        // node, axes: it is in the tree, and its audit has ended
    kBeginReplay,   // node: the replay counts from now on, as in note_replay()
    kReplay,        // node, axes, time
    kVerify,        // node, divergence: of the replay from an eager run, or null
    kUnverified,    // node, unverified
    kSkipBegins,    // skip, level: the call is about to run eagerly; skip->why is there
    kSkip,          // skip: the call has run eagerly
    kEvict,         // node, limit
    kDemote,        // mismatch: the last move of a static input that will be copied from now on
    kDrop,          // node, what: it cannot be replayed any more
    kFailure,       // what, level: the call has thrown
    kPatchRefused,  // the device has refused to patch a node of the function
    kCounters,      // tree: something has changed that the context counts
  };

  Kind kind;
  FunctionState* function = nullptr;  // of all but kCounters, and of `node`
  Node* node = nullptr;
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

// A ReplayCheck compares a replay with an eager run of the same call. The extension that has made
// it lets the replay and the run be attempts, on whose outcome the ranks of a group vote.
class ReplayCheck {
 public:
  virtual ~ReplayCheck() = default;

  // The node was replayed, and the eager run begins: compare() or leave_out() must follow. Gives
  // all that the work writes the contents from before the replay, and draws the numbers of the
  // replay again, until compare() returns or this is destroyed. Throws DeviceError, GroupError.
  virtual void begin_eager_run() = 0;
  // How the work is to run: with the call's actual sizes, so that the effect of padding shows.
  // Padded alike if the work draws, because other sizes draw other numbers, and if it is an
  // engine's, whose sizes are in its key.
  virtual StepRun run_as() const noexcept = 0;
  // Returns the source of random numbers in the eager run. Requires: begin_eager_run().
  virtual DrawHandler& draws() noexcept = 0;
  // Compares, and gives all that the work writes the contents that the replay has left, however
  // this ends. Waits for the stream. `replayed`, `eager`: the outputs of the two. Requires: the
  // eager run is over. Throws VerifyError, DeviceError, and GroupError if another rank has thrown.
  virtual void compare(std::span<const Tensor> replayed, std::span<const Tensor> eager) = 0;
  // There was no memory for the eager run. Throws GroupError.
  virtual void leave_out(std::string_view what) = 0;
};

// An Extension takes part in the calls of one context. Each function does nothing by default.
//
// Thread safety: used by the thread that is inside the context.
class Extension {
 public:
  // The events, beside those of each call, that an extension needs.
  struct Wants {
    bool replays = false;  // kBeginReplay, kReplay, open_replay(): else a replay tells nothing
    bool skips = false;    // AnnouncedSkip::why, also of a skip that the log does not show
  };

  Extension() = default;
  Extension(const Extension&) = delete;
  Extension& operator=(const Extension&) = delete;
  virtual ~Extension() = default;

  // A function is compiled. Throws InvalidArgument for options that cannot be followed.
  virtual void check(const CompileOptions&) const {}

  // A call is about to be captured to be kept. `output_allocations`: those of its warm-up. Both are
  // borrowed until the examination ends. Returns null for none. One extension of a context
  // examines.
  virtual std::unique_ptr<Examination> examine(
      const Call&, const std::vector<std::uint32_t>& /*output_allocations*/) {
    return nullptr;
  }

  // A recording that is held back in the tree is about to be replayed. Returns the comparison of
  // this replay with an eager run, whose attempt is open then, or null. Throws DeviceError,
  // GroupError.
  virtual std::unique_ptr<ReplayCheck> before_replay(Node&, const Call&) { return nullptr; }
  // Returns whether before_replay() would compare the next replay of the node.
  virtual bool is_turn(const Node&) const noexcept { return false; }

  // Never fails a call.
  virtual void after(const CallEvent&) noexcept {}
  // May change: Extensions::note_wants() must follow.
  virtual Wants wants() const noexcept { return {}; }
  // Returns an object that lasts until a replay is launched, or null.
  virtual std::shared_ptr<const void> open_replay(Node&, const InputList&) noexcept { return {}; }
  // The launch is next on the context's stream.
  virtual void begin_launch() noexcept {}
  // Returns a range on the timeline of a profiler that lasts as long as the result, or null.
  virtual std::shared_ptr<const void> open_range(std::string_view /*what*/, const FunctionState&,
                                                 std::uint64_t /*recording*/, const InputList*,
                                                 std::optional<SkipReason>) const noexcept {
    return nullptr;
  }
  // Adds facts of earlier calls to the explanation of a call.
  virtual void explain(Explanation&, const FunctionState&, const Call&) const {}
};

// The extensions of a context, in the order in which they are told. The build chooses them:
// //extensions has all, //extensions/none has none.
class Extensions {
 public:
  using Held = std::vector<std::shared_ptr<const void>>;  // by open_replay(), open_range()

  void add(std::unique_ptr<Extension> extension) {
    list_.push_back(std::move(extension));
    note_wants();
  }
  void note_wants() noexcept {
    wants_ = {};
    for (const auto& extension : list_) {
      wants_.replays |= extension->wants().replays;
      wants_.skips |= extension->wants().skips;
    }
  }
  const Extension::Wants& wants() const noexcept { return wants_; }
  // Returns the extension of this type, or null.
  template <typename Type>
  Type* find() const noexcept {
    for (const auto& extension : list_)
      if (auto* const found = dynamic_cast<Type*>(extension.get())) return found;
    return nullptr;
  }

  // Those of Extension.
  void check(const CompileOptions& options) const;
  std::unique_ptr<Examination> examine(const Call& call,
                                       const std::vector<std::uint32_t>& output_allocations);
  bool is_turn(const Node& node) const noexcept;
  std::unique_ptr<ReplayCheck> before_replay(Node& node, const Call& call);
  void after(const CallEvent& event) noexcept;
  Held open_replay(Node& node, const InputList& inputs) noexcept;
  void begin_launch() noexcept;
  Held open_range(std::string_view what, const FunctionState& function, std::uint64_t recording,
                  const InputList* inputs = nullptr,
                  std::optional<SkipReason> reason = {}) const noexcept;
  void explain(Explanation& why, const FunctionState& function, const Call& call) const;

 private:
  std::vector<std::unique_ptr<Extension>> list_;
  Extension::Wants wants_;
};

}  // namespace cgtree
