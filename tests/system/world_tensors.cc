// World: the variables of a program, and fresh tensors.
#include "tests/system/world.h"

#include <utility>

#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

const Shape& shape_number(int choice) {
  static const Shape kShapes[] = {Shape{6}, Shape{2, 3}, Shape{3, 2}, Shape{40}};
  return kShapes[choice % 4];
}

}  // namespace

World::Variable& World::ready(int number) {
  Variable& variable = variables_[static_cast<std::size_t>(number) % kVariables];
  if (!variable.tensor.defined()) variable = fresh(number);
  return variable;
}

World::Variable World::fresh(int choice) {
  return fresh_of(shape_number(choice));
}

// Copies from the host wait for work, which would hide missing order: so fresh tensors are taken
// from a stock, which is made while no work is in flight.
World::Variable World::fresh_of(const Shape& shape) {
  const auto elements = static_cast<std::size_t>(shape.elements());
  Variable variable;
  variable.model = ModelTensor::make(shape, kNobodys);
  if (taken_ < stock_.size() && elements <= stock_[taken_].model.buffer->values.size()) {
    const Variable& whole = stock_[taken_++];
    variable.tensor = Tensor(whole.tensor.storage(), 0, shape, DType::kFloat32);
    variable.model.buffer = whole.model.buffer;
  } else {
    for (float& value : variable.model.buffer->values)
      value = next_value();
    variable.tensor =
        from_host(shape, std::span<const float>(variable.model.buffer->values), device_);
  }
  graveyard_.push_back(variable.tensor);
  return variable;
}

World::Variable World::of_dims(int number, const Shape& shape) {
  const Variable x = ready(number);
  return same_dims(x.tensor.shape(), shape) ? x : fresh_of(shape);
}

// Returns a column of a new table: each second element.
World::Variable World::table_column(const Shape& shape) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  std::vector<std::int64_t> whole = dims;
  whole.push_back(2);
  const Variable table = fresh_of(Shape(whole));
  std::vector<std::int64_t> strides(table.tensor.shape().strides().begin(),
                                    table.tensor.shape().strides().end() - 1);
  const Shape column(dims, strides);
  return {Tensor(table.tensor.storage(), 0, column, DType::kFloat32),
          {table.model.buffer, 0, column}};
}

// The copy of an output has no generation.
void World::put(int number, Variable variable) {
  if (variable.ends_with >= 0 && !is_managed(variable.tensor, variable.ends_with))
    variable.ends_with = -1;
  variables_[static_cast<std::size_t>(number) % kVariables] = std::move(variable);
}

float World::next_value() {
  return static_cast<float>(++values_made_ * 7919 % 2048) / 64 - 16;
}

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

}  // namespace cgtree::testing
