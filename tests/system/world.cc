// Executes operations on both sides, and compares.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "allocator/caching/device_allocator.h"
#include "base/error.h"
#include "cgtree/tree/tree_manager.h"
#include "interop/exchange/dlpack_tensor.h"
#include "interop/exchange/stream_synchronization.h"
#include "interop/tensor/copy.h"
#include "tests/support/steps.h"
#include "tests/system/step_context.h"

namespace cgtree::testing {
namespace {

constexpr int kNobodys = ModelTensor::kNobodys;
constexpr int kOwnStreams = 7;  // the option of a context that is given its stream
const Shape kRow{6};

const Shape& shape_number(int choice) {
  static const Shape kShapes[] = {Shape{6}, Shape{2, 3}, Shape{3, 2}, Shape{40}};
  return kShapes[choice % 4];
}

bool same_dims(const Shape& a, const Shape& b) {
  return std::ranges::equal(a.dims(), b.dims());
}

// A difference between the two sides.
struct Difference : std::runtime_error {
  using std::runtime_error::runtime_error;
};

ModelTensor affine_of(const ModelTensor& x, float scale, float shift) {
  return model_affine(x, scale, shift, kNobodys);
}

ModelTensor view_of(const ModelTensor& x, const Tensor& from, const Tensor& view) {
  const auto moved = static_cast<std::int64_t>(view.byte_offset() - from.byte_offset());
  return {x.buffer, x.offset + moved / 4, view.shape()};
}

// What kFork gives on its two streams.
ModelTensor left_of(const ModelTensor& x) {
  return affine_of(affine_of(x, 0.5f, 0), -1, 0);
}
ModelTensor right_of(const ModelTensor& x) {
  return affine_of(x, 1, 1);
}

// What the plain calls return and write. `number`: what is in a block or a table.
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

// A tensor of another library; its memory is overwritten as soon as the library may do so.
struct Foreign {
  dlpack::ManagedVersioned managed = {};
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  Tensor memory;
  StreamRef producer;
  std::vector<Tensor>* graveyard = nullptr;
};

}  // namespace

World::World(Device device, const WorldProgram& program, WorldTotals& totals)
    : device_(device),
      program_(program),
      pinned_(device),
      producer_(std::in_place, device),
      totals_(totals) {
  for (int i = 0; i < kStreams; ++i)
    streams_.emplace_back(std::in_place, device);
  own_streams_.reserve(64);
  int count = 1;
  for (const WorldOperation& operation : program.operations)
    count = std::max(count, operation.context % 3 + 1);
  for (int i = 0; i < count; ++i) {
    options_.push_back(program.options[static_cast<std::size_t>(i)] % 8);
    contexts_.emplace_back();
    tables_.emplace_back();
    end_context(i);
  }
  check();
}

World::~World() {
  settle();
  variables_ = {};
  captured_.clear();
}

std::string World::run() {
  std::string where = "before the first operation";
  std::string text;
  try {
    for (int round = 0; round < program_.rounds; ++round) {
      for (std::size_t i = 0; i < program_.operations.size(); ++i) {
        where = fmt::format("round {}, operation {}", round, i);
        execute(program_.operations[i]);
      }
    }
    where = "the end";
    check();
    finish();
  } catch (const std::exception& error) {
    text = fmt::format("{}: {}", where, error.what());
  }
  return text;
}

void World::execute(const WorldOperation& operation) {
  const int to = operation.to % kVariables;
  switch (operation.deed) {
    case Deed::kFresh:
      return put(to, fresh(operation.y));
    case Deed::kDrop:
      return put(to, {});
    case Deed::kDropThere: {
      Variable gone = std::move(variables_[static_cast<std::size_t>(to)]);
      variables_[static_cast<std::size_t>(to)] = {};
      std::thread([tensor = std::move(gone.tensor)] {}).join();
      return;
    }
    case Deed::kView: {
      Variable x = ready(operation.x);
      const Tensor view = view_of(x.tensor, operation.y);
      x.model = view_of(x.model, x.tensor, view);
      x.tensor = view;
      return put(to, x);
    }
    case Deed::kHalves: {
      const Variable x = ready(operation.x);
      const std::int64_t half = x.tensor.dim(0) / 2;
      for (int i = 0; half > 0 && i < 2; ++i) {
        Variable part = x;
        part.tensor = x.tensor.slice(0, i * half, (i + 1) * half);
        part.model = view_of(x.model, x.tensor, part.tensor);
        put(to + i, part);
      }
      return;
    }
    case Deed::kMarkStep:
      return mark_step(operation.context);
    case Deed::kCheck:
      return check();
    case Deed::kEager: {
      const Variable x = fresh(operation.y);
      Context& made_in = context(operation).context();
      put(to, {made_in.eager([&] { return affine(x.tensor, 1, 0); }), affine_of(x.model, 1, 0)});
      return;
    }
    case Deed::kSecond:
      return second(operation);
    case Deed::kKeep:
      return keep(operation);
    case Deed::kClosure:
      return closure(operation);
    case Deed::kMoveTable:
      settle();
      return context(operation).move_table(next_value(), operation.y % 2 == 0);
    case Deed::kSwap:
      return use(operation.context).swap(next_value());
    case Deed::kBuckets:
      return buckets(operation);
    case Deed::kList:
      return list(operation);
    case Deed::kColumns:
      return columns(operation);
    case Deed::kOverlap:
      return overlap(operation);
    case Deed::kMisfit:
      return misfit(operation);
    case Deed::kFork:
      return fork(operation);
    case Deed::kIntrude:
      return intrude(operation);
    case Deed::kOutlive:
      return outlive(operation);
    case Deed::kRead:
      return read(operation);
    case Deed::kCopy:
      return copy_out(operation);
    case Deed::kCapture:
      return capture(operation);
    case Deed::kLaunch:
      return launch(operation);
    case Deed::kRelease:
      return release(operation);
    case Deed::kTend:
      return tend(operation);
    case Deed::kKeepOutput:
      return keep_output(operation);
    case Deed::kEndContext:
      return end_context(operation.context % static_cast<int>(contexts_.size()));
    case Deed::kEndStream:
      return end_stream(operation.stream % kStreams);
    case Deed::kImport:
      return import(operation);
    default:
      return call(operation);
  }
}

// ---- Calls --------------------------------------------------------------------------------------

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
  if (mutates || deed == Deed::kWorkspace) what.fault = std::min<std::uint8_t>(what.fault, 1);
  WorldContext& with = context(operation);
  if (deed == Deed::kTable) {
    if (!with.has_table()) with.move_table(next_value(), operation.y % 2 == 0);
    number = with.table_value();
  }
  std::vector<Tensor> outputs;
  const std::size_t replaced = operation.x % kVariables;
  if (deed == Deed::kReplace) {  // the step itself replaces the variable that is passed
    const Variable next = fresh_of(Shape(x.tensor.shape().dims()));
    with.during = [&] { variables_[replaced] = next; };
    const Tensor* const passed = &variables_[replaced].tensor;
    inputs.clear();
    const bool done = run_call(what, with.function(deed), {passed, 1}, buffers, mutates, outputs);
    with.during = nullptr;
    if (!done) return put(static_cast<int>(replaced), {});
  } else if (!run_call(what, with.function(deed), inputs, buffers, mutates, outputs)) {
    return;
  }
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
         is_input ? x.writer : StreamRef()});
  }
}

