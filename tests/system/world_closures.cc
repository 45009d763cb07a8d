// World: steps whose closures hold tensors.
#include "tests/system/world.h"

#include <fmt/format.h>

#include "tests/system/world_model.h"

namespace cgtree::testing {

void World::keep(const WorldOperation& operation) {
  const int number = operation.y % WorldContext::kTables;
  WorldContext& with = context(operation);
  const Variable x = of_dims(operation.x, number == 1 ? Shape{40} : kRow);
  WorldOperation what = operation;
  what.fault = 0;
  std::vector<Tensor> outputs;
  ModelTensor& table = tables_[static_cast<std::size_t>(operation.context) % contexts_.size()]
                              [static_cast<std::size_t>(number)];
  const bool done =
      run_call(what, with.function(Deed::kKeep, number), {&x.tensor, 1}, {}, false, outputs);
  if (table.buffer == nullptr && with.table(number).defined()) table = affine_of(x.model, 1, 0);
  if (!done) return;
  put(operation.to, {outputs[0], model_add(x.model, table, kNobodys), caller_number(operation)});
}

// The tensor that a replay reads is the one that the closure held when it was recorded.
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

}  // namespace cgtree::testing
