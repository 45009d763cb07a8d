// SizeLearner: records the sizes that pay, while a server runs, instead of buckets that its author
// measured.
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

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cgtree/tree/backoff.h"
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
  std::size_t max_sizes = 32;        // recorded at a time
  std::size_t max_bytes = SIZE_MAX;  // of the context's pools, above which nothing is recorded
  double busy_fraction = 0.02;       // of the time: see idle() and between_calls()
  std::size_t held_outputs = 1;      // as PrecaptureOptions::held_outputs
  // The generators from which the function draws, if results must not depend on the learner's runs:
  // their positions are restored. No other thread may draw from them meanwhile.
  std::vector<Generator> generators = {};
};

// A LearnerStep describes one step of a SizeLearner.
struct LearnerStep {
  // kRecorded: a size was recorded, or recorded again. kVerified: recordings of a size that no call
  // has verified yet were verified. kGaveBack: unused pool memory was released.
  // kFailed: the size could not be recorded, and `why` has the reason. A size that was never
  // recorded is tried again after 64 calls, and after twice as many after each further failure.
  enum class Kind : std::uint8_t { kNothing, kRecorded, kFailed, kVerified, kGaveBack };

  Kind kind = Kind::kNothing;
  Sizes sizes;            // of the learned axes and integers of the key
  Sizes evicted;          // their recordings were dropped for it, or empty
  double gain_us = 0;     // per call, on average, as SizePlanner::next() expects
  std::size_t bytes = 0;  // released bytes
  std::chrono::microseconds time{0};
  std::string why;
};

// A SizeLearner decides for the axes and the integers of the key with AxisPolicy::kLearned: for
// several of them, which combinations to record. Other axes and integers keep their policies; each
// combination is recorded with all sizes that they list, or the 16 most frequent sizes of calls.
// Calls never wait for it: a call whose size is not recorded is padded to the next larger recorded
// size, and runs eagerly above the largest.
//
// Times are measured when a size is recorded: an eager run and replays, on inputs of make_inputs,
// as precapture() runs them. In a group every rank makes the same calls of its learner; sizes
// replace times there, because all ranks must decide alike.
//
// Thread safety: as the context, used by one thread at a time.
class SizeLearner {
 public:
  // `function` is borrowed, and must not be moved. Throws InvalidArgument unless one of its
  // axes and integers of the key is learned, and for limits of 0.
  SizeLearner(const CompiledCore& function, MakeInputs make_inputs, LearnOptions options = {});

  // Does the most useful task that is expected to take no longer than `max_time`; returns at once
  // if there is none. It records a size, which makes calls faster, or releases memory that is short
  // for it; else it verifies; else it releases memory if more than half of it is free. A size that
  // never fits is recorded when it takes no more than LearnOptions::busy_fraction of the time that
  // was given since the last time. Does nothing where calls would not be graphed either: in a
  // NoGraph, during a foreign capture, for a frozen function. Throws as make_inputs and
  // CompiledCore::call(), also VerifyError, except OutOfMemory, which is kFailed; and ConcurrentUse
  // inside a step function or make_inputs.
  LearnerStep idle(std::chrono::microseconds max_time);
  // For servers that are never idle: as idle(), within LearnOptions::busy_fraction of the time
  // since the learner was made. Beyond that, unless it is 0 or there is a group, a size is recorded
  // once calls have lost as much time without it as recording it takes.
  LearnerStep between_calls();

  // The recorded combinations, ascending.
  const std::vector<Sizes>& points() const noexcept { return points_; }
  // Their sizes of the first learned axis, or of learned axis `number`.
  Sizes sizes(std::size_t number = 0) const;
  // The demand of calls until the last step, without sizes that could not be recorded.
  Demand demand() const;
  // The times that were measured.
  const SizeCosts& costs() const noexcept { return costs_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t kFewCalls = 16;  // until a new task may appear
  class Turn;
  class Asked;

  // `saves_up`: times that are too short count, until they suffice together.
  LearnerStep idle_within(std::chrono::microseconds max_time, bool saves_up);
  bool may_record() const;
  void read_calls();
  // Returns whether sizes lost recordings; those are no longer listed.
  bool has_lost();
  // Returns the next change, or nothing. A size that is already recorded must be renewed.
  std::optional<SizeChange> next(bool has_room);
  // `change`: of next(), or null. `is_short`: memory is short. `records`: the change is made.
  LearnerStep use_moment(const SizeChange* change, bool is_short, bool records,
                         std::chrono::microseconds max_time);
  LearnerStep apply(const SizeChange& change);
  LearnerStep verify(std::chrono::microseconds max_time);
  LearnerStep give_back();
  // Returns the largest call of the point, or nothing, with the reason in step.why.
  std::optional<CallSizes> record(const Sizes& point, LearnerStep& step);
  void measure(const CallSizes& sizes);
  // Drops the recordings of removed points.
  void set_points(std::vector<Sizes> points);
  std::map<Sizes, std::size_t> count_recordings() const;
  std::vector<Sizes> whole_points() const;
  Serves serves() const;
  std::optional<CallSizes> unverified_call() const;
  std::size_t used_bytes() const;
  // Recordings, keys and slots may be dropped on any thread as soon as a visit ends: the next two
  // are called within a visit, and their results are values.
  bool had_no_turn(const Node& node) const;
  CallSizes call_of(const KeyState& key) const;

  const CompiledCore& function_;
  const std::shared_ptr<Engine> engine_;
  const MakeInputs make_inputs_;
  const LearnOptions options_;
  LearnedDemand demand_;

  std::atomic<bool> is_busy_{false};
  std::vector<Sizes> points_;
  SizeCosts costs_;
  std::uint64_t look_at_ = 1;                // the number of the call at which to check again
  std::uint64_t unasked_ = 0;                // calls of between_calls() that do not check
  std::map<Sizes, std::size_t> recordings_;  // how many were made for a point

  std::set<Sizes> failed_;  // since the last recording
  Backoff failures_{1};

  std::size_t room_;             // for sizes, within the limits of the context
  Backoff full_{1};              // until there may be more room
  std::uint64_t evictions_ = 0;  // of the function, at the last check

  bool is_missed_ = false;       // a recorded size missed, and is not yet renewed
  std::vector<Sizes> to_renew_;  // their recordings may fit no call
  Backoff misses_{1};

  std::set<std::uint32_t> asked_;     // nodes that were, or will be, verified here
  Backoff unverified_{1, kFewCalls};  // make_inputs or the call threw
  std::size_t reserved_after_ = 0;    // by the pools, at the last release of memory

  Clock::duration expected_{0};  // time to record a size
  Clock::duration expected_to_verify_{0};
  std::chrono::duration<double, std::micro> unused_{0};  // idle times that were too short
  Clock::duration spent_{0};                             // in between_calls()
  Clock::duration saved_for_{0};  // time saved up for the change that was found
  int waited_ = 0;                // calls of between_calls() since the last check
  // The time that a call loses without the size that was found last, and the time that calls have
  // lost since the last recording.
  std::chrono::duration<double, std::micro> gain_{0};
  std::chrono::duration<double, std::micro> lost_{0};
  const Clock::time_point made_ = Clock::now();
};

}  // namespace cgtree
