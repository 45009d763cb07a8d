// Executes operations on both sides, and compares.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "cgtree/tree/tree_manager.h"
#include "tests/support/steps.h"
#include "tests/system/step_context.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

constexpr long kMostEvents = 60;

const Shape& shape_number(int choice) {
  static const Shape kShapes[] = {Shape{6}, Shape{2, 3}, Shape{3, 2}, Shape{40}};
  return kShapes[choice % 4];
}

}  // namespace

World::World(Device device, const WorldProgram& program, WorldTotals& totals,
             const std::atomic<long>* events)
    : device_(device),
      program_(program),
      pinned_(device),
      producer_(std::in_place, device),
      reader_(std::in_place, device),
      totals_(totals),
      events_(events) {
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
    many_.emplace_back();
    end_context(i);
  }
  check();
}

World::~World() {
  settle();
  variables_ = {};
  captured_.clear();
  many_.clear();
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
    case Deed::kChange:
      return change(operation);
    case Deed::kEngine:
      return engine(operation);
    case Deed::kMany:
      return many(operation);
    case Deed::kRenew:
      return renew(operation);
    case Deed::kStale:
      return stale(operation);
    case Deed::kReturn:
      return returned(operation);
    case Deed::kReader:
      return read_beside(operation);
    case Deed::kDraw:
      return draw(operation);
    case Deed::kElsewhere:
      return elsewhere(operation);
    case Deed::kLent:
      return lent(operation);
    case Deed::kLend:
      return lend(operation);
    case Deed::kKeyRows:
      return key_rows(operation);
    case Deed::kPrecapture:
      return precapture(operation);
    case Deed::kInspect:
      return inspect(operation);
    default:
      return call(operation);
  }
}

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
  if (reader_->ref() != stream) reader_->ref().wait_for(stream);
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
  reader_->synchronize();
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
  for (const Variable& one : elsewhere_)
    expect(one.tensor, one.model, "an output of another device");
  for (const auto& inputs : many_) {
    for (const Variable& input : inputs) {
      if (input.tensor.defined() && !is_stale(input.tensor)) {
        expect(input.tensor, input.model, "one of many inputs");
      }
    }
  }
  if (events_ != nullptr) {
    totals_.most_events = std::max(totals_.most_events, events_->load());
    if (*events_ > kMostEvents) {
      throw Difference(
          fmt::format("{} events are there while nothing is under way", events_->load()));
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
  many_.clear();
  stale_.clear();
  elsewhere_.clear();
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
