// World: calls whose sizes vary.
#include "tests/system/world.h"

#include <fmt/format.h>

#include "base/error.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {

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

// A column of a table is mutated; the other input is a part of the table, or lies apart.
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

}  // namespace cgtree::testing
