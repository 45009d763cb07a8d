// World: steps that work elsewhere: on side streams, and in other contexts.
#include "tests/system/world.h"

#include "base/error.h"
#include "tests/support/steps.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {

// Unless the step joins its side stream, the caller has to wait for it.
void World::fork(const WorldOperation& operation) {
  WorldOperation what = operation;
  int how = operation.y % WorldContext::kForks;
  if (program_.has(Feature::kBudgets) && how == WorldContext::kNotJoined) how = 0;
  const bool joins = how != WorldContext::kNotJoined;
  if (!joins) what.fault = std::min<std::uint8_t>(what.fault, 1);
  const Variable x = ready(operation.x);
  WorldContext& with = context(operation);
  std::vector<Tensor> outputs;
  const bool done =
      run_call(what, with.function(Deed::kFork, how), {&x.tensor, 1}, {}, false, outputs);
  if (!joins) {
    with.side().synchronize();
    settle();
  }
  if (!done) return;
  const int caller = caller_number(operation);
  if (joins)
    return put(operation.to, {outputs.at(0), results_of(Deed::kFork, x.model, {}, 0)[0], caller});
  put(operation.to, {outputs.at(0), left_of(x.model), caller});
  put(operation.to + 1, {outputs.at(1), right_of(x.model), caller});
}

// What is refused has changed nothing: the step goes on, or throws what it was told to.
void World::intrude(const WorldOperation& operation) {
  const Variable x = ready(operation.x);
  WorldContext& with = context(operation);
  WorldContext& other =
      *contexts_[(static_cast<std::size_t>(operation.context) + 1) % contexts_.size()];
  std::string text;
  if (&other != &with) {
    with.during = [&] {
      try {
        if (operation.y % 2 == 0) {
          (void)other.function(Deed::kChain)({&x.tensor, 1});
        } else {
          (void)other.context().eager([&] { return affine(x.tensor, 1, 0); });
        }
        text = "a step works in another context";
      } catch (const InvalidArgument&) {
      }
    };
  }
  std::vector<Tensor> outputs;
  const bool done =
      run_call(operation, with.function(Deed::kIntrude), {&x.tensor, 1}, {}, false, outputs);
  with.during = nullptr;
  if (!text.empty()) throw Difference(text);
  if (!done) return;
  put(operation.to,
      {outputs.at(0), results_of(Deed::kIntrude, x.model, {}, 0)[0], caller_number(operation)});
}

}  // namespace cgtree::testing
