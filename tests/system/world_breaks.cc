// World: breaks that change tensors and blocks of the caller, throw, make calls, allocate and read.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"
#include "cgtree/values/eager_break.h"
#include "extensions/watch/monitor.h"
#include "interop/device/graph_api.h"
#include "interop/device/kernel.h"
#include "interop/tensor/empty.h"
#include "tests/support/steps.h"
#include "tests/support/test_kernels.h"
#include "tests/system/step_context.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

constexpr int kBreaksOfStep = 2;

void axpy(float factor, const void* x, void* y, std::int64_t count) {
  const StreamRef stream = current_stream();
  check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(count),
                                      arguments_of(factor, x, y, count)),
        "axpy");
}

// y = 0.5 x + b, times 1 + b in a break; z = 1 - y, times 1 + b in another, where b is the value in
// the call's block. The operation may add another action to a break.
class Breaks {
 public:
  enum Kind { kReturns, kMutates, kPads };
  using Function = WorldContext::Function;

  explicit Breaks(WorldContext& with) {
    const std::vector<DynamicAxis> rows = {{0, "rows"}};
    const std::vector<Buckets> buckets = {{"rows", {2, 4, 8, 40}}};
    add(with, kReturns, {});
    add(with, kMutates, {.inputs = {{.is_mutated = true}}});
    add(with, kPads,
        {.inputs = {{.dynamic = rows}}, .buckets = buckets, .outputs = {{.dynamic = rows}}});
  }

  const Function& function(Kind kind) const { return functions_[static_cast<std::size_t>(kind)]; }

  // An action at the start of break `i`.
  std::function<void(int i, void* to, std::int64_t count)> during;

 private:
  void add(WorldContext& with, Kind kind, CompileOptions options) {
    functions_.push_back(with.make(
        "breaks", [this, kind](std::span<const Tensor> inputs) { return step(kind, inputs); },
        std::move(options)));
  }

  std::vector<Tensor> step(Kind kind, std::span<const Tensor> inputs) {
    const Tensor& x = inputs[0];
    const Tensor block(inputs[1].storage(), 0, Shape(x.shape().dims()), DType::kFloat32);
    const Tensor y = cgtree::testing::add(affine(x, 0.5f, 0), block);
    multiply_in_break(0, y);
    const Tensor z = affine(y, -1, 1);
    multiply_in_break(1, z);
    if (kind == kMutates) update(x, 0.5f, 1);
    const Tensor result = affine(z, 1, 0);
    if (kind == kReturns) return {result, x};
    return {result};
  }

  void multiply_in_break(int i, const Tensor& y) {
    eager_break([this, i, to = reinterpret_cast<void*>(y.address()),
                 count = y.elements()](const StepValues& values) {
      if (during) during(i, to, count);
      const float factor = *reinterpret_cast<const float*>(values.bytes(1).data());
      axpy(factor, to, to, count);
    });
  }

  std::vector<Function> functions_;
};

Tensor block_of(float number, std::size_t elements) {
  const std::vector<float> block(elements, number);
  return by_value(block.data(), block.size() * sizeof(float),
                  {static_cast<std::int64_t>(block.size())}, DType::kFloat32);
}

enum class Does {
  kNothing,
  kAssignBlock,
  kDropBlock,
  kAssignInput,
  kDropInput,
  kThrow,
  kCall,
  kMark,
  kTrim,
  kAllocate,
  kRead,
  kBegin,
  kExplain,
};
constexpr int kDoes = 13;
constexpr std::string_view kDoesNames[kDoes] = {"does nothing",
                                                "assigns the block",
                                                "drops the block",
                                                "assigns the input",
                                                "drops the input",
                                                "throws",
                                                "calls",
                                                "ends the generation",
                                                "gives back memory",
                                                "allocates",
                                                "reads statistics",
                                                "opens an eager scope",
                                                "explains"};

}  // namespace

