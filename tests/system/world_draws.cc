// World: steps that draw random numbers, compared with the plain sequence, and calls that fail
// after their draws.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "cgtree/values/eager_break.h"
#include "interop/random/generator.h"
#include "tests/support/philox_oracle.h"
#include "tests/support/random_steps.h"
#include "tests/support/steps.h"
#include "tests/system/step_context.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

constexpr std::uint64_t kSeed = 42;

// A function that draws a number for each element, with and without a break, and the plain
// sequence.
class Draws {
 public:
  using Function = WorldContext::Function;

  explicit Draws(WorldContext& with) {
    for (const bool has_break : {false, true}) {
      functions_.push_back(with.make(
          "draws", [this, has_break](std::span<const Tensor> inputs) -> std::vector<Tensor> {
            const Tensor y = add_noise(inputs[0], generator);
            if (has_break) {
              eager_break([this](const StepValues&) {
                if (break_throws) throw InjectedFault();
              });
            }
            if (breaks_capture && current_stream().is_capturing()) current_stream().synchronize();
            return {affine(y, -1, 0)};
          }));
    }
  }

  const Function& function(bool has_break) const { return functions_[has_break ? 1 : 0]; }

  Generator generator{kSeed};
  PhiloxOracle oracle{kSeed};
  bool break_throws = false;
  bool breaks_capture = false;

 private:
  std::vector<Function> functions_;
};

}  // namespace

// A call that throws draws no numbers.
void World::draw(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  Draws& draws = with.family<Draws>();
  Variable x = of_dims(operation.x, operation.y % 2 == 0 ? kRow : Shape{40});
  if (!x.tensor.is_contiguous()) x = fresh_of(kRow);  // add_noise() requires dense tensors
  WorldOperation what = without_fault(operation);
  switch (operation.choice % 8) {
    case 0:
      draws.break_throws = true;
      break;
    case 1:
      what.fault = 2;
      break;
    case 2:
    case 3:
      what.fault = 3;
      break;
    case 4:
      draws.breaks_capture = operation.choice % 64 < 8;
      break;
    default:
      break;
  }
  may_throw_ = draws.break_throws;
  const bool has_break = operation.choice / 8 % 2 == 0;
  std::vector<Tensor> outputs;
  const bool done = run_call(what, draws.function(has_break), {&x.tensor, 1}, {}, false, outputs);
  draws.break_throws = false;
  draws.breaks_capture = false;
  ++totals_.done[done ? "a call draws" : "a call that draws throws"];
  ModelTensor expected;
  if (done) {
    expected = affine_of(x.model, -1, 0);
    const std::vector<std::uint32_t> words = draws.oracle.words(x.model.shape.elements());
    for (std::int64_t i = 0; i < x.model.shape.elements(); ++i) {
      const float noise =
          static_cast<float>(words[static_cast<std::size_t>(4 * i)] / 256) / 16777216.0f;
      expected[i] = -1 * (x.model[i] + noise) + 0;
    }
  }
  const std::uint64_t offset = draws.generator.state().offset;
  if (offset != draws.oracle.offset()) {
    throw Difference(fmt::format("a call that {} leaves a generator at {}, not {}",
                                 done ? "draws" : "throws", offset, draws.oracle.offset()));
  }
  if (!done) return;
  settle();
  expect(outputs.at(0), expected, "what was drawn");
}

}  // namespace cgtree::testing
