// World: steps with branches and loops on values of their input, and bodies that throw, or enqueue
// other work when their code runs again.
#include <array>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "extensions/flow/control_flow.h"
#include "extensions/flow/loop_stream.h"
#include "interop/random/random.h"
#include "tests/support/flags.h"
#include "tests/support/flow_steps.h"
#include "tests/support/steps.h"
#include "tests/system/step_context.h"
#include "tests/system/world.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

constexpr unsigned kFlows = 4;
constexpr unsigned kWithRows = 3;  // replays that hand out rows are not verified
constexpr std::size_t kMostRows = 64;
constexpr std::size_t kMostElements = 40;

// Functions with random flows, each inside a branch whose body may have a fault. The first call
// makes the LoopStream, and may throw.
class Flows {
 public:
  // The first throws in an eager run, the others break the rules in captures: they throw, enqueue
  // other work in each capture, swallow the refusal of a branch, or return other results in each
  // capture.
  enum Mischief : std::uint8_t { kEagerly, kThrows, kCounts, kSwallows, kOtherResults, kNone };

  explicit Flows(WorldContext& with)
      : device_(with.context().device()), sides_(flow_sides(device_)) {
    for (unsigned seed = 0; seed < kFlows; ++seed) {
      std::mt19937 random(seed);
      flows_.push_back(draw_flow(random, /*draws=*/seed % 2 == 0));
      while (seed == kWithRows && !has_loop(flows_.back()))
        flows_.back() = draw_flow(random);
      functions_.push_back(
          with.make("flows", [this, seed](std::span<const Tensor> inputs) -> std::vector<Tensor> {
            if (seed == kWithRows) make_rows();
            const Tensor x = affine(inputs[0], 0.5f, 0);
            const Tensor always = empty(Shape(), DType::kInt32);
            compare(affine(x, 0, 1), 0, always);
            const auto body = [&]() -> std::vector<Tensor> {
              const Tensor scratch = affine(x, 2, 0);
              const bool is_captured = current_stream().is_capturing();
              runs_ += is_captured ? 1 : 0;
              if (mischief == (is_captured ? kThrows : kEagerly)) throw InjectedFault();
              if (is_captured && mischief == kSwallows) keep_swallowing(always, x);
              const bool is_other = is_captured && mischief == kCounts;
              update(x, 1, is_other ? 2 + static_cast<float>(runs_ % 5) : 1);
              if (is_captured && mischief == kOtherResults && runs_ % 3 == 0) return {};
              return {x};
            };
            const Tensor y = branch_results(always, body, body).at(0);
            run_flow(flows_[seed], y, sides_, &generator, seed == kWithRows ? &*rows_ : nullptr);
            return {y};
          }));
    }
  }

  const WorldContext::Function& function(unsigned number) const { return functions_[number]; }
  // `seed`: of the generator. `rows`: receives the rows that the call hands out.
  ModelTensor result(unsigned number, const ModelTensor& x, std::uint64_t seed,
                     std::vector<std::vector<float>>* rows) {
    const ModelTensor y = affine_of(affine_of(x, 0.5f, 0), 1, 1);
    PhiloxPosition at{seed, 0};
    const bool has_rows = number == kWithRows;
    run_flow(flows_[number], y.buffer->values, &at, has_rows ? rows : nullptr,
             has_rows ? &is_stopped_ : nullptr);
    return y;
  }
  void drop_rows() {
    if (rows_) rows_->drop();
  }
  // Makes the next loop end after its first round.
  void stop() {
    make_rows();
    rows_->stop();
    is_stopped_ = true;
  }
  // Returns the available rows. Requires: all work is done.
  std::vector<std::vector<float>> take_rows() {
    std::vector<std::vector<float>> taken;
    std::array<float, kMostElements> row{};
    while (const auto got = rows_->next(std::as_writable_bytes(std::span(row)), {}))
      taken.emplace_back(row.begin(), row.begin() + got->bytes / sizeof(float));
    return taken;
  }

  Mischief mischief = kNone;
  const Generator generator;

 private:
  void make_rows() {
    if (!rows_) rows_.emplace(device_, kMostElements * sizeof(float), kMostRows);
  }
  static void keep_swallowing(const Tensor& always, const Tensor& x) {
    try {
      Tensor kept;
      branch(always, [&] { kept = affine(x, 1, 0); });
    } catch (const InvalidArgument&) {
    }
  }

  const Device device_;
  std::vector<Flow> flows_;
  std::vector<Stream> sides_;
  std::optional<LoopStream> rows_;
  bool is_stopped_ = false;
  int runs_ = 0;  // of a body's code, in captures
  std::vector<WorldContext::Function> functions_;
};

}  // namespace

void World::flow(const WorldOperation& operation) {
  Flows& flows = context(operation).family<Flows>();
  const unsigned number = operation.y % kFlows;
  const Variable x = of_dims(operation.x, operation.y % 8 < 4 ? kRow : Shape{40});
  if (operation.choice % 16 < Flows::kNone)
    flows.mischief = static_cast<Flows::Mischief>(operation.choice % 16);
  flows.generator.set_seed(operation.choice);
  flows.drop_rows();  // of a call that threw
  may_throw_ = flows.mischief == Flows::kEagerly;
  // If the call may throw after its loop, the target of stop() would be unknown.
  const bool may_fail = program_.has(Feature::kBudgets) || program_.has(Feature::kFaults) ||
                        program_.has(Feature::kHooks);
  if (number == kWithRows && operation.choice % 4 == 0 && !may_fail) {
    flows.stop();
    ++totals_.done["a loop is stopped"];
  }
  std::vector<Tensor> outputs;
  const bool done = run_call(operation, flows.function(number), {&x.tensor, 1}, {}, false, outputs);
  flows.mischief = Flows::kNone;
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
