// SkipReason, Mismatch and Explanation: the outcome of a call, and its reasons.
//
// Decisions, explain(), events, snapshots and error messages share these words: a SkipReason says
// why a call runs without a graph, a Mismatch says why one recording does not fit it, and an
// Explanation carries both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cgtree {

// A SkipReason says why a call runs eagerly on purpose.
enum class SkipReason {
  kDisabled,            // CompileOptions::enabled is false
  kNoGraphScope,        // called while a NoGraph lives on the thread
  kNoGraphs,            // the device has no graphs
  kNestedCall,          // called inside another step function, whose recording includes this call
  kForeignCapture,      // the caller's or the context's stream is being captured by other code
  kOtherDevice,         // an input lives on another device
  kOtherPartition,      // the stream runs on other processors than recordings are made for
  kOverlappingInputs,   // two inputs share memory, one is written and one copied
  kCaptureFailed,       // an earlier capture failed: the function makes calls that cannot be
                        // captured
  kCaptureDisturbed,    // another thread invalidated an earlier capture
  kKeepsTensor,         // the function keeps a tensor that it made while it was captured
  kStaticChanged,       // a static input moved: OnStaticChange::kThrow
  kFunctionLimit,       // CompileOptions::max_recordings is reached
  kContextLimit,        // ContextOptions::max_recordings is reached
  kGraphBytesLimit,     // ContextOptions::max_graph_bytes is reached
  kPoolLimit,           // memory ran out: for a recording, or elsewhere, when this recording is
                        // evicted
  kTimeLimit,           // ContextOptions::max_recording_time is spent
  kFrozen,              // no recording fits, and the function is frozen
  kBacksOff,            // the last recordings did not pay: the next recording is postponed
  kChangingGuard,       // a guard changed its answer too often: see docs/guards.md
  kDynamicAxis,         // an axis varied: AxisPolicy::kSkip
  kSizeNotListed,       // AxisPolicy::kAllowList does not name the size of an axis
  kSizeLimit,           // an axis has as many sizes as AxisOptions::max_sizes
  kAboveLargestBucket,  // an axis is larger than the largest of its buckets
  kNotRecorded,     // no recording holds the sizes, and calls make none: while_missing, kLearned
  kTooMuchPadding,  // padding would multiply the work by more than CompileOptions::max_waste
  kUnsafePadding,   // zeros in an integer input may point at memory that the function writes:
                    // Padding
};

// The number of skip reasons, for arrays that have an element for each.
inline constexpr int kSkipReasonCount = 27;

// Returns whether the reason is a limit that recordings have reached.
constexpr bool is_of_limit(SkipReason reason) noexcept {
  return reason == SkipReason::kFunctionLimit || reason == SkipReason::kContextLimit ||
         reason == SkipReason::kGraphBytesLimit || reason == SkipReason::kTimeLimit;
}

// Returns whether the reason is about the size of a dynamic axis.
constexpr bool is_of_axes(SkipReason reason) noexcept {
  return reason >= SkipReason::kDynamicAxis;
}

// Returns whether the reason is that an earlier capture gave no recording: failed captures are
// tried again at growing distances.
constexpr bool is_of_captures(SkipReason reason) noexcept {
  return reason == SkipReason::kCaptureFailed || reason == SkipReason::kCaptureDisturbed ||
         reason == SkipReason::kKeepsTensor || reason == SkipReason::kPoolLimit;
}

// Returns "disabled", ...: the name in counters, logs and JSON. It ends with a 0.
std::string_view name(SkipReason reason) noexcept;

// Returns the meaning of the reason, as one sentence.
std::string_view explain(SkipReason reason) noexcept;
// Returns the change in the code that makes such calls replay, as a phrase: "declare ...".
std::string_view advice(SkipReason reason) noexcept;

// A Mismatch is one difference between a recording and a call, which prevents the replay. Decisions
// compare kinds alone; the two sides are formatted when an explanation is made.
struct Mismatch {
  // Ordered by how near the recording is: a later kind means that more of the call fits.
  enum class Kind : std::uint8_t {
    kNone,            // the recording fits
    kUnusable,        // input `input` is null or stale
    kInputCount,      // the numbers of inputs
    kKey,             // the keys
    kSignature,       // shape, strides, dtype or device of input `input`
    kGuard,           // the answer of a guard, whose name is `input_name`
    kStaticAddress,   // the address of a static input
    kManagedAddress,  // the address of an input that is an output of an earlier call
    kAlignment,       // a rebound input is less aligned than when it was recorded
    kOverlap,         // inputs `input` and `other` share memory, and one of them would be copied
    kFootprint,       // the recording would overwrite an output that is still held
  };

