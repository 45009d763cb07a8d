// World: many copied inputs, two parts of one storage as inputs, returned inputs, and stale outputs
// as inputs.
#include "tests/system/world.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "tests/support/steps.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

class InputFunctions {
 public:
  using Function = WorldContext::Function;
  static constexpr int kReturns = 4;

  explicit InputFunctions(WorldContext& with)
      : many_(with.make("many", [](std::span<const Tensor> inputs) -> std::vector<Tensor> {
          Tensor sum = affine(inputs[0], 1, 0);
          for (std::size_t i = 1; i < inputs.size(); ++i)
            sum = add(sum, affine(inputs[i], static_cast<float>(i + 1), 0));
          return {sum};
        })) {
    for (int i = 0; i < kReturns; ++i) {
      CompileOptions options;
      if (with.rebinds()) {
        options.inputs = {{.rebind = Rebind::kAlways}};
        options.outputs = {{.rebind = Rebind::kAlways}, {}};
      }
      returns_.push_back(with.make(
          "returns",
          [i](std::span<const Tensor> inputs) -> std::vector<Tensor> {
            const Tensor& x = inputs[0];
            const Tensor returned = i < 2 ? x : x.slice(0, 0, x.dim(0) / 2);
            const Tensor made = affine(affine(x, 0.5f, 1), -1, 0);
            if (i % 2 == 0) return {made, returned};
            return {returned, made};
          },
          std::move(options)));
    }
  }

  // Returns a weighted sum of its inputs.
  const Function& many() const { return many_; }
  // Returns its input (0 and 1) or the input's first half, and a new output: before the input for 0
  // and 2.
  const Function& returns(int i) const { return returns_[static_cast<std::size_t>(i)]; }

 private:
  Function many_;
  std::vector<Function> returns_;
};

}  // namespace

void World::many(const WorldOperation& operation) {
  std::array<Variable, kMany>& inputs =
      many_[static_cast<std::size_t>(operation.context) % contexts_.size()];
  WorldContext& with = context(operation);
  std::vector<Tensor> tensors;
  bool is_any_stale = false;
  for (int i = 0; i < kMany; ++i) {
    Variable& input = inputs[static_cast<std::size_t>(i)];
    if (!input.tensor.defined()) input = small(i);
    is_any_stale = is_any_stale || is_stale(input.tensor);
    tensors.push_back(input.tensor);
  }
  std::vector<Tensor> outputs;
  const auto& function = with.family<InputFunctions>().many();
  if (is_any_stale) {
    ++totals_.done["one of many inputs has ended"];
    bool has_thrown = false;
    try {
      (void)run_call(without_fault(operation), function, tensors, {}, false, outputs);
    } catch (const StaleTensor&) {
      has_thrown = true;
    }
    for (Variable& input : inputs) {
      if (is_stale(input.tensor)) input = {};
    }
    if (!has_thrown) throw Difference("a call with an input that has ended is accepted");
    return;
  }
  for (int i = 0; i <= operation.choice % 4; ++i) {  // makes the inputs a known run
    if (!run_call(operation, function, tensors, {}, false, outputs)) return;
  }
  ++totals_.done["a call with many inputs"];
  ModelTensor sum = affine_of(inputs[0].model, 1, 0);
  for (int i = 1; i < kMany; ++i) {
    const auto& input = inputs[static_cast<std::size_t>(i)];
    sum = model_add(sum, affine_of(input.model, static_cast<float>(i + 1), 0), kNobodys);
  }
  put(operation.to, {outputs.at(0), sum, caller_number(operation)});
}

// Ends some inputs and replaces them; the new ones may have the same addresses.
void World::renew(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  std::array<Variable, kMany>& inputs =
      many_[static_cast<std::size_t>(operation.context) % contexts_.size()];
  const int count = 1 + operation.y % 3;
  std::vector<Variable> sources;
  for (int i = 0; i < count; ++i)
    sources.push_back(small(i));
  const auto place = [&](int i) -> Variable& {
    return inputs[static_cast<std::size_t>(operation.choice / 4 + 3 * i) % kMany];
  };
  for (int i = 0; i < count; ++i)
    place(i) = {};
  for (int i = count - 1; i >= 0; --i) {
    const Variable& x = sources[static_cast<std::size_t>(i)];
    switch (operation.choice % 4) {
      case 0:
        place(i) = x;
        break;
      case 1:
      case 2:
        ++totals_.done["one of many inputs is an eager tensor of the context"];
        place(i) = {with.context().eager([&] { return affine(x.tensor, 1, 0); }),
                    affine_of(x.model, 1, 0)};
        break;
      default: {
        std::vector<Tensor> outputs;
        const WorldOperation what = without_fault(operation);
        const auto& chain = with.function(Deed::kChain);
        if (!run_call(what, chain, {&x.tensor, 1}, {}, false, outputs)) continue;
        place(i) = {outputs.at(0), results_of(Deed::kChain, x.model, {}, 0)[0]};
      }
    }
  }
  settle();
  for (const Variable& x : sources)
    graveyard_.push_back(x.tensor);  // the end of foreign memory is counted
}