// The inputs are variables of the caller, which has no other handle to them in half of the cases.
void World::change(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  Breaks& breaks = with.family<Breaks>();
  const auto kind = static_cast<Breaks::Kind>(operation.y % 3);
  const auto does = static_cast<Does>(operation.choice % kDoes);
  const int when = operation.choice / kDoes % kBreaksOfStep;
  const bool is_only_handle = operation.choice / kDoes / kBreaksOfStep % 2 == 0;
  Variable x;
  if (is_only_handle || kind == Breaks::kPads) {
    const Shape shape = kind == Breaks::kPads ? Shape{1 + operation.to} : kRow;
    x.model = ModelTensor::make(shape, kNobodys);
    for (float& value : x.model.buffer->values)
      value = next_value();
    x.tensor = from_host(shape, std::span<const float>(x.model.buffer->values), device_);
  } else {
    x = ready(operation.x);
  }
  const float number = operation.x % 2 == 0 ? 1 : 3;
  const std::size_t elements = operation.x < 3 ? 40 : 600;
  const ModelTensor before = affine_of(x.model, 1, 0);
  std::vector<Tensor> passed{std::move(x.tensor), block_of(number, elements)};
  if (!is_only_handle || kind != Breaks::kMutates) x.tensor = passed[0];
  if (is_only_handle) x.tensor = Tensor();
  std::optional<std::string> wrong;
  const auto refuses = [&](const char* what, const auto& body) {
    if (!is_refused(body)) wrong = fmt::format("{} inside a break is accepted", what);
  };
  const Variable other = fresh_of(kRow);
  const ModelTensor nines = affine_of(other.model, 0, 99);
  float plus = 0;  // added by the break
  breaks.during = [&](int i, void* to, std::int64_t count) {
    if (i != when) return;
    ++totals_.done[fmt::format("a break {}", kDoesNames[static_cast<int>(does)])];
    switch (does) {
      case Does::kNothing:
        break;
      case Does::kAssignBlock:
        passed[1] = block_of(number + 2, elements);
        break;
      case Does::kDropBlock:
        passed[1] = Tensor();
        break;
      case Does::kAssignInput:
        passed[0] = from_host<float>(kRow, nines.buffer->values, device_);
        break;
      case Does::kDropInput:
        passed[0] = Tensor();
        break;
      case Does::kThrow:
        throw InjectedFault();
      case Does::kCall:
        (void)is_refused([&] { (void)with.function(Deed::kChain)({&other.tensor, 1}); });
        break;
      case Does::kMark:
        refuses("mark_step()", [&] { with.context().mark_step(); });
        break;
      case Does::kTrim:
        refuses("trim()", [&] { (void)with.context().trim(); });
        break;
      case Does::kAllocate: {
        const Tensor made = empty({count}, DType::kFloat32);
        cgtree::check(current_stream().graphs().launch_kernel(
                          current_stream().handle(), fill_kernel(), dims_for(count),
                          arguments_of(made.data(), 2.0f, count)),
                      "fill");
        axpy(1, made.data(), to, count);
        plus = 2;
        break;
      }
      case Does::kRead:
        (void)with.context().stats();
        (void)snapshot_json(with.context());
        break;
      case Does::kBegin:
        (void)is_refused(
            [&] { (void)with.context().eager([&] { return affine(other.tensor, 1, 0); }); });
        break;
      case Does::kExplain:
        if (with.function(Deed::kChain).explain({&other.tensor, 1}).skip_reason !=
            SkipReason::kNestedCall) {
          wrong = "explain() does not know that a break asks";
        }
        break;
    }
  };
  WorldOperation what = operation;
  if (what.fault == 2) what.fault = 1;
  may_throw_ = does == Does::kThrow;
  std::vector<Tensor> outputs;
  const bool mutates = kind == Breaks::kMutates;
  const bool done = run_call(what, breaks.function(kind), passed, {}, mutates, outputs);
  breaks.during = nullptr;
  if (wrong) throw Difference(*wrong);
  if (!done) {
    // The state of mutated tensors after an exception is unspecified.
    if (mutates && !is_only_handle) {
      settle();
      for (Variable& variable : variables_) {
        if (variable.tensor.defined() && variable.model.buffer == x.model.buffer) variable = {};
      }
    }
    return;
  }
  ModelTensor y = affine_of(before, 0.5f, number);
  const auto after_break = [&](const ModelTensor& of, int i) {
    const ModelTensor added = affine_of(of, 1, i == when ? plus : 0);
    return affine_of(added, 1 + number, 0);
  };
  y = after_break(y, 0);
  const ModelTensor z = after_break(affine_of(y, -1, 1), 1);
  if (mutates) model_update(x.model, 0.5f, 1);
  const std::size_t expected = kind == Breaks::kReturns ? 2 : 1;
  if (outputs.size() != expected) throw Difference("another number of outputs");
  if (does == Does::kAssignInput) {
    settle();
    expect(passed[0], nines, "what a break has assigned");
  } else if (mutates && is_only_handle && does != Does::kDropInput) {
    put(operation.to + 1, {passed[0], x.model});
  }
  put(operation.to, {outputs[0], z, caller_number(operation)});
  if (kind == Breaks::kReturns)
    put(operation.to + 1, {outputs[1], x.model, -1, x.writer, x.is_kept, x.ends_with});
}

}  // namespace cgtree::testing
