// World: sizes that are predicted, precaptured and learned.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"
#include "extensions/flow/control_flow.h"
#include "extensions/flow/loop_stream.h"
#include "extensions/sizes/precapture.h"
#include "extensions/sizes/size_learner.h"
#include "tests/support/flags.h"
#include "tests/support/steps.h"
#include "tests/system/step_context.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

// Steps of one input, some of which hand out a row per round.
class SizedSteps {
 public:
  SizedSteps(Device device, bool has_rows) {
    if (has_rows) rows_.emplace(device, kMostElements * sizeof(float), kRounds + 1);
  }

  std::vector<Tensor> run(const Tensor& x) {
    const Tensor y = affine(x, 0.5f, 1);
    if (!rows_) return {affine(y, -1, 0)};
    const Tensor goes_on = empty(Shape(), DType::kInt32);
    (void)loop(kRounds, *rows_, [&]() -> LoopRound {
      update(y, 0.5f, -0.25f);
      compare(y, 0, goes_on);
      return {goes_on, y};
    });
    return {affine(y, -1, 0)};
  }
  // Also expects the rows of a call that has ended.
  ModelTensor result(const ModelTensor& x) {
    ModelTensor y = affine_of(x, 0.5f, 1);
    for (int round = 0; rows_; ++round) {
      y = affine_of(y, 0.5f, -0.25f);
      const std::vector<float>& expected = y.buffer->values;
      std::array<float, kMostElements> row{};
      const auto got = rows_->next(std::as_writable_bytes(std::span(row)), {});
      const bool is_last = round + 1 == kRounds || !(expected[0] > 0);
      if (!got || got->round != round || got->is_last != is_last ||
          !std::equal(expected.begin(), expected.end(), row.begin())) {
        throw Difference("another row");
      }
      if (is_last) break;
    }
    if (rows_ && rows_->drop() > 0) throw Difference("rows behind the last");
    return affine_of(y, -1, 0);
  }
  // Drops the rows of calls that threw, and of calls whose rows are not checked.
  void drop() {
    if (rows_) rows_->drop();
  }
  bool has_rows() const { return rows_.has_value(); }

 private:
  static constexpr int kRounds = 3;
  static constexpr std::size_t kMostElements = 64;

  std::optional<LoopStream> rows_;
};

// Functions of a varying size; the second runs eagerly while a size is missing, the third hands out
// rows.
class Precaptures {
 public:
  using Function = WorldContext::Function;

  explicit Precaptures(WorldContext& with)
      : plain_(with.context().device(), false), with_rows_(with.context().device(), true) {
    const std::vector<DynamicAxis> rows = {{0, "rows"}};
    for (const int number : {0, 1, 2}) {
      const std::int64_t least = number == 1 ? 3 : 2;
      functions_.push_back(with.make(
          "sizes",
          [&steps = steps(number)](std::span<const Tensor> inputs) { return steps.run(inputs[0]); },
          {.inputs = {{.dynamic = rows}},
           .buckets = {{"rows", {least, 2 * least, 4 * least}}},
           .while_missing = number == 1 ? WhileMissing::kRunEagerly : WhileMissing::kRecord,
           .outputs = {{.dynamic = rows}}}));
    }
  }

  const Function& function(int i) const { return functions_[static_cast<std::size_t>(i)]; }
  SizedSteps& steps(int i) { return i == 2 ? with_rows_ : plain_; }

 private:
  SizedSteps plain_;
  SizedSteps with_rows_;
  std::vector<Function> functions_;
};

// A function whose size is learned, and its learner.
struct Learned {
  using Function = WorldContext::Function;

  Learned(WorldContext& with, bool has_rows)
      : steps(with.context().device(), has_rows),
        function(with.make("learned",
                           [this](std::span<const Tensor> inputs) { return steps.run(inputs[0]); },
                           {.inputs = {{.dynamic = {{0, "rows"}}}},
                            .axes = {{.name = "rows", .policy = AxisPolicy::kLearned}},
                            .outputs = {{.dynamic = {{0, "rows"}}}}})),
        learner(function, [this](const CallSizes& sizes) { return make_inputs(sizes); },
                {.max_sizes = with.rebinds() ? 1U : 2U}) {}

  SizedSteps steps;
  const Function function;
  MakeInputs make_inputs;  // for the current idle moment
  SizeLearner learner;
};
struct LearnedPlain : Learned {
  explicit LearnedPlain(WorldContext& with) : Learned(with, false) {}
};
struct LearnedWithRows : Learned {
  explicit LearnedWithRows(WorldContext& with) : Learned(with, true) {}
};

}  // namespace

