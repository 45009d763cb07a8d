// SizeLearner: records the sizes that pay, while a server runs, in place of buckets that its author
// has measured.
//
//   auto decode = compile(context, "decode", step, {.inputs = {{.dynamic = {{0, "batch"}}}},
//                                                   .axes = {{"batch", AxisPolicy::kLearned}}});
//   SizeLearner learner(decode, make_inputs);
//   while (serving()) {
//     if (!has_requests()) learner.idle(time_to_next_poll());
//     ...
//     logits = decode(tokens);
//   }
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "extensions/sizes/learned_demand.h"
#include "extensions/sizes/precapture.h"
#include "extensions/sizes/size_plan.h"
#include "interop/random/generator.h"

namespace cgtree {

class CompiledCore;
struct FunctionState;
struct KeyState;
struct Node;
class Engine;

// The limits of a SizeLearner.
struct LearnOptions {
  std::size_t max_sizes = 32;        // that are recorded at a time
  std::size_t max_bytes = SIZE_MAX;  // of the pools of the context, beyond which none is recorded
  double busy_fraction = 0.02;       // of the time: see idle() and between_calls()
  std::size_t held_outputs = 1;      // as PrecaptureOptions has it
  // What the function draws from, if results are to be the same whenever the learner runs: these
  // generators are put back to where they were. No other thread may draw from them meanwhile.
  std::vector<Generator> generators = {};
};

// A LearnerStep is what a SizeLearner has done.
struct LearnerStep {
  // kRecorded: a size, anew perhaps. kVerified: the recordings of a size, with which calls have not
  // been verified. kGaveBack: memory that the pools held, and nothing used.
  // kFailed: the size could not be recorded, and `why` says why. A size that was never recorded is
  // tried after 64 calls, and after twice as many each time that fails again.
  enum class Kind : std::uint8_t { kNothing, kRecorded, kFailed, kVerified, kGaveBack };

  Kind kind = Kind::kNothing;
  std::int64_t size = 0;                // of the first axis, or integer of the key, that is learned
  SizePoint sizes;                      // of all of them
  std::optional<std::int64_t> evicted;  // whose recordings were dropped for it
  double gain_us = 0;                   // of a call, on average, as next_sizes() expects
  std::size_t bytes = 0;                // that were given back
  std::chrono::microseconds time{0};
  std::string why;
};

// A SizeLearner decides for the axes and the integers of the key that have AxisPolicy::kLearned:
// for several of them, which combinations to record. Other axes and integers keep their policies;
// each combination is recorded with all sizes that those list, or the 16 most frequent ones that
// calls had.
// Calls never wait for it: one whose size is not recorded is padded to the next larger size that
// is, and runs eagerly above the largest.
//
// Times are measured when a size is recorded: an eager run and replays, on inputs of make_inputs,
// as precapture() runs them. In a group every rank makes the same calls of its learner; sizes stand
// for times there, because all ranks must decide alike.
//
// Thread safety: as the context, used by one thread at a time.
class SizeLearner {
 public:
  // `function` is borrowed, and must not be moved. Throws InvalidArgument unless one of its
  // axes and integers of the key is learned, and for limits of 0.
  SizeLearner(const CompiledCore& function, MakeInputs make_inputs, LearnOptions options = {});

  // Does the most useful thing of what_to_do(), if it is expected to take no longer than
  // `max_time`; returns at once if there is none. A size that never fits is recorded when it takes
  // no more than LearnOptions::busy_fraction of the time that was given since the last time. Does
  // nothing where calls would not be graphed either: in a NoGraph, during a foreign capture, for a
  // frozen function. Throws what make_inputs and CompiledCore::call() throw, VerifyError too, but
  // for OutOfMemory, which is kFailed; and ConcurrentUse inside a step function or make_inputs.
  LearnerStep idle(std::chrono::microseconds max_time);
  // For servers that are never idle: as idle(), within LearnOptions::busy_fraction of the time
  // since the learner was made. Above that, unless it is 0 or there is a group, a size is recorded
  // once calls have lost as much time for want of it as that takes.
  LearnerStep between_calls();