// Returns false if the call has thrown what it may; then it has done nothing.
bool World::run_call(const WorldOperation& operation, const WorldContext::Function& function,
                     std::span<const Tensor> inputs, std::span<const Tensor> buffers, bool mutates,
                     std::vector<Tensor>& outputs) {
  WorldContext& with = context(operation);
  const int number = caller_number(operation);
  if (number != last_caller_ && !program_.has(Feature::kStreams)) settle();
  last_caller_ = number;
  ++totals_.calls;
  with.fault = operation.fault;
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
  } else {
    run(caller_of(operation));
  }
  ends = true;
  if (monitor.joinable()) monitor.join();
  with.fault = 0;
  if (!thrown) return true;
  ++totals_.refused;
  try {
    std::rethrow_exception(thrown);
  } catch (const InjectedFault&) {
    if (operation.fault == 0) throw;
  } catch (const OutOfMemory&) {
    if (!program_.has(Feature::kBudgets)) throw;
    for (Variable& variable : variables_) {  // the step may have run in part
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
  std::optional<StreamScope> scope;
  if (caller) scope.emplace(caller);
  ++context(operation).calls;
  outputs = buffers.empty() ? function(inputs) : function.into(buffers)(inputs);
  if (is_ordered) all_wait_for(now());  // without a scope, the call may have moved the context
}

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

// Unless the step joins its side stream, the caller has to wait for it.
void World::fork(const WorldOperation& operation) {
  WorldOperation what = operation;
  int how = operation.y % WorldContext::kForks;
  if (program_.has(Feature::kBudgets) && how == WorldContext::kNotJoined) how = 0;
  const bool joins = how != WorldContext::kNotJoined;
  if (!joins) what.fault = std::min<std::uint8_t>(what.fault, 1);
  const Variable x = ready(operation.x);
  WorldContext& with = context(operation);
  std::vector<Tensor> outputs;
  const bool done =
      run_call(what, with.function(Deed::kFork, how), {&x.tensor, 1}, {}, false, outputs);
  if (!joins) {
    with.side().synchronize();
    settle();
  }
  if (!done) return;
  const int caller = caller_number(operation);
  if (joins)
    return put(operation.to, {outputs.at(0), results_of(Deed::kFork, x.model, {}, 0)[0], caller});
  put(operation.to, {outputs.at(0), left_of(x.model), caller});
  put(operation.to + 1, {outputs.at(1), right_of(x.model), caller});
}

// What is refused has changed nothing: the step goes on, or throws what it was told to.
void World::intrude(const WorldOperation& operation) {
  const Variable x = ready(operation.x);
  WorldContext& with = context(operation);
  WorldContext& other =
      *contexts_[(static_cast<std::size_t>(operation.context) + 1) % contexts_.size()];
  std::string text;
  if (&other != &with) {
    with.during = [&] {
      try {
        if (operation.y % 2 == 0) {
          (void)other.function(Deed::kChain)({&x.tensor, 1});
        } else {
          (void)other.context().eager([&] { return affine(x.tensor, 1, 0); });
        }
        text = "a step works in another context";
      } catch (const InvalidArgument&) {
      }
    };
  }
  std::vector<Tensor> outputs;
  const bool done =
      run_call(operation, with.function(Deed::kIntrude), {&x.tensor, 1}, {}, false, outputs);
  with.during = nullptr;
  if (!text.empty()) throw Difference(text);
  if (!done) return;
  put(operation.to,
      {outputs.at(0), results_of(Deed::kIntrude, x.model, {}, 0)[0], caller_number(operation)});
}

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

// ---- Axes ---------------------------------------------------------------------------------------

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

// The step has run, or has not; what the caller does next comes behind it.
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

// ---- What callers do on their own streams
// ---------------------------------------------------------

// On the stream of the call that made x, so that nothing is waited for.
void World::read(const WorldOperation& operation) {
  const Variable x = ready(operation.x);
  if (x.caller < 0) return;
  const StreamRef stream = streams_[static_cast<std::size_t>(x.caller)]->ref();
  Variable made = fresh_of(Shape(x.tensor.shape().dims()));
  copy_elements(stream, made.tensor, x.tensor);
  note_use(x.tensor.storage(), stream);  // the context may work elsewhere by now
  model_copy(made.model, x.model);
  made.writer = stream;
  put(operation.x, {});
  put(operation.to, made);
}

void World::copy_out(const WorldOperation& operation) {
  const Variable x = ready(operation.x);
  if (!x.tensor.is_contiguous()) return;
  const StreamRef stream = streams_[operation.stream % kStreams]->ref();
  wait_for_all(stream);
  stream.wait_for(producer_->ref());  // an import is ordered for calls, not for plain copies
  if (x.tensor.storage()->domain() != nullptr) {  // of a context that may be gone
    stream.wait_for(x.tensor.storage()->stream());
  }
  const Shape dense(x.tensor.shape().dims());
  Variable made = operation.y % 2 == 0 ? Variable{pinned_->empty(dense, DType::kFloat32),
                                                  ModelTensor::make(dense, kNobodys)}
                                       : fresh_of(dense);
  cgtree::copy(made.tensor, x.tensor, stream);
  model_copy(made.model, x.model);
  made.writer = stream;
  put(operation.x, {});
  if (operation.y % 2 != 0) return put(operation.to, made);
  graveyard_.push_back(made.tensor);  // pinned memory is no input; it is compared when checked
  captured_.push_back({{}, {}, {}, made});
}

void World::capture(const WorldOperation& operation) {
  const StreamRef stream = streams_[operation.stream % kStreams]->ref();
  const Deed deeds[] = {Deed::kChain, Deed::kBig, Deed::kFork};
  const Deed deed = deeds[operation.y % (program_.has(Feature::kForks) ? 3 : 2)];
  // With kForks the call may be on a branch of the capture.
  const int forks = program_.has(Feature::kForks) ? operation.to % 3 : 0;
  const StreamRef branch = streams_[(operation.stream + (forks > 0)) % kStreams]->ref();
  Captured made;
  made.x = fresh(operation.x);
  WorldContext& with = context(operation);
  settle();
  std::vector<Tensor> outputs;
  Code code = Code::kSuccess;
  try {
    Capture open(stream, CaptureMode::kThreadLocal);
    made.id = capture_of(stream);
    if (forks > 0) make_wait(branch, stream, forks == 1);
    {
      const StreamScope scope(branch);
      ++with.calls;
      outputs = with.function(deed)({&made.x.tensor, 1});
    }
    if (forks > 0) make_wait(stream, branch, forks == 1);
    code = open.end(&made.graph);
  } catch (const Error&) {
    ++totals_.refused;  // a context may refuse
    return;
  }
  if (!ok(code))
    throw Difference(fmt::format("a foreign capture fails: {}", static_cast<int>(code)));
  made.exec = GraphExec(stream.graphs(), made.graph);
  made.context = operation.context % static_cast<int>(contexts_.size());
  made.y = {outputs.at(0), results_of(deed, made.x.model, {}, 0)[0]};
  captured_.push_back(std::move(made));
  WorldOperation first = operation;
  first.x = static_cast<std::uint8_t>(captured_.size() - 1);
  launch(first);
}

void World::launch(const WorldOperation& operation) {
  if (captured_.empty()) return;
  Captured& graph = captured_[operation.x % captured_.size()];
  if (!graph.has_graph()) return;
  const StreamRef stream = streams_[operation.stream % kStreams]->ref();
  wait_for_all(stream);
  const Code code = stream.graphs().launch(graph.exec.handle(), stream.handle());
  if (!ok(code))
    throw Difference(fmt::format("a foreign launch fails: {}", static_cast<int>(code)));
  all_wait_for(stream);
  ++totals_.launches;
}

// The graph is gone, and what it used may be used again; its output is still held.
void World::release(const WorldOperation& operation) {
  if (captured_.empty()) return;
  Captured& graph = captured_[operation.x % captured_.size()];
  if (!graph.has_graph()) return;
  settle();
  graph.drop_graph();
  graph.x = {};
  Context& held_in = use(graph.context).context();
  if (held_in.release_captured(graph.id) == 0) throw Difference("nothing was kept for a capture");
  if (held_in.release_captured(graph.id) != 0) throw Difference("a capture was released twice");
}

// What a server does beside calls.
void World::tend(const WorldOperation& operation) {
  WorldContext& with = context(operation);
  switch (operation.y % 7) {
    case 0:
      static_cast<void>(with.context().trim());
      break;
    case 6: {
      const Variable& x = variables_[static_cast<std::size_t>(operation.x) % kVariables];
      if (!x.tensor.defined()) break;
      static_cast<void>(with.context().invalidate(reinterpret_cast<const void*>(x.tensor.address()),
                                                  x.tensor.bytes()));
      break;
    }
    case 4:
      static_cast<void>(with.context().release_memory());
      break;
    case 5: {
      const WorldContext::Function& chain = with.function(Deed::kChain);
      if (chain.is_frozen()) {
        chain.unfreeze();
      } else {
        chain.freeze();
      }
      break;
    }
    case 1:
      with.context().share_manager()->validate();
      break;
    case 2:
      watch(with);
      break;
    default: {
      const Variable x = ready(operation.x);
      static_cast<void>(with.function(Deed::kChain).explain({&x.tensor, 1}));
    }
  }
}

// What monitors read, on another thread, has the calls that the program has made.
void World::watch(WorldContext& with) {
  std::string page, text;
  std::thread([&] {
    page = with.context().metrics_text();
    text = report(with.context());
  }).join();
  std::uint64_t calls = 0, nested = 0, replays = 0;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    const auto is = [&](std::string_view part) { return line.find(part) != std::string::npos; };
    if (line.front() == '#') continue;
    const std::uint64_t value = std::stoull("0" + line.substr(line.rfind(' ') + 1));
    if (is("cgtree_calls_total{")) calls += value;
    if (is("cgtree_calls_total{") && is("outcome=\"replay\"")) replays += value;
    if (is("cgtree_skips_total{") && is("reason=\"nested_call\"")) nested += value;
  }
  if (calls - nested != with.calls) {
    throw Difference(fmt::format("metrics count {} calls, {} of them nested, where {} were made",
                                 calls, nested, with.calls));
  }
  const std::string begin = fmt::format(": {} calls, {} replayed\n", calls, replays);
  if (text.find(begin) == std::string::npos) {
    throw Difference(fmt::format("a report does not say \"{}\":\n{}", begin, text));
  }
}

