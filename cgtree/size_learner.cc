// Reads the histogram of a function, asks next_sizes(), and records by precapture().
#include "cgtree/size_learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log_event.h"
#include "cgtree/compile.h"
#include "cgtree/graph_scope.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {
namespace {

constexpr std::uint64_t kFewCalls = 16;  // until there may be something to do again
constexpr std::uint64_t kCallsAfterFailure = 64;
constexpr double kLeastWeight = 1.0 / 64;
constexpr int kMeasuredReplays = 3;

// Puts generators back to where they were.
class RestoredGenerators {
 public:
  explicit RestoredGenerators(const std::vector<Generator>& generators) {
    for (const Generator& generator : generators)
      states_.emplace_back(generator, generator.state());
  }
  ~RestoredGenerators() {
    for (const auto& [generator, state] : states_)
      generator.set_state(state);
  }
  RestoredGenerators(const RestoredGenerators&) = delete;
  RestoredGenerators& operator=(const RestoredGenerators&) = delete;

 private:
  std::vector<std::pair<Generator, GeneratorState>> states_;
};

}  // namespace

SizeLearner::SizeLearner(const CompiledCore& function, MakeInputs make_inputs, LearnOptions options)
    : function_(function),
      manager_(function.manager()),
      make_inputs_(std::move(make_inputs)),
      options_(options) {
  const AxisPlan* const plan = function.state().axes.get();
  std::size_t learned = 0;
  for (std::size_t axis = 0; plan != nullptr && axis < plan->size(); ++axis) {
    if (!plan->rule(axis).is_learned()) continue;
    ++learned;
    axis_ = axis;
    name_ = plan->rule(axis).name();
    is_of_key_ = plan->rule(axis).is_of_key();
    sizes_ = plan->rule(axis).options().sizes;  // of a learner before
  }
  if (learned != 1) {
    throw InvalidArgument(fmt::format(
        "a learner of '{}', which has {} axes and integers of the key with AxisPolicy::kLearned: "
        "expected 1",
        function.name(), learned));
  }
  if (make_inputs_ == nullptr) {
    throw InvalidArgument(fmt::format("a learner of '{}' without make_inputs", function.name()));
  }
  if (options.max_sizes == 0 || options.max_bytes == 0 || !(options.half_life > 0) ||
      !(options.busy_fraction >= 0 && options.busy_fraction <= 1)) {
    throw InvalidArgument(fmt::format(
        "a learner of '{}' with max_sizes = {}, max_bytes = {}, half_life = {} and busy_fraction = "
        "{}: the first three must be above 0, the last from 0 to 1",
        function.name(), options.max_sizes, options.max_bytes, options.half_life,
        options.busy_fraction));
  }
}

bool SizeLearner::is_captured() {
  Visit visit(manager_->door());
  return static_cast<bool>(visit.ask_foreign_capture());
}

void SizeLearner::read_calls() {
  const std::vector<SizeCount> counts = manager_->histogram(function_.state(), name_);
  std::vector<SizeDemand> more;
  std::uint64_t calls = 0;
  for (const SizeCount& count : counts) {
    const std::uint64_t before = std::exchange(counted_[count.size], count.count);
    if (count.count == before) continue;
    calls += count.count - before;
    more.push_back(
        {std::max<std::int64_t>(count.size, 1), static_cast<double>(count.count - before)});
  }
  const double left = std::exp2(-static_cast<double>(calls) / options_.half_life);
  for (auto& [size, weight] : weights_)
    weight *= left;
  for (const SizeDemand& one : more)
    weights_[one.size] += one.weight;
  std::erase_if(weights_, [](const auto& entry) { return entry.second < kLeastWeight; });
  calls_ += calls;
}

std::vector<SizeDemand> SizeLearner::demand() const {
  std::vector<SizeDemand> demand;
  for (const auto& [size, weight] : weights_) {
    if (!std::ranges::binary_search(failed_, size)) demand.push_back({size, weight});
  }
  return demand;
}

LearnerStep SizeLearner::idle(std::chrono::microseconds max_time) {
  const auto begin = Clock::now();
  if (!manager_->agree(!is_captured() && !function_.is_frozen())) return {};
  read_calls();
  SizeSet still = recorded_sizes();
  const bool has_lost = still != sizes_;  // by release_memory(), an eviction
  if (has_lost) set_sizes(std::move(still), std::nullopt);
  if (!manager_->agree(has_lost || calls_ >= look_at_)) return {};
  const std::optional<SizeChange> change = next_sizes(demand(), sizes_, costs_, options_.max_sizes);
  if (!change) {
    calls_ = 0;
    look_at_ = kFewCalls;
    return {};
  }
  const bool has_time = max_time.count() > 0 && max_time >= expected_;
  const bool has_room = manager_->stats().pool_reserved_bytes < options_.max_bytes;
  if (!has_time) expected_ = expected_ * 9 / 10;  // the last one may have been a slow one
  if (!manager_->agree(has_time && has_room)) return {};
  LearnerStep step = apply(*change);
  step.time = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  expected_ = step.time;
  return step;
}