  // The combinations that are recorded, ascending.
  const std::vector<SizePoint>& points() const noexcept { return points_; }
  // The sizes among them of the first axis, or of axis `number`, of those that are learned.
  SizeSet sizes(std::size_t number = 0) const;
  // What calls have asked for until the last step, without sizes that could not be recorded.
  std::vector<PointDemand> demand() const;
  // The times that were measured.
  const SizeCosts& costs() const noexcept { return costs_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t kFewCalls = 16;  // until there may be something to do again
  class Turn;

  class Asked;

  // A Rest lasts `first` calls, and twice as many each time it begins again. Counted in calls, and
  // not in time, so that the ranks of a group decide alike.
  class Rest {
   public:
    Rest(std::uint64_t first = 64) noexcept : first_(first) {}
    void begin(std::uint64_t calls) noexcept {
      until_ = calls + (first_ << std::min(times_++, 32));
    }
    bool lasts(std::uint64_t calls) const noexcept { return calls < until_; }

   private:
    std::uint64_t first_;
    std::uint64_t until_ = 0;
    int times_ = 0;
  };

  bool is_captured();
  // `saves_up`: a time that is too short counts, until such times suffice together.
  LearnerStep idle_within(std::chrono::microseconds max_time, bool saves_up);
  // Returns whether sizes have lost recordings; those are no longer listed.
  bool has_lost();
  // Returns what to record, or nothing. A size that is recorded is to be renewed.
  std::optional<PointChange> next(bool has_room);
  IdleMoment look_around(std::chrono::microseconds max_time);
  LearnerStep apply(const PointChange& change);
  LearnerStep verify();
  LearnerStep give_back();
  // Returns the largest call of the point, or nothing, and step.why says why.
  std::optional<CallSizes> record(const SizePoint& point, LearnerStep& step);
  void measure(const CallSizes& sizes);
  void find_recorded();
  void set_points(std::vector<SizePoint> points, std::span<const SizePoint> dropped);
  std::map<SizePoint, std::size_t> count_recordings() const;
  std::vector<SizePoint> whole_points() const;
  Serves serves() const;
  // Recordings, keys and slots may go on any thread as soon as a visit has ended: the next three
  // are asked within one, and what they return is a value.
  bool had_no_turn(const Node& node) const;
  std::optional<CallSizes> unverified_call() const;
  std::size_t used_bytes() const;
  CallSizes call_of(const KeyState& key) const;

  const CompiledCore& function_;
  const std::shared_ptr<Engine> engine_;
  const MakeInputs make_inputs_;
  const LearnOptions options_;
  LearnedDemand demand_;

  std::atomic<bool> is_busy_{false};
  std::vector<SizePoint> points_;
  SizeCosts costs_;
  std::uint64_t look_at_ = 1;                    // the number of the call at which to look again
  std::uint64_t unasked_ = 0;                    // calls of between_calls() that do not look
  std::map<SizePoint, std::size_t> recordings_;  // how many were made of a point

  std::set<SizePoint> failed_;  // since a size was recorded last
  Rest after_failure_;

  std::size_t room_;             // for sizes, within the limits of the context
  Rest until_room_;              // may have grown
  std::uint64_t evictions_ = 0;  // as the function counts them, when last looked at

  bool is_missed_ = false;           // a size that is recorded; not yet renewed
  std::vector<SizePoint> to_renew_;  // whose recordings may fit no call
  Rest after_miss_;

  std::set<std::uint32_t> asked_;     // the nodes that were verified here, or were to be
  Rest after_unverified_{kFewCalls};  // make_inputs or the call has thrown
  std::size_t reserved_after_ = 0;    // by the pools, when memory was given back last

  Clock::duration expected_{0};  // that a size takes to be recorded
  Clock::duration expected_to_verify_{0};
  std::chrono::duration<double, std::micro> unused_{0};  // idle times that were too short
  Clock::duration spent_{0};                             // in between_calls()
  Clock::duration saved_for_{0};  // what has been found, which takes that long
  int waited_ = 0;                // calls of between_calls() since it last looked
  // What a call loses for want of what was found last, the number of calls then, and what they have
  // lost since the last recording.
  std::chrono::duration<double, std::micro> gain_{0};
  std::uint64_t seen_ = 0;
  std::chrono::duration<double, std::micro> lost_{0};
  const Clock::time_point made_ = Clock::now();
};

}  // namespace cgtree