  Kind kind = Kind::kNone;
  std::uint32_t input =
      0;  // for kFootprint the number of the range; unused for kInputCount, kKey and kGuard
  std::string input_name;  // InputOptions::name; may be empty
  // Addresses, types, counts, keys or answers. For kFootprint: the range that the recording writes,
  // and the held output there. For kOverlap: the other input, and the two ranges.
  std::string recorded;
  std::string given;
  std::uint32_t other = 0;  // kOverlap; for kFootprint the number of the slot

  // Returns whether `input` and `input_name` identify the input that differs. Requires: there is a
  // mismatch.
  bool is_of_input() const noexcept {
    return kind != Kind::kInputCount && kind != Kind::kKey && kind != Kind::kGuard &&
           kind != Kind::kFootprint;
  }
  friend bool operator==(const Mismatch&, const Mismatch&) = default;
};

// Returns "static_address", ...: the name in JSON.
std::string_view name(Mismatch::Kind kind) noexcept;
// Returns one sentence: "static input 1 'weights': 0x7f00 recorded, 0x7e00 given".
std::string to_string(const Mismatch& mismatch);
// Returns the change in the code that avoids the mismatch, as a phrase.
std::string advice(const Mismatch& mismatch);

// An AxisInUse is a dynamic axis of a call, or an integer of its key.
struct AxisInUse {
  std::string name;
  std::int64_t actual = 0;  // the size in the call
  std::int64_t padded =
      0;  // the size in the graph, at least `actual`; 0 if the call is not graphed
  bool is_of_key = false;

  friend bool operator==(const AxisInUse&, const AxisInUse&) = default;
};

// An Outcome says how a call ends: the explained one, or one in the past.
enum class Outcome { kReplay, kRecord, kWarmUp, kRunEagerly, kThrow };

// An Explanation is the outcome that a call would have, and the reasons for it.
struct Explanation {
  Outcome outcome = Outcome::kReplay;
  std::uint32_t node = 0;                 // kReplay: the recording that is replayed
  std::optional<SkipReason> skip_reason;  // kRunEagerly, kThrow
  // The subject of the reason, with both sides of the comparison: a limit and the present count, an
  // axis and its size, an input, an error; or "".
  std::string detail;
  // Not kReplay: the recording of the function that came nearest (0: the function has none), and
  // all mismatches that prevent its replay.
  std::uint32_t nearest = 0;
  std::vector<Mismatch> mismatches;
  // kWarmUp, if the function has no recording: the first difference between the inputs and those of
  // its last warm-up.
  Mismatch changed;
  bool made_again = false;         // true if a recording for such calls existed and was dropped
  std::string last_failure;        // the error of the function's last call, or ""
  std::vector<AxisInUse> axes;     // the dynamic axes of the function, then CompileOptions::keys
  std::vector<std::string> notes;  // changes that make such calls cheaper
};

// A CallOutcome is the outcome of a call that has ended: kThrow for any exception.
struct CallOutcome {
  Outcome outcome = Outcome::kReplay;
  std::optional<SkipReason> skip_reason;  // kRunEagerly

  friend bool operator==(const CallOutcome&, const CallOutcome&) = default;
};

// Returns "replay", "record", "warm_up", "run_eagerly" or "throw".
std::string_view name(Outcome outcome) noexcept;
// Returns the name with the reason: "run_eagerly (frozen)".
std::string to_string(const CallOutcome& outcome);
// Returns in one line why the call does not replay, with both sides of each difference; "" if it
// does.
std::string difference(const Explanation& explanation);
// Returns in one line the change in the code that makes such calls replay; "" if they do.
std::string advice(const Explanation& explanation);
// Returns the outcome with the difference, and on the second line the advice:
//
//   record: static input 0 'weights': 0x7f00 recorded, 0x7e00 given
//     to replay: keep 'weights' at one address, or do not declare it static: then it is copied; ...
//
// Further lines give the sizes of axes, and notes.
std::string to_string(const Explanation& explanation);

}  // namespace cgtree
