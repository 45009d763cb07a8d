// World: calls with parts of one storage as inputs.
#include "tests/system/world.h"

#include <algorithm>

#include "tests/system/world_model.h"

namespace cgtree::testing {

// The inputs are the halves of one output, or two outputs where the halves may have been.
void World::second(const WorldOperation& operation) {
  const int number = 1 + operation.y % 2;
  const Variable x = fresh_of(kRow);
  std::vector<Tensor> made;
  std::vector<Tensor> outputs;
  WorldContext& with = context(operation);
  WorldOperation what = operation;
  what.fault = 0;
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