void World::keep_output(const WorldOperation& operation) {
  Variable& x = variables_[static_cast<std::size_t>(operation.x) % kVariables];
  if (!x.tensor.defined()) return;
  for (const auto& made_in : contexts_) {
    Context& context = made_in->context();
    if (x.tensor.storage()->domain() != &context.share_manager()->memory()) continue;
    context.keep(x.tensor);
    x.is_kept = true;
  }
}

void World::import(const WorldOperation& operation) {
  Variable x = fresh(operation.y);
  auto* const foreign = new Foreign;
  const auto dims = x.tensor.shape().dims();
  foreign->dims.assign(dims.begin(), dims.end());
  const auto strides = x.tensor.shape().strides();
  foreign->strides.assign(strides.begin(), strides.end());
  foreign->memory = x.tensor;
  foreign->producer = producer_->ref();
  foreign->graveyard = &graveyard_;
  foreign->managed.version = {1, 3};
  foreign->managed.context = foreign;
  foreign->managed.tensor = {x.tensor.data(),
                             to_dlpack_device(device_),
                             static_cast<std::int32_t>(dims.size()),
                             {dlpack::kFloat, 32, 1},
                             foreign->dims.data(),
                             foreign->strides.data(),
                             0};
  foreign->managed.deleter = [](dlpack::ManagedVersioned* self) {
    auto* const library = static_cast<Foreign*>(self->context);
    {
      const StreamScope scope(library->producer);
      update(library->memory, 0, -1);
    }
    library->graveyard->push_back(library->memory);
    delete library;
  };
  {
    const StreamScope scope(foreign->producer);
    update(x.tensor, 0.5f, 1);
  }
  model_update(x.model, 0.5f, 1);
  x.tensor = from_dlpack(&foreign->managed, {.producer = foreign->producer});
  put(operation.to, x);
}