void World::precapture(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  Precaptures& sizes = with.family<Precaptures>();
  const int number = operation.y % 4 == 3 ? 2 : operation.x % 2;
  const auto& function = sizes.function(number);
  SizedSteps& steps = sizes.steps(number);
  const auto& other = sizes.function(operation.y / 4 == 0 ? operation.x % 2 : 1 - operation.x % 2);
  const Variable x = fresh_of(Shape{12});
  const bool has_budget = program_.has(Feature::kBudgets);
  settle();
  int made = 0;
  const auto plain = [&](const CallSizes& wanted) {
    return std::vector<Tensor>{x.tensor.slice(0, 0, wanted["rows"])};
  };
  const PrecaptureOptions options{.held_outputs = operation.y % 3u};
  if (operation.choice % 4 == 0) (void)with.context().release_memory();
  if (operation.choice % 4 == 1) {  // some sizes are recorded before, and their outputs held
    for (int i = 0; i < 3; ++i) {
      const Tensor part = x.tensor.slice(0, 0, 1 + (operation.choice + 5 * i) % 12);
      std::vector<Tensor> outputs;
      steps.drop();
      if (!run_call(without_fault(operation), function, {&part, 1}, {}, false, outputs)) break;
      if (steps.has_rows()) with.context().synchronize();
      put(operation.to + i, {outputs.at(0), steps.result(view_of(x.model, x.tensor, part))});
      if (steps.has_rows()) ++totals_.done["a size that was recorded beforehand hands out rows"];
    }
    settle();
  }
  const std::uint64_t before = with.context().stats().calls;
  const MakeInputs make_inputs = [&](const CallSizes& wanted) {
    ++made;
    if (operation.choice / 4 % 4 == 0 && made == 2) throw InjectedFault();
    if (operation.choice / 4 % 4 == 1 && made == 1) {
      ++totals_.done["sizes are recorded while others are"];
      PrecaptureOptions one = options;  // fewer sizes than the outer precapture
      one.sizes = {{"rows", {2 + operation.x % 2}}};
      (void)is_refused([&] { (void)cgtree::precapture(other, one, plain); });
    }
    return plain(wanted);
  };
  try {
    std::optional<PrecaptureReport> predicted;
    if (operation.choice / 16 % 2 == 0)
      predicted = cgtree::predict_memory(function, options, plain);
    const PrecaptureReport report = cgtree::precapture(function, options, make_inputs);
    ++totals_.done["sizes are recorded beforehand"];
    if (!has_budget && report.count(Precaptured::Outcome::kLeftOut) > 0) {
      throw Difference("precapture() leaves out: " + to_string(report));
    }
    for (std::size_t i = 0; predicted && !has_budget && i < report.entries.size(); ++i) {
      const Precaptured& told = predicted->entries.at(i);
      const Precaptured& done = report.entries[i];
      const bool was_there = told.outcome == Precaptured::Outcome::kAlreadyThere;
      const bool is_nested = operation.choice / 4 % 4 == 1;
      if (was_there == (done.outcome == Precaptured::Outcome::kAlreadyThere) || is_nested) continue;
      throw Difference(fmt::format("predict_memory() says\n{}and precapture()\n{}",
                                   to_string(*predicted), to_string(report)));
    }
  } catch (const InjectedFault&) {
    ++totals_.done["inputs of a precapture throw"];
  } catch (const OutOfMemory&) {
    if (!has_budget) throw;
  } catch (const InvalidArgument&) {
    if (!function.is_frozen()) throw;
  }
  with.calls += with.context().stats().calls - before;
  settle();
  steps.drop();
}

void World::learn(const WorldOperation& operation) {
  constexpr std::int64_t kRows = 12;
  WorldContext& with = context(operation);
  const bool has_rows = operation.x % 4 == 3;
  Learned& learned = has_rows ? static_cast<Learned&>(with.family<LearnedWithRows>())
                              : with.family<LearnedPlain>();
  const Variable x = fresh_of(Shape{kRows});
  if (operation.choice % 4 != 0) {
    const Tensor part = x.tensor.slice(0, 0, 1 + (operation.choice / 4 + operation.y) % kRows);
    std::vector<Tensor> outputs;
    if (operation.choice % 4 == 1) {
      with.during = [&] {
        if (!is_refused([&] { (void)learned.learner.idle(std::chrono::seconds(100)); }))
          throw Difference("a learner is idle inside a call");
        ++totals_.done["a learner is idle inside a call"];
      };
    }
    learned.steps.drop();
    const bool is_done = run_call(operation, learned.function, {&part, 1}, {}, false, outputs);
    with.during = nullptr;
    if (has_rows) with.context().synchronize();
    if (!is_done) return;
    if (learned.function.last_outcome()->outcome == Outcome::kReplay) {
      ++totals_.done["a size that is learned is replayed"];
      if (has_rows) ++totals_.done["a size that is learned hands out rows"];
    }
    put(operation.to, {outputs.at(0), learned.steps.result(view_of(x.model, x.tensor, part)),
                       caller_number(operation)});
    return;
  }
  settle();
  int made = 0;
  learned.make_inputs = [&](const CallSizes& sizes) {
    if (operation.y % 8 == ++made) throw InjectedFault();
    if (operation.y % 8 == 3) (void)with.context().release_memory();
    if (operation.y % 8 == 4) (void)learned.function({&x.tensor, 1});
    return std::vector<Tensor>{x.tensor.slice(0, 0, sizes["rows"])};
  };
  if (operation.choice / 4 % 8 == 0) (void)with.context().release_memory();
  const std::uint64_t before = with.context().stats().calls;
  try {
    const LearnerStep step = learned.learner.idle(std::chrono::seconds(100));
    if (step.kind == LearnerStep::Kind::kRecorded) ++totals_.done["a size is learned"];
    if (step.kind == LearnerStep::Kind::kFailed) ++totals_.done["a size cannot be learned"];
    if (step.kind == LearnerStep::Kind::kVerified) ++totals_.done["a learner verifies"];
    if (step.kind == LearnerStep::Kind::kGaveBack) ++totals_.done["a learner gives memory back"];
    if (!step.evicted.empty()) ++totals_.done["a size goes for another one"];
  } catch (const InjectedFault&) {
    ++totals_.done["inputs of a learner throw"];
  }
  with.calls += with.context().stats().calls - before;
  settle();
  learned.steps.drop();
}

}  // namespace cgtree::testing
