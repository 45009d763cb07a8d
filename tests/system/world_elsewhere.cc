// World: steps with work on side streams, in other contexts, and on another device.
#include "tests/system/world.h"

#include "base/error.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "tests/support/steps.h"
#include "tests/system/step_context.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

// Functions whose output, or input, is on device 1.
struct OnDeviceOne {
  explicit OnDeviceOne(WorldContext& with)
      : makes(with.make("makes_elsewhere",
                        [&with](std::span<const Tensor> inputs) {
                          const Device device{with.context().device().type, 1};
                          return std::vector<Tensor>{copy_of(affine(inputs[0], 0.5f, 1), device)};
                        })),
        reads(with.make("reads_elsewhere", [&with](std::span<const Tensor> inputs) {
          const Tensor here = copy_of(inputs[0], with.context().device());
          return std::vector<Tensor>{affine(here, 0.5f, 1)};
        })) {}

  static Tensor copy_of(const Tensor& x, Device device) {
    const Tensor made = empty(Shape(x.shape().dims()), DType::kFloat32, device);
    copy_elements(current_stream(), made, x);
    return made;
  }

  WorldContext::Function makes;
  WorldContext::Function reads;
};

}  // namespace

// If the step does not join its side stream, the caller waits for it.
void World::fork(const WorldOperation& operation) {
  WorldOperation what = operation;
  int how = operation.y % WorldContext::kForks;
  if (program_.has(Feature::kBudgets) && how == WorldContext::kNotJoined) how = 0;
  const bool joins = how != WorldContext::kNotJoined;
  if (!joins) what.fault = without_late(what.fault);
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

// A refused nested call has no effect: the step goes on, or throws its fault.
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

void World::elsewhere(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  const OnDeviceOne& functions = with.family<OnDeviceOne>();
  WorldOperation what = operation;
  what.fault = without_late(what.fault);  // late, it would free memory in use there
  std::vector<Tensor> outputs;
  if (operation.choice % 4 == 0 && !elsewhere_.empty()) {
    const Variable& x = elsewhere_[operation.choice / 4 % elsewhere_.size()];
    if (!run_call(what, functions.reads, {&x.tensor, 1}, {}, false, outputs)) return;
    ++totals_.done["an input is on another device"];
    return put(operation.to, {outputs.at(0), affine_of(x.model, 0.5f, 1)});
  }
  const Variable x = ready(operation.x);
  if (!run_call(what, functions.makes, {&x.tensor, 1}, {}, false, outputs)) return;
  ++totals_.done["an output is on another device"];
  settle();
  expect(outputs.at(0), affine_of(x.model, 0.5f, 1), "an output of another device");
  elsewhere_.push_back({outputs[0], affine_of(x.model, 0.5f, 1)});
  if (elsewhere_.size() > 3) elsewhere_.erase(elsewhere_.begin());
}

}  // namespace cgtree::testing