LearnerStep SizeLearner::between_calls() {
  const auto begin = Clock::now();
  const auto allowed = std::chrono::duration<double>(begin - made_) * options_.busy_fraction;
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(allowed - spent_);
  if (!manager_->agree(left.count() > 0)) return {};
  LearnerStep step = idle(left);
  spent_ += Clock::now() - begin;
  return step;
}

LearnerStep SizeLearner::apply(const SizeChange& change) {
  const RestoredGenerators restored(options_.generators);
  LearnerStep step{.size = change.record, .evicted = change.evict, .gain_us = change.gain_us};
  SizeSet sizes = sizes_;
  if (change.evict) std::erase(sizes, *change.evict);
  const SizeSet others = sizes;
  sizes.insert(std::ranges::lower_bound(sizes, change.record), change.record);
  set_sizes(std::move(sizes), change.evict);
  std::optional<CallSizes> recorded;
  try {
    recorded = record(change.record, step);
    if (recorded) measure(*recorded);
  } catch (...) {
    set_sizes(others, change.record);  // and the recordings that there are of it
    throw;
  }
  if (recorded) {
    step.kind = LearnerStep::Kind::kRecorded;
    failed_.clear();
    look_at_ = 0;
  } else {
    step.kind = LearnerStep::Kind::kFailed;
    set_sizes(others, change.record);
    failed_.insert(std::ranges::lower_bound(failed_, change.record), change.record);
    calls_ = 0;
    look_at_ = kCallsAfterFailure << std::min<std::size_t>(failed_.size() - 1, 32);
  }
  log_event(LogLevel::kInfo,
            "learned function=\"{}\" axis=\"{}\" size={} evicted={} recorded={} gain_us={:.1f}",
            function_.name(), name_, step.size, step.evicted.value_or(0),
            step.kind == LearnerStep::Kind::kRecorded, step.gain_us);
  return step;
}

// Names the largest size too, which is there already: precapture() places the outputs of smaller
// ones where a held output of it leaves room.
std::optional<CallSizes> SizeLearner::record(std::int64_t size, LearnerStep& step) {
  PrecaptureOptions options{.held_outputs = options_.held_outputs};
  SizeSet sizes = {size};
  if (sizes_.back() != size) sizes.push_back(sizes_.back());
  const AxisLayout& layout = function_.state().axes->layout();
  if (!is_of_key_) options.sizes.push_back({name_, sizes});
  for (std::size_t i = layout.axes.size() - layout.keys; is_of_key_ && i < layout.axes.size();
       ++i) {
    auto& part = options.key.emplace_back();
    part.name = layout.axes[i].name;
    if (i == axis_) part.values = {sizes.begin(), sizes.end()};
  }
  const PrecaptureReport report = precapture(function_, options, make_inputs_);
  std::optional<CallSizes> largest;
  for (const Precaptured& entry : report.entries) {
    if (entry.sizes[name_] != size) continue;
    if (!largest) largest = entry.sizes;
    if (entry.outcome != Precaptured::Outcome::kLeftOut) continue;
    step.why = entry.why;
    return std::nullopt;
  }
  return largest;
}

void SizeLearner::measure(const CallSizes& sizes) {
  if (manager_->group() != nullptr) return;
  const std::vector<Tensor> inputs = make_inputs_(sizes);
  const InputList list = InputList(std::span<const Tensor>(inputs)).with_key(sizes.key().text());
  const auto timed = [&] {
    manager_->memory().stream().synchronize();
    const auto begin = Clock::now();
    TensorList outputs;
    manager_->call(function_.state(), list, outputs);
    manager_->memory().stream().synchronize();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  };
  double replay_us = timed();
  for (int replay = 1; replay < kMeasuredReplays; ++replay)
    replay_us = std::min(replay_us, timed());
  const NoGraph eagerly;
  const std::int64_t size = sizes[name_];
  costs_.add(size, replay_us, timed());
  counted_[size] += kMeasuredReplays + 1;  // no calls of the server's
}

void SizeLearner::set_sizes(SizeSet sizes, std::optional<std::int64_t> dropped) {
  const Visit visit(manager_->door());
  FunctionState& function = function_.state();
  function.axes->set_sizes(axis_, sizes);
  sizes_ = std::move(sizes);
  if (!dropped) return;
  AxisSizes drop;
  drop.fill(-1);
  drop[axis_] = *dropped;
  manager_->workings().evictor.drop_sizes(function, drop);
}

// Returns those of the sizes that still have recordings.
SizeSet SizeLearner::recorded_sizes() const {
  const Visit visit(manager_->door());
  SizeSet still;
  for (const auto& [hash, keys] : function_.state().keys) {
    for (const auto& key : keys) {
      const std::int64_t size = key->padded[axis_];
      const bool is_known = std::ranges::binary_search(sizes_, size);
      if (is_known && !key->nodes.empty()) still.push_back(size);
    }
  }
  std::ranges::sort(still);
  const auto twice = std::ranges::unique(still);
  still.erase(twice.begin(), twice.end());
  return still;
}

}  // namespace cgtree