// ---- Ends
// -----------------------------------------------------------------------------------------

void World::end_context(int number) {
  const auto i = static_cast<std::size_t>(number);
  StreamRef own;
  if (contexts_[i] != nullptr) {
    count(contexts_[i]->context());
    all_wait_for(contexts_[i]->context().stream());
    if (!program_.has(Feature::kContexts)) settle();
    if (program_.has(Feature::kThreads)) {
      std::thread([gone = std::move(contexts_[i])] {}).join();
    }
  }
  contexts_[i].reset();
  for (Captured& captured : captured_) {
    if (captured.context == number) captured.drop_graph();  // its memory is gone
  }
  const bool has_budget = program_.has(Feature::kBudgets);
  const std::size_t verify_every =
      program_.has(Feature::kVerifying) ? 1 + static_cast<std::size_t>(options_[i]) % 3 : 0;
  if (options_[i] == kOwnStreams) own = own_streams_.emplace_back(device_).ref();
  if (options_[i] == kOwnStreams && program_.has(Feature::kPerThread)) {
    try {
      const StreamRef per_thread(device_, StreamHandle::kPerThread);
      contexts_[i] = std::make_unique<WorldContext>(device_, options_[i], has_budget, per_thread,
                                                    verify_every);
    } catch (const InvalidArgument&) {  // may be refused
    }
  }
  if (contexts_[i] == nullptr) {
    contexts_[i] =
        std::make_unique<WorldContext>(device_, options_[i], has_budget, own, verify_every);
  }
  wait_for_all(contexts_[i]->context().stream());  // what the last one wrote may be the caller's
  tables_[i] = {};
}

