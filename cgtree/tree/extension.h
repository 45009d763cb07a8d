// Extension: takes part in the calls of a context: watches them, examines their graphs, compares
// their replays. extensions/README.md explains one that a user writes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/options.h"
#include "cgtree/values/stats.h"

namespace cgtree {

class Call;         // cgtree/record/call.h
class Examination;  // cgtree/record/examination.h
class InputList;    // cgtree/values/input_list.h
class ReplayCheck;  // cgtree/tree/replay_check.h
class Tree;         // cgtree/tree/tree.h, which also has the next three
struct FunctionState;
struct KeyState;
struct Node;
struct CallAxes;    // cgtree/axes/axis_plan.h
struct Divergence;  // base/error.h

// The next functions read facts of the core as plain values. An extension that needs no more
// includes this header alone.

// Returns the name given to compile().
std::string_view name(const FunctionState& function) noexcept;
// Returns the name of the function of a recording.
std::string_view function_name(const Node& node) noexcept;
// Returns the number of a recording in snapshots, events and profilers. Numbers are not reused.
std::uint32_t number(const Node& node) noexcept;
// Returns the inputs of calls and their Key in words, such as "[batch=8] float32 {8, 4}".
std::string in_words(const KeyState& key);
// Returns the same for the calls that a recording serves.
std::string key_in_words(const Node& node);
// Returns the bytes that each replay of the recording copies: inputs that are not used in place,
// counted twice if they are copied back, and outputs into buffers. Padding counts; scalars do not.
std::size_t copied_bytes(const Node& node) noexcept;
// Returns the number of replays of the recording. A replay counts from kBeginReplay on.
std::uint64_t replays(const Node& node) noexcept;

// An AnnouncedSkip is a skip that was announced and whose eager run has not ended.
struct AnnouncedSkip {
  SkipReason reason = SkipReason::kDisabled;
  std::optional<Explanation> why;  // set if it is to be written
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

// A CallEvent is an event in a context. It has the members that its kind names, and either a node
// or a function; other members have their defaults. Pointers are valid during Extension::after().
struct CallEvent {
  // The event, and the members that it has.
  enum Kind : std::uint8_t {
    kWarmUp,        // key, axes, time: of the host, without the enqueued work
    kRecord,        // node, axes: it is in the tree, and its audit has ended
    kBeginReplay,   // node: replays() counts it; after kReplay if the replay is verified
    kReplay,        // node, axes, time: of the host, until the work is enqueued
    kVerify,        // node, divergence or null: if set, stats() counts a failure and no replay
    kUnverified,    // node, unverified
    kSkipBegins,    // skip, level: the call is about to run eagerly; skip->why is there
    kSkip,          // skip: the eager run has ended; `why` is set if wants() has .skips
    kEvict,         // node, limit: evicted because of the limit; stats() counts it
    kDemote,        // mismatch: the last move of a static input that will be copied from now on
    kDrop,          // node, `what`: dropped for another reason; not an eviction in stats()
    kFailure,       // `what`, level: the call threw
    kPatchRefused,  // the device refused to patch a node of the function
    kCounters,      // tree, without a function: a count of the context changed
    kDeviceError,   // `what`, code, no function: met by a call or by Context::synchronize()
  };

  // Returns the name of the function; "" for kCounters and kDeviceError.
  std::string_view function_name() const noexcept;

  Kind kind;
  FunctionState* function = nullptr;  // null if there is a node
  Node* node = nullptr;               // the recording
  const KeyState* key = nullptr;
  const CallAxes* axes = nullptr;
  std::chrono::nanoseconds time{0};
  std::string_view what;
  int code = 0;  // of Code
  LogLevel level = LogLevel::kWarn;
  SkipReason limit = SkipReason::kPoolLimit;
  UnverifiedReason unverified = UnverifiedReason::kNoMemory;
  const AnnouncedSkip* skip = nullptr;
  const Divergence* divergence = nullptr;
  const Mismatch* mismatch = nullptr;
  const Tree* tree = nullptr;
};

// An Extension takes part in the calls of one context. By default each function does nothing. A
// factory in ContextOptions::extensions makes it when the rest of the context exists; it is
// destroyed with the last of the context and its compiled functions.
//
// Thread safety: its functions are called one at a time, by the thread that is inside the context:
// the thread of a call, of compile() or of explain(), and between calls any thread that takes
// memory back for another context. They must not call the context or its compiled functions. An
// exception of a function that is not noexcept fails the call, or compile(); Error is expected.
class Extension {
 public:
  // The events that an extension needs besides those of each call. They cost time in calls.
  struct Wants {
    // kBeginReplay, kReplay, open_replay() and begin_launch() of each replay. If false, they come
    // only with replays that another extension wants, that are verified, or that copy outputs.
    bool replays = false;
    bool skips = false;  // AnnouncedSkip::why, also for a skip that is not logged
  };

  Extension() = default;
  Extension(const Extension&) = delete;
  Extension& operator=(const Extension&) = delete;
  virtual ~Extension() = default;

  // The place among the extensions of the context. Lower numbers are called first, equal numbers in
  // the order of the list. Constant. The library has -300 (watch), -200 (audit), -100 (verify).
  virtual int order() const noexcept { return 0; }
  // The options on which the ranks of a group must agree, in words: part of their first vote. Ranks
  // with other words get GroupError.
  virtual std::string shared_options() const;

  // ---- To watch ----

  // Called after an event.
  virtual void after(const CallEvent&) noexcept {}
  // Returns the events that it needs; called when the context is made. The result may change later
  // if Extensions::note_wants() follows.
  virtual Wants wants() const noexcept { return {}; }
  // Called before a replay is launched. Returns an object that lives until it is enqueued, or null.
  virtual std::shared_ptr<const void> open_replay(Node&, const InputList&) noexcept { return {}; }
  // Called when the launch of that replay is next on the context's stream.
  virtual void begin_launch() noexcept {}
  // Called when work begins: "warm_up", "record", "skip" with its reason, "verify", "breaks" of a
  // replay, or "evict" with the limit as reason. Returns an object that lives as long as the work,
  // such as a range of a profiler, or null. `recording`: its number, or 0. The inputs may be null.
  virtual std::shared_ptr<const void> open_range(std::string_view /*what*/, const FunctionState&,
                                                 std::uint64_t /*recording*/, const InputList*,
                                                 std::optional<SkipReason>) const noexcept {
    return nullptr;
  }
  // Adds facts of earlier calls to the explanation of a call.
  virtual void explain(Explanation&, const FunctionState&, const Call&) const {}

  // ---- To take part ----

  // Called when a function is compiled. Throws InvalidArgument for options that it refuses.
  virtual void check(const CompileOptions&) const {}
  // Called before a call is captured for a recording. `output_allocations`: the allocations of its
  // warm-up that became outputs, empty if outputs are copied. The call is borrowed until the
  // examination ends. Returns null for no examination. The first extension that returns an
  // examination examines alone: audit, unless another has a lower order. An Error other than
  // InvalidArgument counts as a failed capture: the call runs eagerly.
  virtual std::unique_ptr<Examination> examine(
      const Call&, const std::vector<std::uint32_t>& output_allocations);
  // Called before the replay of a recording that is held back in the tree. Returns the comparison
  // of this replay with an eager run, whose attempt is then open, or null. Throws DeviceError,
  // GroupError. In a group all ranks return or throw alike, as for is_turn().
  virtual std::unique_ptr<ReplayCheck> before_replay(Node&, const Call&);
  // Returns whether before_replay() would compare the next replay of the node.
  virtual bool is_turn(const Node&) const noexcept { return false; }
};

}  // namespace cgtree
