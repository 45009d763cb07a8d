// World: many copied inputs, inputs that are returned, outputs that have ended, outputs of another
// device or of an integer of the key, and outputs of other contexts in closures.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "tests/support/steps.h"
#include "tests/system/step_context.h"
#include "tests/system/world.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

constexpr std::int64_t kKeyRows = 12;

class InputFunctions {
 public:
  using Function = WorldContext::Function;

  explicit InputFunctions(WorldContext& with) {
    const auto add_function = [&](StepFunction step, CompileOptions options = {}) {
      functions_.push_back(compile(
          with.context(), "inputs",
          [&with, step = std::move(step)](std::span<const Tensor> inputs) {
            if (with.fault == 1) throw InjectedFault();
            std::vector<Tensor> outputs = step(inputs);
            if (with.fault == 2) throw InjectedFault();
            return outputs;
          },
          std::move(options)));
    };
    add_function([](std::span<const Tensor> inputs) -> std::vector<Tensor> {
      Tensor sum = affine(inputs[0], 1, 0);
      for (std::size_t i = 1; i < inputs.size(); ++i)
        sum = add(sum, affine(inputs[i], static_cast<float>(i + 1), 0));
      return {sum};
    });
    for (int i = 0; i < kReturns; ++i) {
      CompileOptions options;
      if (with.rebinds()) {
        options.inputs = {{.rebind = Rebind::kAlways}};
        options.outputs = {{.rebind = Rebind::kAlways}, {}};
      }
      add_function(
          [i](std::span<const Tensor> inputs) -> std::vector<Tensor> {
            const Tensor& x = inputs[0];
            const Tensor returned = i < 2 ? x : x.slice(0, 0, x.dim(0) / 2);
            const Tensor made = affine(affine(x, 0.5f, 1), -1, 0);
            if (i % 2 == 0) return {made, returned};
            return {returned, made};
          },
          std::move(options));
    }
    add_function([&with](std::span<const Tensor> inputs) -> std::vector<Tensor> {
      const Tensor& x = inputs[0];
      const Device device = with.context().device();
      const Tensor there = empty(Shape(x.shape().dims()), DType::kFloat32, Device{device.type, 1});
      copy_elements(current_stream(), there, affine(x, 0.5f, 1));
      return {there};
    });
    add_function([this](std::span<const Tensor> inputs) -> std::vector<Tensor> {
      return {cgtree::testing::add(inputs[0], lent)};
    });
  }

  static constexpr int kReturns = 4;
  const Function& many() const { return functions_[0]; }
  const Function& returns(int i) const { return functions_[static_cast<std::size_t>(1 + i)]; }
  const Function& elsewhere() const { return functions_[1 + kReturns]; }
  const Function& reads_lent() const { return functions_[2 + kReturns]; }

  // What the closure of reads_lent() holds.
  Tensor lent;
  ModelTensor lent_model;

 private:
  std::vector<Function> functions_;
};

// A function whose output has as many rows as its key says; null if it is refused.
class KeyRows {
 public:
  explicit KeyRows(WorldContext& with) {
    CompileOptions options;
    options.keys = {{.name = "rows", .policy = AxisPolicy::kMultiples, .multiple_of = 4}};
    options.outputs = {{.dynamic = {{0, "rows"}}}};
    try {
      function.emplace(compile(
          with.context(), "key_rows",
          [](std::span<const Tensor> inputs) -> std::vector<Tensor> {
            return {affine(inputs[0].slice(0, 0, current_key().number("rows")), 0.5f, 1)};
          },
          std::move(options)));
    } catch (const InvalidArgument&) {
    }
  }

  std::optional<WorldContext::Function> function;
};

}  // namespace

World::Variable World::small(int choice) {
  Variable x;
  x.model = ModelTensor::make(kRow, kNobodys);
  for (float& value : x.model.buffer->values)
    value = static_cast<float>(static_cast<int>(next_value()) % 8 + choice % 2);
  x.tensor = from_host(kRow, std::span<const float>(x.model.buffer->values), device_);
  return x;
}

