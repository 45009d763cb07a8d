// World: calls of compiled functions, on the device and in plain arithmetic.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/error.h"
#include "interop/tensor/copy.h"
#include "tests/support/steps.h"
#include "tests/system/step_context.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {

std::vector<ModelTensor> results_of(Deed deed, const ModelTensor& x, const ModelTensor& y,
                                    float number) {
  switch (deed) {
    case Deed::kAlias:
      return {x, affine_of(x, 2, 0)};
    case Deed::kSum:
      return {model_add(affine_of(x, 0.5f, 0), y, kNobodys)};
    case Deed::kBump:
    case Deed::kReplace:
      model_update(x, 0.5f, 1);
      return {affine_of(x, -1, 0)};
    case Deed::kNested:
      return {affine_of(affine_of(affine_of(x, 1, 1), 0.5f, 1), -1, 0)};
    case Deed::kBig:
      return {affine_of(x, 0.5f, 1)};
    case Deed::kWorkspace:
      return {affine_of(affine_of(x, 0.5f, 1), -1, 0)};
    case Deed::kFork:
      return {model_add(left_of(x), right_of(x), kNobodys)};
    case Deed::kBlock:
      return {affine_of(x, 0.5f, number)};
    case Deed::kBreak:
      return {affine_of(affine_of(x, 0.5f * (1 + number), 0), -1, 1)};
    case Deed::kTable:
      return {affine_of(x, 1, number)};
    default:
      return {affine_of(affine_of(x, 0.5f, 1), -1, 0)};
  }
}

void World::call(const WorldOperation& operation) {
  const Deed deed = operation.deed;
  Variable x = deed == Deed::kWorkspace ? of_dims(operation.x, operation.y < 5 ? kRow : Shape{40})
                                        : ready(operation.x);
  Variable y;
  std::vector<Tensor> inputs{x.tensor};
  if (deed == Deed::kSum) {
    y = ready(operation.y);
    if (!same_dims(x.tensor.shape(), y.tensor.shape())) y = x;
    inputs.push_back(y.tensor);
  }
  float number = operation.y % 2 == 0 ? 1 : 3;
  if (deed == Deed::kBlock || deed == Deed::kBreak) {
    const std::vector<float> block(operation.y % 4 < 2 ? 40 : 600, number);
    inputs.push_back(by_value(block.data(), block.size() * sizeof(float),
                              {static_cast<std::int64_t>(block.size())}, DType::kFloat32));
  }
  Variable buffer;
  std::vector<Tensor> buffers;
  if (deed == Deed::kInto) {
    buffer = operation.y % 2 == 0 ? fresh_of(Shape(x.tensor.shape().dims()))
                                  : table_column(x.tensor.shape());
    buffers = {buffer.tensor};
  }
  const bool mutates = deed == Deed::kBump || deed == Deed::kReplace;
  WorldOperation what = operation;
  if (mutates || deed == Deed::kWorkspace) what.fault = without_late(what.fault);
  WorldContext& with = context(operation);
  if (deed == Deed::kTable) {
    if (!with.has_table()) with.move_table(next_value(), operation.y % 2 == 0);
    number = with.table_value();
  }
  std::vector<Tensor> outputs;
  const std::size_t replaced = operation.x % kVariables;
  if (deed == Deed::kReplace) {  // the step itself replaces the variable that it was given
    const Variable next = fresh_of(Shape(x.tensor.shape().dims()));
    with.during = [&] { variables_[replaced] = next; };
    const Tensor* const passed = &variables_[replaced].tensor;
    inputs.clear();
    const bool done = run_call(what, with.function(deed), {passed, 1}, buffers, mutates, outputs);
    with.during = nullptr;
    if (!done) return put(static_cast<int>(replaced), {});
  } else if (deed == Deed::kSum && with.rebinds() && !y.tensor.is_contiguous()) {
    return expect_gaps_refused(what, with.function(deed), inputs);
  } else if (!run_call(what, with.function(deed), inputs, buffers, mutates, outputs)) {
    return;
  }
  if (deed == Deed::kSum && with.rebinds()) ++totals_.done["a rebound input must have no gaps"];
  std::vector<ModelTensor> models = results_of(deed, x.model, y.model, number);
  if (buffer.tensor.defined()) {
    model_copy(buffer.model, models[0]);
    models[0] = buffer.model;
  }
  if (outputs.size() != models.size()) throw Difference("another number of outputs");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool is_input = deed == Deed::kAlias && i == 0;
    const bool is_new = !is_input && !buffer.tensor.defined();
    put(operation.to + static_cast<int>(i),
        {std::move(outputs[i]), models[i], is_new ? caller_number(operation) : -1,
         is_input ? x.writer : StreamRef(), is_input && x.is_kept,
         is_new     ? ends_with_
         : is_input ? x.ends_with
                    : -1});
  }
}

void World::expect_gaps_refused(const WorldOperation& operation,
                                const WorldContext::Function& function,
                                std::span<const Tensor> inputs) {
  std::vector<Tensor> outputs;
  try {
    if (run_call(operation, function, inputs, {}, false, outputs)) {
      throw Difference("an input with gaps is accepted");
    }
  } catch (const InvalidArgument&) {
    ++totals_.done["an input with gaps is refused"];
  }
}