void World::stale(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  if (stale_.empty()) return;
  const Tensor x = stale_[operation.choice % stale_.size()];
  std::vector<Tensor> outputs;
  const Deed deeds[] = {Deed::kChain, Deed::kAlias, Deed::kBump, Deed::kWorkspace};
  try {
    (void)run_call(without_fault(operation), with.function(deeds[operation.y % 4]), {&x, 1}, {},
                   false, outputs);
  } catch (const StaleTensor&) {
    ++totals_.done["an output that has ended is passed"];
    return;
  }
  throw Difference("a call with an output that has ended is accepted");
}

void World::returned(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  const Variable x = of_dims(operation.x, kRow);
  const int which = operation.choice % InputFunctions::kReturns;
  const int made_at = which % 2;  // the other result is the input, or its first half
  std::vector<ModelTensor> models(2);
  const ModelTensor half{x.model.buffer, x.model.offset,
                         x.tensor.slice(0, 0, x.tensor.dim(0) / 2).shape()};
  models[static_cast<std::size_t>(made_at)] = affine_of(affine_of(x.model, 0.5f, 1), -1, 0);
  models[static_cast<std::size_t>(1 - made_at)] = which < 2 ? x.model : half;
  std::vector<Tensor> buffers(2);
  const int has_buffer = operation.choice / 4 % 4;
  std::array<Variable, 2> made;
  for (std::size_t i = 0; i < 2; ++i) {
    if ((has_buffer >> i & 1) == 0) continue;
    made[i] = fresh_of(Shape(models[i].shape.dims()));
    buffers[i] = made[i].tensor;
  }
  if (has_buffer == 0) buffers.clear();
  // After a late fault it would be unknown whether a buffer was written.
  const WorldOperation what = operation.fault == 2 ? without_fault(operation) : operation;
  std::vector<Tensor> outputs;
  const auto& function = with.family<InputFunctions>().returns(which);
  if (!run_call(what, function, {&x.tensor, 1}, buffers, false, outputs)) return;
  ++totals_.done[has_buffer == 0 ? "an input is returned" : "an input is returned into a buffer"];
  for (std::size_t i = 0; i < 2; ++i) {
    const bool is_input = static_cast<int>(i) != made_at;
    Variable result{outputs.at(i), models[i], -1, {}};
    if (made[i].tensor.defined()) {
      model_copy(made[i].model, models[i]);
      result.model = made[i].model;
    } else if (is_input) {
      result.writer = x.writer;
      result.is_kept = x.is_kept;
      result.ends_with = x.ends_with;
    } else {
      result.caller = caller_number(operation);
      result.ends_with = ends_with_;
    }
    put(operation.to + static_cast<int>(i), result);
  }
}

// The inputs are the halves of one output, or two outputs at the addresses of such halves.
void World::second(const WorldOperation& operation) {
  const int number = 1 + operation.y % 2;
  const Variable x = fresh_of(kRow);
  std::vector<Tensor> made;
  std::vector<Tensor> outputs;
  WorldContext& with = context(operation);
  const WorldOperation what = without_fault(operation);
  if (!run_call(what, with.function(Deed::kSecond, number), {&x.tensor, 1}, {}, false, made))
    return;
  if (number == 1) made = {made[0].slice(0, 0, 128), made[0].slice(0, 128, 256)};
  if (!run_call(what, with.function(Deed::kSecond), made, {}, false, outputs)) return;
  settle();
  const ModelTensor expected = ModelTensor::make(Shape{128}, kNobodys);
  std::ranges::fill(expected.buffer->values, static_cast<float>(number));
  expect(outputs.at(0), expected, "the second input");
}

}  // namespace cgtree::testing