bool World::is_stale(const Tensor& tensor) {
  return tensor.defined() && tensor.storage()->state() == Storage::State::kStale;
}

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
    WorldOperation what = operation;
    what.fault = 0;
    bool has_thrown = false;
    try {
      (void)run_call(what, function, tensors, {}, false, outputs);
    } catch (const StaleTensor&) {
      has_thrown = true;
    }
    for (Variable& input : inputs) {
      if (is_stale(input.tensor)) input = {};
    }
    if (!has_thrown) throw Difference("a call with an input that has ended is accepted");
    return;
  }
  for (int i = 0; i <= operation.choice % 4; ++i) {  // what is known of the inputs is learned
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

// Some end, and others take their places, which may lie where another one lay.
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
        WorldOperation what = operation;
        what.fault = 0;
        const auto& chain = with.function(Deed::kChain);
        if (!run_call(what, chain, {&x.tensor, 1}, {}, false, outputs)) continue;
        place(i) = {outputs.at(0), results_of(Deed::kChain, x.model, {}, 0)[0]};
      }
    }
  }
  settle();
  for (const Variable& x : sources)
    graveyard_.push_back(x.tensor);  // what ends of others' memory is counted
}

void World::stale(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  if (stale_.empty()) return;
  const Tensor x = stale_[operation.choice % stale_.size()];
  std::vector<Tensor> outputs;
  WorldOperation what = operation;
  what.fault = 0;
  const Deed deeds[] = {Deed::kChain, Deed::kAlias, Deed::kBump, Deed::kWorkspace};
  try {
    (void)run_call(what, with.function(deeds[operation.y % 4]), {&x, 1}, {}, false, outputs);
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
  const int made_at = which % 2;  // the other is the input, or its first half
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
  WorldOperation what = operation;
  if (what.fault == 2) what.fault = 0;
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

void World::elsewhere(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  const Variable x = ready(operation.x);
  std::vector<Tensor> outputs;
  const auto& function = with.family<InputFunctions>().elsewhere();
  WorldOperation what = operation;
  what.fault = without_late(what.fault);  // the step's memory would end before the work there
  if (!run_call(what, function, {&x.tensor, 1}, {}, false, outputs)) return;
  ++totals_.done["an output is on another device"];
  settle();
  expect(outputs.at(0), affine_of(x.model, 0.5f, 1), "an output of another device");
  elsewhere_.push_back({outputs[0], affine_of(x.model, 0.5f, 1)});
  if (elsewhere_.size() > 3) elsewhere_.erase(elsewhere_.begin());
}

// The closure of one context holds an output of another.
void World::lend(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  InputFunctions& family = with.family<InputFunctions>();
  const Variable x = fresh_of(kRow);
  const std::size_t other = (static_cast<std::size_t>(operation.context) + 1) % contexts_.size();
  std::vector<Tensor> outputs;
  WorldOperation what = operation;
  what.fault = 0;
  what.context = static_cast<std::uint8_t>(other);
  const auto& lender = use(what.context);
  if (!run_call(what, lender.function(Deed::kChain), {&x.tensor, 1}, {}, false, outputs)) return;
  settle();
  family.lent = outputs.at(0);
  family.lent_model = results_of(Deed::kChain, x.model, {}, 0)[0];
  lent_values_.push_back(family.lent_model);
}

// A recording reads the tensor that the closure held when it was recorded. That may have ended
// since, which is an error, but it never reads what lies there then.
void World::lent(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  InputFunctions& family = with.family<InputFunctions>();
  if (!family.lent.defined()) lend(operation);
  if (!family.lent.defined()) return;
  const Variable x = of_dims(operation.x, kRow);
  const bool may_be_stale = is_stale(family.lent);
  std::vector<Tensor> outputs;
  try {
    if (!run_call(operation, family.reads_lent(), {&x.tensor, 1}, {}, false, outputs)) return;
  } catch (const StaleTensor&) {
    if (!may_be_stale) throw;
    family.lent = {};
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

void World::key_rows(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  const auto& function = with.family<KeyRows>().function;
  if (!function) return;
  const Variable x = fresh_of(Shape{kKeyRows});
  const std::int64_t rows = 1 + operation.choice % kKeyRows;
  std::vector<Tensor> outputs;
  ++with.calls;
  ++totals_.calls;
  wait_for_all(with.context().stream());
  try {
    outputs = function->keyed({{"rows", rows}})({&x.tensor, 1});
  } catch (const OutOfMemory&) {
    if (!program_.has(Feature::kBudgets)) throw;
    return;
  }
  ++totals_.done["an output has as many rows as the key says"];
  const Tensor part = x.tensor.slice(0, 0, rows);
  put(operation.to, {outputs.at(0), affine_of(view_of(x.model, x.tensor, part), 0.5f, 1)});
}

}  // namespace cgtree::testing
