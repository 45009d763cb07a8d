// Reads the histograms of a function, asks a SizePlanner, and records through precapture().
#include "extensions/sizes/size_learner.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "cgtree/compile.h"
#include "cgtree/tree/engine.h"
#include "cgtree/values/graph_scope.h"
#include "extensions/verify/replay_verifier.h"

namespace cgtree {
namespace {

constexpr int kSomeCalls = 64;  // between checks whether waiting costs more than it saves
constexpr int kMeasuredReplays = 3;
constexpr int kMostReplays = 32;  // to find this many that are not verified

// Restores the positions of generators.
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

// Adds its lifetime.
class AddedTime {
 public:
  using Clock = std::chrono::steady_clock;

  explicit AddedTime(Clock::duration& sum) noexcept : sum_(sum) {}
  ~AddedTime() { sum_ += Clock::now() - begin_; }
  AddedTime(const AddedTime&) = delete;
  AddedTime& operator=(const AddedTime&) = delete;

 private:
  Clock::duration& sum_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

// At most one thread is inside, and does not call back.
class SizeLearner::Turn {
 public:
  explicit Turn(SizeLearner& learner) : learner_(learner) {
    if (!learner.is_busy_.exchange(true, std::memory_order_acquire)) return;
    throw ConcurrentUse(str_format(
        "the learner of '{}' is busy: another thread is in idle(), or make_inputs or the step "
        "function calls it",
        learner.function_.name()));
  }
  ~Turn() { learner_.is_busy_.store(false, std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  SizeLearner& learner_;
};

SizeLearner::SizeLearner(const CompiledCore& function, MakeInputs make_inputs, LearnOptions options)
    : function_(function),
      engine_(function.engine()),
      make_inputs_(std::move(make_inputs)),
      options_(options),
      demand_(function),
      room_(options.max_sizes),
      evictions_(function.state().counters.evictions) {
  // Takes over the recordings of an earlier learner, or of precapture().
  if (std::vector<Sizes> recorded = whole_points(); !recorded.empty())
    set_points(std::move(recorded));
  if (make_inputs_ == nullptr) {
    throw InvalidArgument(str_format("a learner of '{}' without make_inputs", function.name()));
  }
  if (options.max_sizes == 0 || options.max_bytes == 0 ||
      !(options.busy_fraction >= 0 && options.busy_fraction <= 1)) {
    throw InvalidArgument(str_format(
        "a learner of '{}' with max_sizes = {}, max_bytes = {} and busy_fraction = {}: the first "
        "two must be above 0, the last from 0 to 1",
        function.name(), options.max_sizes, options.max_bytes, options.busy_fraction));
  }
}

Demand SizeLearner::demand() const {
  Demand demand = demand_.weights();
  std::erase_if(demand, [this](const auto& entry) { return failed_.contains(entry.first); });
  return demand;
}

Sizes SizeLearner::sizes(std::size_t number) const {
  std::set<std::int64_t> sizes;
  for (const Sizes& point : points_)
    sizes.insert(point.at(number));
  return {sizes.begin(), sizes.end()};
}

bool SizeLearner::may_record() const {
  const FunctionState& function = function_.state();
  Entry entry(engine_->gate);
  return !entry.ask_foreign_capture() && !function_.is_frozen() &&
         !is_off(function, graph_override());
}

void SizeLearner::read_calls() {
  const std::uint64_t before = demand_.calls();
  is_missed_ = demand_.read(points_, serves()) || is_missed_;
  const std::uint64_t calls = demand_.calls() - before;
  for (Backoff* const backoff : {&failures_, &full_, &misses_, &unverified_})
    backoff->note_wait(calls);
  lost_ += static_cast<double>(calls) * gain_;
  gain_ = {};
}

// Sizes evicted for others had no room, and would have to be dropped again.
bool SizeLearner::has_lost() {
  std::vector<Sizes> still = whole_points();
  const std::uint64_t evictions = function_.state().counters.evictions;
  const bool were_evicted = std::exchange(evictions_, evictions) != evictions;
  if (still == points_) return false;
  if (were_evicted) {
    room_ = std::max<std::size_t>(still.size(), 1);
    full_.note_failure();
  }
  set_points(std::move(still));
  return true;
}

std::optional<SizeChange> SizeLearner::next(bool has_room) {
  if (!full_.waits()) room_ = options_.max_sizes;
  const std::size_t most = has_room ? room_ : std::min(room_, points_.size());
  const auto change = [&]() -> std::optional<SizeChange> {
    if (most == 0) return std::nullopt;
    Demand demand = this->demand();
    if (failures_.waits()) {  // sizes that were recorded before may be recorded again
      std::erase_if(demand, [this](const auto& one) { return !recordings_.contains(one.first); });
    }
    return SizePlanner(demand, costs_, serves()).next(points_, most);
  };
  std::optional<SizeChange> next = change();
  if (!next && !failed_.empty() && !failures_.waits()) {
    failed_.clear();
    next = change();
  }
  if (next) return next;
  if (is_missed_ && to_renew_.empty() && !misses_.waits()) {
    is_missed_ = false;
    to_renew_ = points_;
    misses_.note_failure();
  }
  while (!to_renew_.empty() && !std::ranges::binary_search(points_, to_renew_.back()))
    to_renew_.pop_back();
  if (to_renew_.empty()) return std::nullopt;
  return SizeChange{to_renew_.back(), {}, 0};
}

LearnerStep SizeLearner::idle(std::chrono::microseconds max_time) {
  const Turn turn(*this);
  return idle_within(max_time, /*saves_up=*/true);
}

LearnerStep SizeLearner::between_calls() {
  const Turn turn(*this);
  if (unasked_ > 0) {
    --unasked_;
    return {};
  }
  const auto begin = Clock::now();
  const auto allowed = std::chrono::duration<double>(begin - made_) * options_.busy_fraction;
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(allowed - spent_);
  if (!engine_->votes.agree(left.count() > 0 && left >= saved_for_)) {
    // Does waiting lose more time than recording takes?
    if (options_.busy_fraction == 0 || engine_->options.group.get() != nullptr ||
        ++waited_ < kSomeCalls)
      return {};
  }
  waited_ = 0;
  const AddedTime added(spent_);
  return idle_within(left, /*saves_up=*/false);
}

LearnerStep SizeLearner::idle_within(std::chrono::microseconds max_time, bool saves_up) {
  if (!engine_->votes.agree(may_record())) return {};
  read_calls();
  if (!has_lost() && demand_.calls() < look_at_) return {};
  const bool is_short =
      !engine_->votes.agree(engine_->memory->reserved_bytes() < options_.max_bytes);
  const std::optional<SizeChange> change = next(!is_short);
  if (change && costs_.are_measured())
    gain_ = std::chrono::duration<double, std::micro>(std::max(change->gain_us, 0.0));
  const bool has_time = max_time.count() > 0 &&
                        (max_time >= expected_ || unused_ * options_.busy_fraction >= expected_);
  const bool pays = !saves_up && lost_ >= expected_ && engine_->options.group.get() == nullptr;
  if (change && !has_time && saves_up && max_time.count() > 0) unused_ += max_time;
  const bool records = engine_->votes.agree(has_time || pays);
  saved_for_ = change && !records ? expected_ : Clock::duration::zero();
  const Clock::time_point begin = Clock::now();
  LearnerStep step = use_moment(change ? &*change : nullptr, is_short, records, max_time);
  if (step.kind == LearnerStep::Kind::kNothing) {
    if (!change) {
      look_at_ = demand_.calls() + kFewCalls;
      unasked_ = kFewCalls - 1;
    }
    return {};
  }
  step.time = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  return step;
}

// A group gives memory back only where much of it is free on all ranks.
LearnerStep SizeLearner::use_moment(const SizeChange* change, bool is_short, bool records,
                                    std::chrono::microseconds max_time) {
  const std::size_t reserved = engine_->memory->reserved_bytes();
  const std::size_t used = std::min(used_bytes(), reserved);
  std::size_t free = max_time.count() > 0 && reserved != reserved_after_ ? reserved - used : 0;
  if (!engine_->votes.agree(free > used) && engine_->options.group.get() != nullptr) free = 0;
  if (change != nullptr && is_short && free > 0) {
    const LearnerStep step = give_back();
    if (step.bytes > 0) return step;
    free = 0;  // the free memory lies between used memory, perhaps on one rank
  }
  if (change != nullptr && records) {
    // A recording that lies in a large segment would keep all of it.
    const std::size_t bytes = free > used ? give_back().bytes : 0;
    LearnerStep step = apply(*change);
    step.bytes = bytes;
    return step;
  }
  const LearnerStep step = verify(max_time);
  return step.kind == LearnerStep::Kind::kNothing && free > used ? give_back() : step;
}

LearnerStep SizeLearner::apply(const SizeChange& change) {
  const RestoredGenerators restored(options_.generators);
  unused_ = {};
  lost_ = {};
  const Clock::time_point begin = Clock::now();
  LearnerStep step{
      .sizes = change.record, .evicted = change.evict.value_or(Sizes()), .gain_us = change.gain_us};
  std::vector<Sizes> points = points_;
  std::erase(points, step.evicted);
  const std::vector<Sizes> before = points;
  const auto place = std::ranges::lower_bound(points, change.record);
  const bool is_new = place == points.end() || *place != change.record;
  if (is_new) {
    points.insert(place, change.record);
  } else {
    to_renew_.pop_back();
  }
  const std::size_t recordings = is_new ? 0 : count_recordings()[change.record];
  set_points(std::move(points));
  std::exception_ptr thrown;
  std::size_t made = 0;
  bool is_recorded = false;
  try {
    const std::optional<CallSizes> largest = record(change.record, step);
    made = count_recordings()[change.record] - recordings;
    if (largest && made > 0) {
      measure(*largest);
      is_recorded = true;
    } else if (largest) {
      if (!is_new) return {};
      step.why = "what was recorded had to go at once: limits of the context leave no room";
    }
  } catch (const OutOfMemory& error) {
    step.why = error.message();
  } catch (const OtherRankFailed& error) {
    step.why = error.result().what;
    if (error.result().kind != AttemptResult::Kind::kOutOfMemory) thrown = std::current_exception();
  } catch (...) {
    thrown = std::current_exception();
  }
  expected_ = Clock::now() - begin;
  if (is_recorded) {
    step.kind = LearnerStep::Kind::kRecorded;
    recordings_[change.record] = recordings + made;
    if (!failures_.waits()) failures_.reset();
    if (is_new) failed_.clear();
    misses_.reset();
    look_at_ = 0;
  } else {
    step.kind = LearnerStep::Kind::kFailed;
    if (is_new) set_points(before);  // its recordings are dropped
    recordings_.erase(change.record);
    failed_.insert(change.record);
    failures_.note_failure();
    look_at_ = demand_.calls();
    if (thrown) std::rethrow_exception(thrown);
  }
  log_event(LogLevel::kInfo,
            "learned function=\"{}\" sizes=\"{}\" evicted=\"{}\" recorded={} gain_us={:.1f}",
            function_.name(), joined(step.sizes, " "), joined(step.evicted, " "), is_recorded,
            step.gain_us);
  return step;
}

// While an Asked lives, the next replays of the recordings of a call that had no turn are verified.
class SizeLearner::Asked {
 public:
  Asked(SizeLearner& learner, const CallSizes& sizes) : learner_(learner) {
    const Entry entry(learner.engine_->gate);
    for (const auto& [hash, keys] : learner.function_.state().keys) {
      for (const auto& key : keys) {
        if (learner.call_of(*key) != sizes) continue;
        for (Node* const node : key->nodes) {
          if (!learner.had_no_turn(*node)) continue;
          verifier().ask(node);
          nodes_.push_back(node->id);
        }
      }
    }
  }
  ~Asked() {
    try {
      const Entry entry(learner_.engine_->gate);
      verifier().ask(nullptr);
    } catch (const std::exception& error) {
      log_event(LogLevel::kError, "verification_not_ended error=\"{}\"", error.what());
    }
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  const std::vector<std::uint32_t>& nodes() const noexcept { return nodes_; }

 private:
  ReplayVerifier& verifier() const { return *learner_.engine_->extensions.find<ReplayVerifier>(); }

  SizeLearner& learner_;
  std::vector<std::uint32_t> nodes_;
};

// Verifies nothing in a group. Holds the outputs of each call, so that the next call is replayed in
// another place.
LearnerStep SizeLearner::verify(std::chrono::microseconds max_time) try {
  if (engine_->options.group.get() != nullptr || max_time.count() <= 0 ||
      max_time < expected_to_verify_ || unverified_.waits()) {
    return {};
  }
  const std::optional<CallSizes> sizes = unverified_call();
  if (!sizes) return {};
  const RestoredGenerators restored(options_.generators);
  const AddedTime added(expected_to_verify_ = {});
  const Counters& counters = function_.state().counters;
  const std::uint64_t verified = counters.verified;
  const std::vector<Tensor> inputs = make_inputs_(*sizes);
  const InputList list = InputList(std::span<const Tensor>(inputs)).with_key(sizes->key().text());
  const Asked asked(*this, *sizes);
  std::vector<TensorList> held(options_.held_outputs + 1);
  const auto have_had_their_turn = [&] {
    asked_.insert(asked.nodes().begin(), asked.nodes().end());
  };
  try {
    for (TensorList& outputs : held) {
      engine_->call(function_.state(), list, outputs);
      demand_.leave_out(*sizes);
    }
  } catch (const VerifyError&) {
    have_had_their_turn();
    throw;
  }
  have_had_their_turn();
  unverified_.reset();
  if (counters.verified == verified) return {};
  return {.kind = LearnerStep::Kind::kVerified, .sizes = demand_.point_of(*sizes)};
} catch (...) {
  unverified_.note_failure();
  throw;
}

// Returns nothing unless all ranks gave memory back.
LearnerStep SizeLearner::give_back() {
  ContextMemory& memory = *engine_->memory;
  const std::size_t before = memory.reserved_bytes();
  (void)engine_->trim();
  (void)memory.pool(Region::kEager).trim();
  reserved_after_ = memory.reserved_bytes();
  if (!engine_->votes.agree(reserved_after_ < before)) return {};
  return {.kind = LearnerStep::Kind::kGaveBack, .bytes = before - reserved_after_};
}

// Names the largest point too, which is recorded already: precapture() places the outputs of
// smaller points where its held output leaves room. Axes that list no sizes use those that calls
// had.
std::optional<CallSizes> SizeLearner::record(const Sizes& point, LearnerStep& step) {
  const Sizes& largest_point = *std::ranges::max_element(points_, {}, &work_of);
  PrecaptureOptions options{.held_outputs = options_.held_outputs};
  options.wants = [&](const CallSizes& sizes) {
    const Sizes here = demand_.point_of(sizes);
    return here == point || here == largest_point;
  };
  const AxisPlan& plan = *function_.state().axes;
  for (std::size_t axis = 0, number = 0; axis < plan.size(); ++axis) {
    const AxisRule& rule = plan.rule(axis);
    Sizes sizes;
    if (rule.is_learned()) {
      sizes = {point[number]};
      if (largest_point[number] != point[number]) sizes.push_back(largest_point[number]);
      ++number;
    } else {
      sizes = demand_.most_frequent(axis);
    }
    if (rule.is_of_key()) {
      options.key.push_back({rule.name(), {sizes.begin(), sizes.end()}});
    } else if (!sizes.empty()) {
      options.sizes[rule.name()] = sizes;
    }
  }
  const PrecaptureReport report = precapture(function_, options, make_inputs_);
  std::optional<CallSizes> largest;
  for (const Precaptured& entry : report.entries) {
    if (demand_.point_of(entry.sizes) != point) continue;
    if (!largest) largest = entry.sizes;
    if (entry.outcome != Precaptured::Outcome::kLeftOut) continue;
    step.why = entry.why;
    return std::nullopt;
  }
  return largest;
}

// Verified replays do not count: they take longer than those of calls.
void SizeLearner::measure(const CallSizes& sizes) {
  if (engine_->options.group.get() != nullptr) return;
  const std::vector<Tensor> inputs = make_inputs_(sizes);
  const InputList list = InputList(std::span<const Tensor>(inputs)).with_key(sizes.key().text());
  const auto timed = [&] {
    engine_->memory->stream().synchronize();
    const auto begin = Clock::now();
    TensorList outputs;
    engine_->call(function_.state(), list, outputs);
    engine_->memory->stream().synchronize();
    demand_.leave_out(sizes);
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  };
  const Counters& counters = function_.state().counters;
  double replay_us = std::numeric_limits<double>::infinity();
  int measured = 0;
  for (int run = 0; run < kMostReplays && measured < kMeasuredReplays; ++run) {
    const std::uint64_t plain = counters.replays - counters.verified;
    const double us = timed();
    if (counters.replays - counters.verified == plain) continue;
    replay_us = std::min(replay_us, us);
    ++measured;
  }
  // A call without a recording fails if a graph is required, which is worse than any wait.
  constexpr double kFailed = 64;  // times a replay
  double eager_us = kFailed * replay_us;
  if (!function_.state().options.require_graph) {
    const NoGraph eagerly;
    eager_us = timed();
  }
  if (measured > 0) costs_.add(work_of(demand_.point_of(sizes)), replay_us, eager_us);
}

void SizeLearner::set_points(std::vector<Sizes> points) {
  const Entry entry(engine_->gate);
  FunctionState& function = function_.state();
  std::vector<Sizes> dropped;
  std::ranges::set_difference(points_, points, std::back_inserter(dropped));
  points_ = std::move(points);
  for (std::size_t number = 0; number < demand_.axes().size(); ++number)
    function.axes->set_sizes(demand_.axes()[number], sizes(number));
  const std::uint64_t before = function.counters.evictions;
  const auto is_dropped = [&](const KeyState& key) {
    return std::ranges::binary_search(dropped, demand_.point_of(key.padded));
  };
  for (auto& [hash, keys] : function.keys) {
    for (const auto& key : keys) {
      while (is_dropped(*key) && !key->nodes.empty())
        engine_->evictor.evict(*key->nodes.back(), SkipReason::kSizeLimit);
    }
  }
  function.drop_keys(is_dropped);
  evictions_ += function.counters.evictions - before;
}

// Returns how many recordings there are of each point.
std::map<Sizes, std::size_t> SizeLearner::count_recordings() const {
  const Entry entry(engine_->gate);
  std::map<Sizes, std::size_t> counts;
  for (const auto& [hash, keys] : function_.state().keys) {
    for (const auto& key : keys)
      counts[demand_.point_of(key->padded)] += key->nodes.size();
  }
  return counts;
}

// Returns the points that still have all their recordings, and those that the caller has
// precaptured since.
std::vector<Sizes> SizeLearner::whole_points() const {
  std::vector<Sizes> whole;
  for (const auto& [point, count] : count_recordings()) {
    const auto made = recordings_.find(point);
    const bool is_new = !std::ranges::binary_search(points_, point);
    const std::size_t least = is_new || made == recordings_.end() ? 1 : made->second;
    if (count >= least) whole.push_back(point);
  }
  return whole;
}

bool SizeLearner::had_no_turn(const Node& node) const {
  const auto& costs = node.recording.costs;
  return costs.verified == 0 && costs.unverified == 0 && !asked_.contains(node.id);
}

// Returns a call whose recordings had no turn to be verified, if the context verifies calls of the
// function.
std::optional<CallSizes> SizeLearner::unverified_call() const {
  const Entry entry(engine_->gate);
  const auto* const verifier = engine_->extensions.find<ReplayVerifier>();
  if (verifier == nullptr || !verifier->verifies(function_.state())) return std::nullopt;
  for (const auto& [hash, keys] : function_.state().keys) {
    for (const auto& key : keys) {
      const auto has_no_turn = [this](const Node* node) { return had_no_turn(*node); };
      if (std::ranges::any_of(key->nodes, has_no_turn)) return call_of(*key);
    }
  }
  return std::nullopt;
}

// The plan's question is the calls' question: whether they are padded to a size that holds theirs.
Serves SizeLearner::serves() const {
  const AxisPlan& plan = *function_.state().axes;
  const double most_waste = plan.waste_left_for(demand_.axes());
  return [this, &plan, most_waste](const Sizes& point, const Sizes& sizes) {
    return plan.serves(demand_.axes(), point, sizes, most_waste);
  };
}

// Returns the sizes of a call with this key, and the integers of its key that have options.
CallSizes SizeLearner::call_of(const KeyState& key) const {
  const AxisPlan& plan = *function_.state().axes;
  std::vector<CallSizes::Entry> entries;
  std::vector<Key::Part> parts;
  for (std::size_t axis = 0; axis < plan.size(); ++axis) {
    const AxisRule& rule = plan.rule(axis);
    if (rule.is_of_key()) {
      parts.emplace_back(rule.name(), key.padded[axis]);
    } else {
      entries.emplace_back(rule.name(), key.padded[axis]);
    }
  }
  return CallSizes(std::move(entries), Key(std::span<const Key::Part>(parts)));
}

// Returns the bytes of the pools that recordings write or read, plus those of outputs. Bytes that
// are both count twice.
std::size_t SizeLearner::used_bytes() const {
  const Entry entry(engine_->gate);
  std::vector<Range> ranges;
  for (const auto& node : engine_->tree.nodes()) {
    const auto& more = node->recording.footprint.ranges();
    ranges.insert(ranges.end(), more.begin(), more.end());
  }
  std::ranges::sort(ranges, {}, &Range::address);
  std::size_t bytes = engine_->memory->live_bytes();
  std::uintptr_t end = 0;
  for (const Range& range : ranges) {
    if (range.end() <= end) continue;
    bytes += range.end() - std::max<std::uintptr_t>(end, range.address);
    end = range.end();
  }
  return bytes;
}

}  // namespace cgtree
