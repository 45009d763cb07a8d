// Extension: takes part in the calls of a context: watches them, examines their graphs, compares
// their replays. extensions/README.md has a walk through one that a user writes.
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
class Tree;         // cgtree/tree/tree.h, which has the next three
struct FunctionState;
struct KeyState;
struct Node;
struct CallAxes;    // cgtree/axes/axis_plan.h
struct Divergence;  // base/error.h

// The next functions read facts of the core as plain values. An extension that asks for no more
// includes this header alone.

// Returns the name that compile() was given.
std::string_view name(const FunctionState& function) noexcept;
// Returns the name of the function of a recording.
std::string_view function_name(const Node& node) noexcept;
// Returns the number of a recording in snapshots, events and profilers. It is not given twice.
std::uint32_t number(const Node& node) noexcept;
// Returns the inputs of calls and their Key in words, "[batch=8] float32 {8, 4}" for instance.
std::string in_words(const KeyState& key);
// Returns the same of the calls that a recording serves.
std::string key_in_words(const Node& node);
// Returns the bytes that each replay of the recording copies: inputs that are not used in place,
// twice if they are copied back, and outputs into buffers. Padding counts; scalars do not.
std::size_t copied_bytes(const Node& node) noexcept;
// Returns how often the recording was replayed. It counts from kBeginReplay on.
std::uint64_t replays(const Node& node) noexcept;

// A skip that was announced, until its eager run has ended.
struct AnnouncedSkip {
  SkipReason reason = SkipReason::kDisabled;
  std::optional<Explanation> why;  // if it is to be written
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

// A CallEvent has happened in a context. It has the members that its kind names, and a node or else
// a function; the others have their defaults. Pointers are valid while it is told.
struct CallEvent {
  // The event, and the members that it has.
  enum Kind : std::uint8_t {
    kWarmUp,        // key, axes, time: without the work that is enqueued
    kRecord,        // node, axes: it is in the tree, and its audit has ended
    kBeginReplay,   // node: replays() counts it; after kReplay if the replay is verified
    kReplay,        // node, axes, time: of the host, until the work is enqueued
    kVerify,        // node, divergence or null: with one, stats() counts a failure, no replay
    kUnverified,    // node, unverified
    kSkipBegins,    // skip, level: the call is about to run eagerly; skip->why is there
    kSkip,          // skip: the call has run eagerly; `why` is there if wants() has .skips
    kEvict,         // node, limit: it goes because of the limit; stats() counts it
    kDemote,        // mismatch: the last move of a static input that will be copied from now on
    kDrop,          // node, what: it goes for another reason, and is no eviction of stats()
    kFailure,       // what, level: the call has thrown
    kPatchRefused,  // the device has refused to patch a node of the function
    kCounters,      // tree, and no function: something has changed that the context counts
    kDeviceError,   // what, code, and no function: met by a call or by Context::synchronize()
  };

  // Returns the name of the function; "" for kCounters and kDeviceError.
  std::string_view function_name() const noexcept;

  Kind kind;
  FunctionState* function = nullptr;  // null where there is a node
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

// An Extension takes part in the calls of one context. Each function does nothing by default. A
// factory in ContextOptions::extensions makes it when the rest of the context is there; it is
// destroyed when the context and its compiled functions are gone.
//
// Thread safety: its functions are called one at a time, by the thread that is inside the context:
// the thread of a call, of compile() or of explain(), and between calls any thread that takes
// memory back for another context. They must not call the context or its compiled functions.
// An exception of a function that is not noexcept fails the call, or compile(); Error is expected.
class Extension {
 public:
  // The events, beside those of each call, that an extension needs. A call pays for them.
  struct Wants {
    // kBeginReplay, kReplay, open_replay() and begin_launch() of each replay. Otherwise they come
    // only with replays that another extension wants, that are verified or that copy outputs.
    bool replays = false;
    bool skips = false;  // AnnouncedSkip::why, also of a skip that the log does not show
  };

  Extension() = default;
  Extension(const Extension&) = delete;
  Extension& operator=(const Extension&) = delete;
  virtual ~Extension() = default;

  // The place among the extensions of the context. Lower numbers are called first, equal ones in
  // the order of the list. Constant. The library has -300 (watch), -200 (audit), -100 (verify).
  virtual int order() const noexcept { return 0; }
  // The options on which the ranks of a group must agree, in words: part of their first vote. Ranks
  // with other words get GroupError.
  virtual std::string shared_options() const;

  // ---- To watch ----

  // An event has happened.
  virtual void after(const CallEvent&) noexcept {}
  // Asked when the context is made. May change if Extensions::note_wants() follows.
  virtual Wants wants() const noexcept { return {}; }
  // A replay is about to be launched. Returns an object that lasts until it is enqueued, or null.
  virtual std::shared_ptr<const void> open_replay(Node&, const InputList&) noexcept { return {}; }
  // The launch of that replay is next on the context's stream.
  virtual void begin_launch() noexcept {}
  // Work begins: "warm_up", "record", "skip" with its reason, "verify", "breaks" of a replay, or
  // "evict" with the limit as reason. Returns an object that lasts as long as the work, a range of
  // a profiler for instance, or null. `recording`: its number, or 0. The inputs may be null.
  virtual std::shared_ptr<const void> open_range(std::string_view /*what*/, const FunctionState&,
                                                 std::uint64_t /*recording*/, const InputList*,
                                                 std::optional<SkipReason>) const noexcept {
    return nullptr;
  }
  // Adds facts of earlier calls to the explanation of a call.
  virtual void explain(Explanation&, const FunctionState&, const Call&) const {}

  // ---- To take part ----

  // A function is compiled. Throws InvalidArgument for options that cannot be followed.
  virtual void check(const CompileOptions&) const {}
  // A call is about to be captured to be kept. `output_allocations`: those of its warm-up, none if
  // outputs are copied. The call is borrowed until the examination ends. Returns null for none. The
  // first that returns an examination examines alone: audit, unless the order of another is lower.
  // Another Error than InvalidArgument counts as a capture that has failed: the call runs eagerly.
  virtual std::unique_ptr<Examination> examine(
      const Call&, const std::vector<std::uint32_t>& output_allocations);
  // A recording that is held back in the tree is about to be replayed. Returns the comparison of
  // this replay with an eager run, whose attempt is open then, or null. Throws DeviceError,
  // GroupError. In a group all ranks return or throw alike, as they do for is_turn().
  virtual std::unique_ptr<ReplayCheck> before_replay(Node&, const Call&);
  // Returns whether before_replay() would compare the next replay of the node.
  virtual bool is_turn(const Node&) const noexcept { return false; }
};

}  // namespace cgtree
