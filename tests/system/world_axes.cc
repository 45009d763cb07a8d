// World: calls with varying sizes.
#include "tests/system/world.h"

#include <array>
#include <optional>

#include "base/error.h"
#include "tests/support/steps.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

constexpr std::int64_t kKeyRows = 12;

// A function with an integer of the key that the library rounds up.
struct KeyRows {
  explicit KeyRows(WorldContext& with) {
    const StepFunction step = [](std::span<const Tensor> inputs) -> std::vector<Tensor> {
      return {affine(inputs[0].slice(0, 0, current_key().number("rows")), 0.5f, 1)};
    };
    CompileOptions options{
        .keys = {{.name = "rows", .policy = AxisPolicy::kMultiples, .multiple_of = kMultiple}}};
    function.emplace(with.make("key_rows", step, options));
    options.outputs = {{.dynamic = {{0, "rows"}}}};
    if (!is_refused([&] { (void)with.make("sliced", step, options); })) {
      throw Difference("an output is to be sliced to an integer of the key");
    }
  }

  static constexpr std::int64_t kMultiple = 4;
  std::optional<WorldContext::Function> function;
};

}  // namespace

void World::buckets(const WorldOperation& operation) {
  Variable x = ready(operation.x);
  const std::int64_t rows = 1 + operation.y * 5 % x.tensor.dim(0);
  const Tensor part = x.tensor.slice(0, 0, rows);
  const ModelTensor model = view_of(x.model, x.tensor, part);
  std::vector<Tensor> outputs;
  if (!run_call(operation, context(operation).function(Deed::kBuckets), {&part, 1}, {}, false,
                outputs)) {
    return;
  }
  settle();
  expect(outputs[1], model, "the input that is an output");
  put(operation.to, {outputs[0], affine_of(model, 0.5f, 1), caller_number(operation)});
  if (ends_with_ < 0 || operation.to == 4) return;  // an eager run returns the input itself
  // In some cases the input is an output of an earlier call, used in place; the returned tensor is
  // a copy nevertheless.
  put(operation.to + 1, {outputs[1], affine_of(model, 1, 0), caller_number(operation)});
  WorldOperation next = operation;
  next.deed = Deed::kBump;
  next.to = static_cast<std::uint8_t>((operation.x + 1) % kVariables);
  if (next.to == (operation.to + 1) % kVariables || operation.x % kVariables == next.to) return;
  if ((operation.to + 1) % kVariables == operation.x % kVariables) return;
  if (operation.to % kVariables == operation.x % kVariables) return;
  next.fault = 0;
  call(next);
}

void World::list(const WorldOperation& operation) {
  const Variable x = fresh(operation.x);
  const Variable other = fresh_of(kRow);
  const std::int64_t rows = 1 + operation.y * 5 % x.tensor.dim(0);
  const Tensor part = x.tensor.slice(0, 0, rows);
  const ModelTensor model = view_of(x.model, x.tensor, part);
  std::vector<Tensor> inputs{part};
  if (operation.to % 2 == 0) inputs.insert(inputs.end(), 2, other.tensor);
  Variable buffer;
  std::vector<Tensor> buffers;
  if (operation.y % 2 == 0) {
    buffer = fresh_of(Shape(part.shape().dims()));
    buffers = {buffer.tensor};
  }
  std::vector<Tensor> outputs;
  if (!run_call(operation, context(operation).function(Deed::kList), inputs, buffers, false,
                outputs)) {
    return;
  }
  settle();
  expect(outputs.at(0), affine_of(model, 0.5f, 1), "the first output");
  if (inputs.size() > 1) expect(outputs.at(1), affine_of(other.model, 2, 0), "the second output");
}

void World::columns(const WorldOperation& operation) {
  const Variable x = fresh_of(Shape{1 + operation.y * 3 % 7, 3});
  Variable buffer;
  std::vector<Tensor> buffers;
  const std::int64_t rows = x.tensor.dim(0);
  if (operation.x % 2 == 0) {
    buffer = fresh_of(Shape{3, rows});
    buffers = {buffer.tensor};
  }
  std::vector<Tensor> outputs;
  if (!run_call(operation, context(operation).function(Deed::kColumns), {&x.tensor, 1}, buffers,
                false, outputs)) {
    return;
  }
  settle();
  ModelTensor made = affine_of(x.model, 2, 1);
  made.shape = Shape(std::array<std::int64_t, 2>{3, rows}, std::array<std::int64_t, 2>{1, 3});
  if (!same_dims(outputs.at(0).shape(), made.shape)) throw Difference("columns have another shape");
  const Shape dense{3, rows};
  ModelTensor expected = ModelTensor::make(dense, kNobodys);
  model_copy(expected, made);
  expect(outputs[0], expected, "the transposed output");
}

// Mutates a column of a table; the other input is a part of the table, or separate.
void World::overlap(const WorldOperation& operation) {
  const Variable table = fresh_of(Shape{40});
  const std::int64_t rows = 1 + operation.y % 8;
  const Shape column(std::array<std::int64_t, 1>{rows},
                     std::array<std::int64_t, 1>{1 + operation.to % 3});
  const Tensor x(table.tensor.storage(), 0, column, DType::kFloat32);
  const Tensor y = table.tensor.slice(0, operation.x * 5, operation.x * 5 + 6);
  const Tensor inputs[] = {x, y};
  std::vector<Tensor> outputs;
  const bool done =
      run_call(operation, context(operation).function(Deed::kOverlap), inputs, {}, true, outputs);
  if (!done) return;
  settle();
  model_update(view_of(table.model, table.tensor, x), 0.5f, 1);
  const ModelTensor seen = view_of(table.model, table.tensor, y);
  expect(table.tensor, table.model, "the table");
  expect(outputs.at(0), affine_of(seen, -1, 0), "what was seen of the table");
}

void World::key_rows(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  const auto& function = *with.family<KeyRows>().function;
  const Variable x = fresh_of(Shape{kKeyRows});
  const std::int64_t rows = 1 + operation.choice % kKeyRows;
  std::vector<Tensor> outputs;
  ++with.calls;
  ++totals_.calls;
  try {
    outputs = function.keyed({{"rows", rows}})({&x.tensor, 1});
  } catch (const OutOfMemory&) {
    if (!program_.has(Feature::kBudgets)) throw;
    return;
  }
  ++totals_.done["an output has as many rows as the key says"];
  const auto outcome = function.last_outcome();
  const bool is_eager = outcome && outcome->skip_reason;  // sees the actual value
  const std::int64_t padded =
      (rows + KeyRows::kMultiple - 1) / KeyRows::kMultiple * KeyRows::kMultiple;
  const Tensor part = x.tensor.slice(0, 0, is_eager ? rows : padded);
  put(operation.to, {outputs.at(0), affine_of(view_of(x.model, x.tensor, part), 0.5f, 1)});
}

}  // namespace cgtree::testing
