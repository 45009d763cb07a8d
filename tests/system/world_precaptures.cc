// World: sizes that are predicted and recorded beforehand.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"
#include "tests/support/steps.h"
#include "tests/system/step_context.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

// Functions of a size that varies; the second runs eagerly while a size is missing.
class Precaptures {
 public:
  using Function = WorldContext::Function;

  explicit Precaptures(WorldContext& with) {
    const std::vector<DynamicAxis> rows = {{0, "rows"}};
    for (const std::int64_t least : {2, 3}) {
      functions_.push_back(with.make(
          "sizes",
          [](std::span<const Tensor> inputs) -> std::vector<Tensor> {
            return {affine(affine(inputs[0], 0.5f, 1), -1, 0)};
          },
          {.inputs = {{.dynamic = rows}},
           .buckets = {{"rows", {least, 2 * least, 4 * least}}},
           .while_missing = least == 2 ? WhileMissing::kRecord : WhileMissing::kRunEagerly,
           .outputs = {{.dynamic = rows}}}));
    }
  }

  const Function& function(int i) const { return functions_[static_cast<std::size_t>(i)]; }

 private:
  std::vector<Function> functions_;
};

// A function whose size is learned, and its learner.
struct Learned {
  using Function = WorldContext::Function;

  explicit Learned(WorldContext& with)
      : function(with.make("learned",
                           [](std::span<const Tensor> inputs) -> std::vector<Tensor> {
                             return {affine(affine(inputs[0], 0.5f, 1), -1, 0)};
                           },
                           {.inputs = {{.dynamic = {{0, "rows"}}}},
                            .axes = {{.name = "rows", .policy = AxisPolicy::kLearned}},
                            .outputs = {{.dynamic = {{0, "rows"}}}}})),
        learner(function, [this](const CallSizes& sizes) { return make_inputs(sizes); },
                {.max_sizes = with.rebinds() ? 1U : 2U}) {}

  const Function function;
  MakeInputs make_inputs;  // of the present idle moment
  SizeLearner learner;
};

}  // namespace

void World::precapture(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  Precaptures& sizes = with.family<Precaptures>();
  const auto& function = sizes.function(operation.x % 2);
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
  if (operation.choice % 4 == 1) {  // what is recorded already, and held
    for (int i = 0; i < 3; ++i) {
      const Tensor part = x.tensor.slice(0, 0, 1 + (operation.choice + 5 * i) % 12);
      std::vector<Tensor> outputs;
      if (!run_call(without_fault(operation), function, {&part, 1}, {}, false, outputs)) break;
      put(operation.to + i,
          {outputs.at(0), affine_of(affine_of(view_of(x.model, x.tensor, part), 0.5f, 1), -1, 0)});
    }
    settle();
  }
  const std::uint64_t before = with.context().stats().calls;
  const MakeInputs make_inputs = [&](const CallSizes& wanted) {
    ++made;
    if (operation.choice / 4 % 4 == 0 && made == 2) throw InjectedFault();
    if (operation.choice / 4 % 4 == 1 && made == 1) {
      ++totals_.done["sizes are recorded while others are"];
      PrecaptureOptions one = options;  // the outer one has more to do
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
}

void World::learn(const WorldOperation& operation) {
  constexpr std::int64_t kRows = 12;
  WorldContext& with = context(operation);
  Learned& learned = with.family<Learned>();
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
    const bool is_done = run_call(operation, learned.function, {&part, 1}, {}, false, outputs);
    with.during = nullptr;
    if (!is_done) return;
    if (learned.function.last_outcome()->outcome == Outcome::kReplay)
      ++totals_.done["a size that is learned is replayed"];
    put(operation.to,
        {outputs.at(0), affine_of(affine_of(view_of(x.model, x.tensor, part), 0.5f, 1), -1, 0),
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
    if (step.evicted) ++totals_.done["a size goes for another one"];
  } catch (const InjectedFault&) {
    ++totals_.done["inputs of a learner throw"];
  }
  with.calls += with.context().stats().calls - before;
  settle();
}

}  // namespace cgtree::testing
