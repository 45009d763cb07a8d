// Executes operations on device and model, and compares the two.
#include "tests/system/program_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "interop/tensor/copy.h"
#include "tests/support/inside.h"

namespace cgtree::testing {
namespace {

constexpr std::int64_t kStaticElements = 40;

const Shape& shape_number(int choice) {
  static const Shape kShapes[] = {Shape{6}, Shape{2, 3}, Shape{3, 2}, Shape{kStaticElements}};
  return kShapes[choice % 4];
}

std::uint64_t overlaps(StepContext& steps) {
  return steps.context().stats().skips[static_cast<int>(SkipReason::kOverlappingInputs)];
}

// A difference between device and model.
struct Difference : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

ProgramRunner::ProgramRunner(Device device, bool enabled) : device_(device), enabled_(enabled) {
  for (auto& steps : contexts_)
    steps = std::make_unique<StepContext>(device, enabled);
  for (Variable& variable : statics_)
    variable = fresh(3);
}

std::string ProgramRunner::run(const StepProgram& program, ProgramTotals& totals) {
  std::string where = "before the first operation";
  try {
    for (int round = 0; round < program.rounds; ++round) {
      for (std::size_t i = 0; i < program.operations.size(); ++i) {
        where = fmt::format("round {}, operation {}", round, i);
        execute(program.operations[i]);
      }
      where = fmt::format("the end of round {}", round);
      check();
    }
    where = "the end";
    check_end(totals);
  } catch (const std::exception& error) {
    return fmt::format("{}: {}", where, error.what());
  }
  return {};
}

void ProgramRunner::execute(const Operation& operation) {
  Variable& to = variables_[operation.to % kVariables];
  switch (operation.action) {
    case Action::kDrop:
      to = {};
      break;
    case Action::kView: {
      const Variable x = ready(operation.x);
      const Tensor view = view_of(x.tensor, operation.y);
      const auto moved = static_cast<std::int64_t>(view.byte_offset() - x.tensor.byte_offset());
      to = {view, {x.model.buffer, x.model.offset + moved / 4, view.shape()}};
      break;
    }
    case Action::kFresh:
      to = fresh(operation.y);
      break;
    case Action::kMarkStep:
      mark_step(operation.context % kContexts);
      break;
    case Action::kWriteStatic:
      write_static(operation.y % kStatics);
      break;
    case Action::kCopy:
      (void)use(operation.context % kContexts);
      copy(to, ready(operation.x));
      break;
    case Action::kCheck:
      check();
      break;
    default:
      call(operation);
  }
}

void ProgramRunner::call(const Operation& operation) {
  const int context = operation.context % kContexts;
  StepContext& steps = use(context);
  Variable x = ready(operation.x);
  const Action action = operation.action;
  if (action == Action::kBuckets || action == Action::kBucketBump) x = some_rows(x, operation.y);
  Variable y;
  if (action == Action::kSum || action == Action::kBlend)
    y = variables_[same_dims(operation.x, operation.y)];
  if (action == Action::kAccumulate) y = static_like(operation.y % kStatics, x.tensor.shape());
  std::vector<Tensor> inputs{x.tensor};
  if (y.tensor.defined()) inputs.push_back(y.tensor);

  Variable buffer;
  std::vector<Tensor> buffers;
  const bool into =
      action == Action::kInto || (action == Action::kBuckets && operation.to % 2 == 1);
  if (into) buffers = {(buffer = buffer_for(x, operation.y)).tensor};

  const std::uint64_t skipped = overlaps(steps);
  const bool mutates = action == Action::kAccumulate || action == Action::kBump ||
                       action == Action::kBlend || action == Action::kBucketBump;
  std::vector<Tensor> outputs;
  try {
    outputs = steps.call(action, inputs,
                         mutates ? std::min<int>(operation.fault, 1) : operation.fault, buffers);
  } catch (const InjectedFault&) {
    ++faults_;
    return;
  }
  std::vector<ModelTensor> models = model_call(action, x.model, y.model, context, enabled_);
  if (buffer.tensor.defined()) {
    model_copy(buffer.model, models[0]);
    models[0] = buffer.model;
  }
  // The output of an eager call has no generation.
  if (overlaps(steps) != skipped) models[0].buffer->context = ModelTensor::kNobodys;
  if (outputs.size() != models.size()) throw Difference("another number of outputs");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool is_managed = manages(steps.context(), outputs[i]);
    // Neither has the copy of an output.
    if (!is_managed && models[i].buffer->context == context)
      models[i].buffer->context = ModelTensor::kNobodys;
    variables_[(operation.to + i) % kVariables] = {std::move(outputs[i]), models[i]};
  }
}

ProgramRunner::Variable& ProgramRunner::ready(int number) {
  Variable& variable = variables_[number % kVariables];
  if (!variable.tensor.defined() || variable.model.buffer->is_stale) variable = fresh(number);
  return variable;
}

ProgramRunner::Variable ProgramRunner::fresh(int choice) {
  return fresh_of(shape_number(choice));
}

ProgramRunner::Variable ProgramRunner::fresh_of(const Shape& shape) {
  Variable variable;
  variable.model = ModelTensor::make(shape, ModelTensor::kNobodys);
  for (float& value : variable.model.buffer->values)
    value = next_value();
  variable.tensor =
      from_host(shape, std::span<const float>(variable.model.buffer->values), device_);
  return variable;
}

// Returns a static input: its address depends on the number only, not on the shape.
ProgramRunner::Variable ProgramRunner::static_like(int number, const Shape& shape) const {
  const Variable& whole = statics_[number];
  const Shape dense(shape.dims());
  return {Tensor(whole.tensor.storage(), 0, dense, DType::kFloat32),
          {whole.model.buffer, 0, dense}};
}

// Returns a random range of rows of x.
ProgramRunner::Variable ProgramRunner::some_rows(const Variable& x, int choice) {
  const std::int64_t all = x.tensor.dim(0);
  const std::int64_t rows = 1 + choice * 5 % all;
  const std::int64_t first = choice * 3 % (all - rows + 1);
  const Tensor part = x.tensor.slice(0, first, first + rows);
  return {part, {x.model.buffer, x.model.offset + first * x.model.shape.stride(0), part.shape()}};
}

// Returns `wanted` if it has the dims of `variable`, so that they can be added, or else `variable`.
int ProgramRunner::same_dims(int variable, int wanted) {
  const Tensor x = ready(variable).tensor;
  const Tensor y = ready(wanted).tensor;
  const bool same = std::ranges::equal(ready(variable).tensor.shape().dims(), y.shape().dims());
  return (same ? wanted : variable) % kVariables;
}

// Returns the wanted variable if it has x's dims and other memory, or else a column of a table.
ProgramRunner::Variable ProgramRunner::buffer_for(const Variable& x, int wanted) {
  const Variable candidate = ready(wanted);
  const bool same_dims =
      std::ranges::equal(candidate.tensor.shape().dims(), x.tensor.shape().dims());
  if (same_dims && candidate.model.buffer != x.model.buffer) return candidate;
  std::vector<std::int64_t> dims(x.tensor.shape().dims().begin(), x.tensor.shape().dims().end());
  std::vector<std::int64_t> whole = dims;
  whole.push_back(2);
  const Variable table = fresh_of(Shape(whole));
  std::vector<std::int64_t> strides(table.tensor.shape().strides().begin(),
                                    table.tensor.shape().strides().end() - 1);
  const Shape column(dims, strides);
  return {Tensor(table.tensor.storage(), 0, column, DType::kFloat32),
          {table.model.buffer, 0, column}};
}

// Contexts are not ordered with each other, so synchronizes when the context changes.
StepContext& ProgramRunner::use(int context) {
  if (context != last_context_) contexts_[last_context_]->context().synchronize();
  last_context_ = context;
  return *contexts_[context];
}

void ProgramRunner::mark_step(int context) {
  use(context).context().mark_step();
  for (Variable& variable : variables_) {
    if (variable.tensor.defined() && variable.model.buffer->context == context) {
      variable.model.buffer->is_stale = true;
    }
  }
}

void ProgramRunner::write_static(int number) {
  for (float& value : statics_[number].model.buffer->values)
    value = next_value();
  statics_[number].tensor.copy_from(std::span<const float>(statics_[number].model.buffer->values));
}

// An eager gap: copies on the context's stream, between calls.
void ProgramRunner::copy(Variable& to, const Variable& from) {
  if (!from.tensor.is_contiguous()) {
    to = fresh(0);
    return;
  }
  const Variable source = from;
  const Tensor made = empty(Shape(source.tensor.shape().dims()), DType::kFloat32, device_);
  cgtree::copy(made, source.tensor, contexts_[last_context_]->context().stream());
  to = {made, model_affine(source.model, 1, 0, ModelTensor::kNobodys)};
}

void ProgramRunner::check() {
  (void)use(0);
  (void)use(1);
  contexts_[1]->context().synchronize();
  const auto compare = [&](const Variable& variable, const std::string& name) {
    if (!variable.tensor.defined()) return;
    const ModelTensor& model = variable.model;
    const Storage& storage = *variable.tensor.storage();
    const bool is_stale = storage.state() == Storage::State::kStale;
    if (is_stale != (model.buffer->is_stale && enabled_)) {
      throw Difference(fmt::format("{} is {}stale", name, is_stale ? "" : "not "));
    }
    if (model.buffer->is_stale) return;
    if (variable.tensor.shape() != model.shape) throw Difference(name + " has another shape");
    const auto elements = static_cast<std::int64_t>(model.buffer->values.size());
    const Tensor whole(variable.tensor.storage(), 0, Shape{elements}, DType::kFloat32);
    const std::vector<float> values = whole.to_vector<float>();
    if (values != model.buffer->values) {
      throw Difference(fmt::format("{} holds {}, not {}", name, fmt::join(values, " "),
                                   fmt::join(model.buffer->values, " ")));
    }
  };
  for (int i = 0; i < kVariables; ++i)
    compare(variables_[i], fmt::format("variable {}", i));
  for (int i = 0; i < kStatics; ++i)
    compare(statics_[i], fmt::format("static {}", i));
}

void ProgramRunner::check_end(ProgramTotals& totals) {
  variables_ = {};
  for (const auto& steps : contexts_) {
    const ContextStats stats = steps->context().stats();
    totals.calls += stats.calls;
    totals.recordings += stats.recordings;
    totals.replays += stats.replays;
    if (stats.live_outputs != 0) throw Difference("an output is still live");
    const auto allowed = stats.skips[static_cast<int>(SkipReason::kNestedCall)] +
                         stats.skips[static_cast<int>(SkipReason::kOverlappingInputs)] +
                         stats.skips[static_cast<int>(SkipReason::kBacksOff)];
    if (enabled_ && stats.skipped() != allowed) throw Difference("a skip: " + to_string(stats));
    cgtree::testing::validate(steps->context());
    if (const int left = steps->end(); left != 0) {
      throw Difference(fmt::format("{} segments are left behind", left));
    }
  }
  totals.faults += faults_;
}

float ProgramRunner::next_value() {
  return static_cast<float>(++values_made_ * 7919 % 2048) / 64 - 16;
}

}  // namespace cgtree::testing
