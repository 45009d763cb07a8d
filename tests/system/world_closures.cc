// World: steps with tensors in their closures, which they keep, which are replaced, and which are
// outputs of another context; and decisions of the host.
#include "tests/system/world.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "extensions/guards/guard.h"
#include "tests/support/steps.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

// A function that adds a tensor of another context.
struct Borrower {
  explicit Borrower(WorldContext& with)
      : function(with.make("borrower", [this](std::span<const Tensor> inputs) {
          return std::vector<Tensor>{add(inputs[0], lent)};
        })) {}

  Tensor lent;
  WorldContext::Function function;
};

// A function with decisions of the host as guards, which are asked again before each replay.
struct Decider {
  explicit Decider(WorldContext& with)
      : function(with.make("decider", [given = decision](std::span<const Tensor> inputs) {
          const int scale = decide("scale", [given] { return given->first; });
          if (scale == 0) return std::vector<Tensor>{affine(inputs[0], -1, 0)};
          const int shift = decide("shift", [given] { return given->second; });
          return std::vector<Tensor>{
              affine(inputs[0], static_cast<float>(scale), static_cast<float>(shift))};
        })) {}

  const std::shared_ptr<std::pair<int, int>> decision = std::make_shared<std::pair<int, int>>(0, 0);
  WorldContext::Function function;
};

}  // namespace

void World::keep(const WorldOperation& operation) {
  const int number = operation.y % WorldContext::kTables;
  WorldContext& with = context(operation);
  const Variable x = of_dims(operation.x, number == 1 ? Shape{40} : kRow);
  std::vector<Tensor> outputs;
  ModelTensor& table = tables_[static_cast<std::size_t>(operation.context) % contexts_.size()]
                              [static_cast<std::size_t>(number)];
  const bool done = run_call(without_fault(operation), with.function(Deed::kKeep, number),
                             {&x.tensor, 1}, {}, false, outputs);
  if (table.buffer == nullptr && with.table(number).defined()) table = affine_of(x.model, 1, 0);
  if (!done) return;
  put(operation.to, {outputs[0], model_add(x.model, table, kNobodys), caller_number(operation)});
}

// A replay reads the tensor that the closure held in the recording.
void World::closure(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  if (with.values().empty()) with.swap(next_value());
  const Variable x = of_dims(operation.x, kRow);
  std::vector<Tensor> outputs;
  if (!run_call(operation, with.function(Deed::kClosure, operation.y / 2 % 2), {&x.tensor, 1}, {},
                false, outputs)) {
    return;
  }
  settle();
  const std::vector<float> values = outputs[0].to_vector<float>();
  for (const float value : with.values()) {
    const ModelTensor sum = affine_of(x.model, 1, value);
    if (values == sum.buffer->values) {
      return put(operation.to, {outputs[0], sum, caller_number(operation)});
    }
  }
  throw Difference(
      fmt::format("a recording copies [{}] - x from its closure", fmt::join(values, " ")));
}

// A replay must have the decisions of its call.
void World::guard(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  Decider& decider = with.family<Decider>();
  const bool changes_often = operation.choice >= 240;
  *decider.decision = {operation.choice % 3 - 1, changes_often ? static_cast<int>(with.calls % 1000)
                                                               : operation.choice / 3 % 2};
  const auto [scale, shift] = *decider.decision;
  const Variable x = of_dims(operation.x, kRow);
  std::vector<Tensor> outputs;
  if (!run_call(operation, decider.function, {&x.tensor, 1}, {}, false, outputs)) return;
  const auto last = decider.function.last_outcome();
  if (last && last->outcome == Outcome::kReplay) ++totals_.done["a replay has asked guards"];
  put(operation.to,
      {outputs.at(0),
       scale == 0 ? affine_of(x.model, -1, 0)
                  : affine_of(x.model, static_cast<float>(scale), static_cast<float>(shift)),
       caller_number(operation)});
}

// Puts an output of one context into the closure of another.
void World::lend(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  Borrower& borrower = with.family<Borrower>();
  const Variable x = fresh_of(kRow);
  std::vector<Tensor> outputs;
  WorldOperation what = without_fault(operation);
  what.context = static_cast<std::uint8_t>((operation.context + 1u) % contexts_.size());
  const WorldContext& lender = use(what.context);
  if (!run_call(what, lender.function(Deed::kChain), {&x.tensor, 1}, {}, false, outputs)) return;
  settle();
  borrower.lent = outputs.at(0);
  lent_values_.push_back(results_of(Deed::kChain, x.model, {}, 0)[0]);
}

// A recording reads the tensor that the closure held when it was recorded. If that tensor has ended
// since, the call fails, and never reads later contents of its memory.
void World::lent(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  Borrower& borrower = with.family<Borrower>();
  if (!borrower.lent.defined()) lend(operation);
  if (!borrower.lent.defined()) return;
  const Variable x = of_dims(operation.x, kRow);
  const bool may_be_stale = is_stale(borrower.lent);
  std::vector<Tensor> outputs;
  try {
    if (!run_call(operation, borrower.function, {&x.tensor, 1}, {}, false, outputs)) return;
  } catch (const StaleTensor&) {
    if (!may_be_stale) throw;
    borrower.lent = {};
    ++totals_.done["an output of another context has ended in a closure"];
    return;
  }
  ++totals_.done["a closure reads an output of another context"];
  settle();
  const std::vector<float> values = outputs.at(0).to_vector<float>();
  for (const ModelTensor& model : lent_values_) {
    const ModelTensor sum = model_add(x.model, model, kNobodys);
    if (values == sum.buffer->values) {
      return put(operation.to, {outputs[0], sum, caller_number(operation)});
    }
  }
  throw Difference("a recording reads what took the place of an output of another context");
}

}  // namespace cgtree::testing
