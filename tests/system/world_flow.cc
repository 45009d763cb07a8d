// World: steps that branch and loop by what is in their input, and bodies that throw.
#include <array>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "cgtree/control_flow.h"
#include "cgtree/loop_stream.h"
#include "tests/support/flags.h"
#include "tests/support/flow_steps.h"
#include "tests/support/steps.h"
#include "tests/system/step_context.h"
#include "tests/system/world.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

constexpr unsigned kFlows = 4;
constexpr unsigned kWithRows = 3;  // its replays are not verified
constexpr std::size_t kMostRows = 64;
constexpr std::size_t kMostElements = 40;

// Functions of some flows, with a branch around each whose body may throw.
class Flows {
 public:
  enum Throws : std::uint8_t { kNever, kEagerly, kCaptured };

  explicit Flows(WorldContext& with)
      : sides_(flow_sides(with.context().device())),
        rows_(with.context().device(), kMostElements * sizeof(float), kMostRows) {
    for (unsigned seed = 0; seed < kFlows; ++seed) {
      std::mt19937 random(seed);
      flows_.push_back(draw_flow(random, /*draws=*/seed % 2 == 0));
      while (seed == kWithRows && !has_loop(flows_.back()))
        flows_.back() = draw_flow(random);
      functions_.push_back(
          with.make("flows", [this, seed](std::span<const Tensor> inputs) -> std::vector<Tensor> {
            const Tensor y = affine(inputs[0], 0.5f, 0);
            const Tensor always = empty(Shape(), DType::kInt32);
            compare(affine(y, 0, 1), 0, always);
            branch(always, [&] {
              const Tensor scratch = affine(y, 2, 0);
              throw_if_asked();
              update(y, 1, 1);
            });
            run_flow(flows_[seed], y, sides_, &generator, seed == kWithRows ? &rows_ : nullptr);
            return {y};
          }));
    }
  }

  const WorldContext::Function& function(unsigned number) const { return functions_[number]; }
  // `seed`: of the generator. `rows`: what the call hands out.
  ModelTensor result(unsigned number, const ModelTensor& x, std::uint64_t seed,
                     std::vector<std::vector<float>>* rows) {
    const ModelTensor y = affine_of(affine_of(x, 0.5f, 0), 1, 1);
    PhiloxPosition at{seed, 0};
    const bool has_rows = number == kWithRows;
    run_flow(flows_[number], y.buffer->values, &at, has_rows ? rows : nullptr,
             has_rows ? &is_stopped_ : nullptr);
    return y;
  }
  void drop_rows() { rows_.drop(); }
  // The next loop ends with its first round.
  void stop() {
    rows_.stop();
    is_stopped_ = true;
  }
  // Returns the rows that are there. Requires that all work is done.
  std::vector<std::vector<float>> take_rows() {
    std::vector<std::vector<float>> taken;
    std::array<float, kMostElements> row{};
    while (const auto got = rows_.next(std::as_writable_bytes(std::span(row)), {}))
      taken.emplace_back(row.begin(), row.begin() + got->bytes / sizeof(float));
    return taken;
  }

  Throws throws = kNever;
  const Generator generator;

 private:
  void throw_if_asked() const {
    const bool is_captured = current_stream().is_capturing();
    if (throws == (is_captured ? kCaptured : kEagerly)) throw InjectedFault();
  }

  std::vector<Flow> flows_;
  std::vector<Stream> sides_;
  LoopStream rows_;
  bool is_stopped_ = false;
  std::vector<WorldContext::Function> functions_;
};

}  // namespace

void World::flow(const WorldOperation& operation) {
  Flows& flows = context(operation).family<Flows>();
  const unsigned number = operation.y % kFlows;
  const Variable x = of_dims(operation.x, operation.y % 8 < 4 ? kRow : Shape{40});
  if (operation.choice % 16 < 2)
    flows.throws = operation.choice % 2 == 0 ? Flows::kEagerly : Flows::kCaptured;
  flows.generator.set_seed(operation.choice);
  flows.drop_rows();  // of a call that has thrown
  may_throw_ = flows.throws == Flows::kEagerly;
  // Where a call that throws may have run the loop, what is stopped would not be known.
  const bool may_fail = program_.has(Feature::kBudgets) || program_.has(Feature::kFaults) ||
                        program_.has(Feature::kHooks);
  if (number == kWithRows && operation.choice % 4 == 0 && !may_fail) {
    flows.stop();
    ++totals_.done["a loop is stopped"];
  }
  std::vector<Tensor> outputs;
  const bool done = run_call(operation, flows.function(number), {&x.tensor, 1}, {}, false, outputs);
  flows.throws = Flows::kNever;
  ++totals_.done[done ? "a step branches and loops" : "a step that branches throws"];
  if (!done) return;
  std::vector<std::vector<float>> rows;
  const ModelTensor y = flows.result(number, x.model, operation.choice, &rows);
  if (number == kWithRows) {
    context(operation).context().synchronize();
    if (flows.take_rows() != rows) throw Difference("other rows");
    ++totals_.done["a step hands out rows"];
  }
  put(operation.to, {outputs.at(0), y, caller_number(operation), StreamRef(), false, ends_with_});
}

}  // namespace cgtree::testing
