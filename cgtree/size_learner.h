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

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cgtree/precapture.h"
#include "cgtree/size_plan.h"
#include "interop/random/generator.h"

namespace cgtree {

class CompiledCore;
struct FunctionState;
class TreeManager;

// The limits of a SizeLearner.
struct LearnOptions {
  std::size_t max_sizes = 32;        // that are recorded at a time
  std::size_t max_bytes = SIZE_MAX;  // of the pools of the context, beyond which none is recorded
  double busy_fraction = 0.02;       // of the time, for between_calls()
  double half_life = 128;            // a call so many calls ago weighs half
  std::size_t held_outputs = 1;      // as PrecaptureOptions has it
  // What the function draws from, if results are to be the same whenever the learner runs: these
  // generators are put back to where they were. No other thread may draw from them meanwhile.
  std::vector<Generator> generators = {};
};

// A LearnerStep is what a SizeLearner has done.
struct LearnerStep {
  // kFailed: the size could not be recorded, and `why` says why. The next one is tried after 64
  // calls, and after twice as many each time that fails again.
  enum class Kind : std::uint8_t { kNothing, kRecorded, kFailed };

  Kind kind = Kind::kNothing;
  std::int64_t size = 0;
  std::optional<std::int64_t> evicted;  // whose recordings were dropped for it
  double gain_us = 0;                   // of a call, on average, as next_sizes() expects
  std::chrono::microseconds time{0};
  std::string why;
};

// A SizeLearner decides for the axis, or the integer of the key, that has AxisPolicy::kLearned.
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
  // `function` is borrowed, and must not be moved. Throws InvalidArgument unless exactly one of its
  // axes and integers of the key is learned, and for limits of 0.
  SizeLearner(const CompiledCore& function, MakeInputs make_inputs, LearnOptions options = {});

  // Does the one thing that pays most, if it is expected to take no longer than `max_time`; returns
  // at once if there is none. Throws what make_inputs and CompiledCore::call() throw, and
  // ConcurrentUse inside a step function.
  LearnerStep idle(std::chrono::microseconds max_time);
  // For servers that are never idle: as idle(), within LearnOptions::busy_fraction of the time
  // since the learner was made.
  LearnerStep between_calls();

  // The sizes that are recorded, ascending.
  const SizeSet& sizes() const noexcept { return sizes_; }
  // What calls have asked for until the last step, without sizes that could not be recorded.
  std::vector<SizeDemand> demand() const;
  // The times that were measured.
  const SizeCosts& costs() const noexcept { return costs_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_captured();
  // Adds the calls since the last time to weights_.
  void read_calls();
  LearnerStep apply(const SizeChange& change);
  // Returns the largest call of the size, or nothing, and step.why says why.
  std::optional<CallSizes> record(std::int64_t size, LearnerStep& step);
  void measure(const CallSizes& sizes);
  void set_sizes(SizeSet sizes, std::optional<std::int64_t> dropped);
  SizeSet recorded_sizes() const;

  const CompiledCore& function_;
  const std::shared_ptr<TreeManager> manager_;
  const MakeInputs make_inputs_;
  const LearnOptions options_;
  std::size_t axis_ = 0;
  std::string name_;
  bool is_of_key_ = false;

  std::map<std::int64_t, std::uint64_t> counted_;  // as the histogram was when it was read last
  std::map<std::int64_t, double> weights_;
  SizeSet sizes_;
  SizeCosts costs_;
  std::uint64_t calls_ = 0;    // since next() has found nothing to do, or a size has failed
  std::uint64_t look_at_ = 1;  // the number of those at which to look again; 0: at once
  SizeSet failed_;             // since a size was recorded last
  std::chrono::microseconds expected_{0};  // that a size takes to be recorded
  Clock::duration spent_{0};               // in between_calls()
  const Clock::time_point made_ = Clock::now();
};

}  // namespace cgtree