// No more stays than the segment in which the output lies.
void World::outlive(const WorldOperation& operation) {
  const bool grows_in_place = operation.y % 4 == 0;
  const Variable x = fresh_of(kRow);
  const std::shared_ptr<DeviceAllocator> shared = DeviceAllocator::shared(device_);
  const auto in_use = [&] { return shared->cache().statistics().bytes_in_use; };
  const std::size_t before = in_use();
  Tensor held;
  {
    Context gone(device_, {.pools_grow_in_place = grows_in_place});
    const CompiledFunction small =
        compile(gone, "small", [](const Tensor& x) { return affine(x, 0.5f, 1); });
    const CompiledFunction large = compile(gone, "large", [](const Tensor& x) {
      const Tensor wide = empty({300'000}, DType::kFloat32);
      copy_elements(current_stream(), Tensor(wide.storage(), 0, kRow, DType::kFloat32), x);
      note_use(wide.storage(), current_stream());
      return wide;
    });
    for (int call = 0; call <= operation.y % 3; ++call) {
      held = small(x.tensor);
      (void)large(x.tensor);
    }
    held = small(x.tensor);
    if (operation.to % 2 == 0) gone.mark_step();
    if (held.storage()->state() == Storage::State::kStale) held = Tensor();
  }
  if (!grows_in_place && in_use() > before + (held.defined() ? kSmallSegment : 0)) {
    throw Difference(fmt::format("{} bytes outlive a context for an output of {}",
                                 in_use() - before, x.tensor.bytes()));
  }
  if (held.defined()) put(operation.to, {held, affine_of(x.model, 0.5f, 1)});
}

void World::end_stream(int number) {
  const auto i = static_cast<std::size_t>(number);
  all_wait_for(streams_[i]->ref());
  for (Variable& variable : variables_) {
    if (variable.caller == number) variable.caller = -1;
    if (variable.writer == streams_[i]->ref()) variable.writer = {};
  }
  for (Captured& captured : captured_) {
    if (captured.y.writer == streams_[i]->ref()) captured.y.writer = {};
  }
  streams_[i].reset();
  streams_[i].emplace(device_);
}

void World::mark_step(int number) {
  use(number).context().mark_step();
  for (Variable& variable : variables_) {
    if (!variable.tensor.defined()) continue;
    if (variable.tensor.storage()->state() != Storage::State::kStale) continue;
    if (variable.is_kept) throw Difference("mark_step() has ended an output that was kept");
    variable = {};
  }
}

// ---- Variables
// ------------------------------------------------------------------------------------

WorldContext& World::context(const WorldOperation& operation) {
  return use(operation.context);
}

WorldContext& World::use(int number) {
  number %= static_cast<int>(contexts_.size());
  if (number != last_context_ && !program_.has(Feature::kContexts)) settle();
  last_context_ = number;
  return *contexts_[static_cast<std::size_t>(number)];
}

bool World::is_on_thread(const WorldOperation& operation) const {
  return program_.has(Feature::kPerThread) && operation.stream % 2 == 1;
}

// -1 for none.
int World::caller_number(const WorldOperation& operation) const {
  if (!program_.has(Feature::kStreams) || is_on_thread(operation)) return -1;
  return operation.stream % (kStreams + 1) - 1;
}

StreamRef World::caller_of(const WorldOperation& operation) const {
  const int number = caller_number(operation);
  return number < 0 ? StreamRef() : streams_[static_cast<std::size_t>(number)]->ref();
}

World::Variable& World::ready(int number) {
  Variable& variable = variables_[static_cast<std::size_t>(number) % kVariables];
  if (!variable.tensor.defined()) variable = fresh(number);
  return variable;
}

World::Variable World::fresh(int choice) {
  return fresh_of(shape_number(choice));
}

// Copies from the host wait for work, which would hide what is not ordered: so the tensors are made
// when all is settled, as long as they last.
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

// Elements that lie two apart.
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

void World::put(int number, Variable variable) {
  variables_[static_cast<std::size_t>(number) % kVariables] = std::move(variable);
}

// ---- Order and comparison
// -------------------------------------------------------------------------

void World::wait_for_all(StreamRef stream) {
  for (const auto& other : streams_) {
    if (other && other->ref() != stream) stream.wait_for(other->ref());
  }
  for (const auto& other : contexts_) {
    if (other && other->context().stream() != stream) stream.wait_for(other->context().stream());
  }
}

void World::all_wait_for(StreamRef stream) {
  for (const auto& other : streams_) {
    if (other && other->ref() != stream) other->ref().wait_for(stream);
  }
  for (const auto& other : contexts_) {
    if (other && other->context().stream() != stream) other->context().stream().wait_for(stream);
  }
}

void World::settle() {
  for (const auto& context : contexts_) {
    if (context) context->context().synchronize();
  }
  for (const auto& stream : streams_) {
    if (stream) stream->synchronize();
  }
  producer_->synchronize();
}

// Requires that all is settled.
void World::expect(const Tensor& tensor, const ModelTensor& model, const std::string& name) {
  const Storage& storage = *tensor.storage();
  if (storage.state() == Storage::State::kStale) throw Difference(name + " is stale");
  if (!same_dims(tensor.shape(), model.shape)) throw Difference(name + " has another shape");
  const Tensor whole(tensor.storage(), 0,
                     Shape{static_cast<std::int64_t>(storage.bytes() / sizeof(float))},
                     DType::kFloat32);
  const std::vector<float> values = whole.to_vector<float>();
  const ModelTensor given{std::make_shared<ModelTensor::Buffer>(ModelTensor::Buffer{values}),
                          static_cast<std::int64_t>(tensor.byte_offset() / sizeof(float)),
                          tensor.shape()};
  for (std::int64_t i = 0; i < model.shape.elements(); ++i) {
    if (given[i] == model[i]) continue;
    throw Difference(fmt::format("element {} of {} is {}, not {}", i, name, given[i], model[i]));
  }
}

void World::check() {
  settle();
  for (int i = 0; i < kVariables; ++i) {
    const Variable& variable = variables_[static_cast<std::size_t>(i)];
    if (variable.tensor.defined()) {
      expect(variable.tensor, variable.model, fmt::format("variable {}", i));
    }
  }
  for (const Captured& captured : captured_)
    expect(captured.y.tensor, captured.y.model, "what a caller's graph or copy has written");
  std::erase_if(captured_, [](const Captured& captured) { return !captured.has_graph(); });
  graveyard_.clear();
  stock_.clear();
  taken_ = 0;
  for (int i = 0; i < 12; ++i) {
    Variable whole;
    whole.model = ModelTensor::make(Shape{80}, kNobodys);
    for (float& value : whole.model.buffer->values)
      value = next_value();
    whole.tensor = from_host({80}, std::span<const float>(whole.model.buffer->values), device_);
    stock_.push_back(std::move(whole));
  }
}

void World::finish() {
  for (Variable& variable : variables_)
    variable = {};
  captured_.clear();
  for (const auto& context : contexts_) {
    count(context->context());
    context->context().share_manager()->validate();
  }
}

void World::count(const Context& context) {
  const ContextStats stats = context.stats();
  totals_.recordings += stats.recordings;
  totals_.replays += stats.replays;
  totals_.evictions += stats.evictions;
  const nlohmann::json snapshot = nlohmann::json::parse(context.snapshot_json());
  for (const auto& function : snapshot["functions"]) {
    if (function.contains("verification")) {
      totals_.verified += function["verification"]["verified"].get<std::uint64_t>();
    }
  }
  for (const auto& node : snapshot["nodes"]) {
    const auto& inputs = node["inputs"];
    const auto signature = node["signature"].get<std::string>();
    const bool has_buffer = signature.find("into ") != std::string::npos;  // one, and the last
    bool is_rebound = false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]["treatment"] != "rebound") continue;
      is_rebound = true;
      const bool is_buffer = has_buffer && i + 1 == inputs.size();
      ++(is_buffer ? totals_.rebound_buffers : totals_.rebound_inputs);
    }
    if (is_rebound) totals_.rebound_replays += node["replays"].get<std::uint64_t>();
    totals_.foreign += !node["audit"]["foreign"].empty();
    totals_.declared += std::ranges::any_of(
        node["audit"]["memory"], [](const auto& memory) { return memory["owner"] == "declared"; });
  }
}

float World::next_value() {
  return static_cast<float>(++values_made_ * 7919 % 2048) / 64 - 16;
}

}  // namespace cgtree::testing