// Returns false if the call has thrown an expected exception, without any effect.
bool World::run_call(const WorldOperation& operation, const WorldContext::Function& function,
                     std::span<const Tensor> inputs, std::span<const Tensor> buffers, bool mutates,
                     std::vector<Tensor>& outputs) {
  WorldContext& with = context(operation);
  const int number = caller_number(operation);
  if (number != last_caller_ && !program_.has(Feature::kStreams)) settle();
  last_caller_ = number;
  ++totals_.calls;
  with.fault = operation.fault;
  const bool may_throw = std::exchange(may_throw_, false);
  std::exception_ptr thrown;
  const auto run = [&](StreamRef caller) {
    try {
      call_here(operation, function, inputs, buffers, mutates, caller, outputs);
    } catch (...) {
      thrown = std::current_exception();
    }
  };
  std::atomic<bool> ends = false;
  std::thread monitor;
  if (program_.has(Feature::kMonitors) && operation.y % 2 == 0) {
    monitor = std::thread([&] {
      while (!ends) {
        try {
          static_cast<void>(with.context().stats());
        } catch (const ConcurrentUse&) {
        }
      }
    });
  }
  if (is_on_thread(operation)) {
    std::thread([&] { run(StreamRef(device_, StreamHandle::kPerThread)); }).join();
  } else if (program_.has(Feature::kThreads) && operation.choice % 4 == 0) {
    std::thread([&] { run(caller_of(operation)); }).join();
  } else {
    run(caller_of(operation));
  }
  ends = true;
  if (monitor.joinable()) monitor.join();
  with.fault = 0;
  ends_with_ = -1;
  if (const auto outcome = function.last_outcome(); outcome && !outcome->skip_reason) {
    ends_with_ = operation.context % static_cast<int>(contexts_.size());
  }
  if (!thrown) return true;
  ++totals_.refused;
  try {
    std::rethrow_exception(thrown);
  } catch (const InjectedFault&) {
    if (operation.fault == 0 && !may_throw) throw;
  } catch (const OutOfMemory&) {
    if (!program_.has(Feature::kBudgets)) throw;
    for (Variable& variable : variables_) {  // a part of the step may have run
      if (mutates && variable.tensor.defined() &&
          variable.tensor.storage() == inputs[0].storage() && &variable.tensor != &inputs[0]) {
        variable = {};
      }
    }
    if (mutates) settle();
    if (mutates && !variables_.empty()) variables_[operation.x % kVariables] = {};
  }
  return false;
}

void World::call_here(const WorldOperation& operation, const WorldContext::Function& function,
                      std::span<const Tensor> inputs, std::span<const Tensor> buffers, bool mutates,
                      StreamRef caller, std::vector<Tensor>& outputs) {
  const auto now = [&] { return caller ? caller : context(operation).context().stream(); };
  const StreamRef target = now();
  for (const Tensor& input : inputs) {
    for (const Variable& variable : variables_) {
      if (variable.tensor.defined() && variable.writer &&
          variable.tensor.storage() == input.storage()) {
        target.wait_for(variable.writer);
      }
    }
  }
  const bool is_ordered = mutates || !buffers.empty();
  if (is_ordered) wait_for_all(target);
  // A context waits for announced readers of memory that it writes, but not of plain memory.
  const auto is_plain = [](const Tensor& tensor) {
    return tensor.defined() && tensor.storage()->domain() == nullptr;
  };
  if (is_ordered &&
      (std::ranges::any_of(inputs, is_plain) || std::ranges::any_of(buffers, is_plain))) {
    target.wait_for(reader_->ref());
  }
  std::optional<StreamScope> scope;
  if (caller) scope.emplace(caller);
  ++context(operation).calls;
  outputs = buffers.empty() ? function(inputs) : function.into(buffers)(inputs);
  if (is_ordered) all_wait_for(now());  // without a scope, the context may have moved
}

// Expects that the caller's later work is ordered after the step, if it has run.
void World::misfit(const WorldOperation& operation) {
  const Variable x = fresh_of(kRow);
  const Variable filling = fresh_of(kRow);
  const Tensor too_small = fresh_of(Shape{1}).tensor;
  const StreamRef caller = streams_[operation.stream % kStreams]->ref();
  settle();
  {
    const StreamScope scope(caller);
    ++context(operation).calls;
    try {
      (void)context(operation).function(Deed::kMisfit).into({&too_small, 1})({&x.tensor, 1});
      throw Difference("a buffer of another shape is accepted");
    } catch (const InvalidArgument&) {
      ++totals_.refused;
    } catch (const OutOfMemory&) {
      if (!program_.has(Feature::kBudgets)) throw;
    }
    copy_elements(caller, x.tensor, filling.tensor);
  }
  settle();
  expect(x.tensor, filling.model, "what was written after a call that threw");
}

}  // namespace cgtree::testing
