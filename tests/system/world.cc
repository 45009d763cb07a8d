// World: executes the operations of a program on device and model.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "extensions/sizes/precapture.h"
#include "tests/support/steps.h"
#include "tests/system/step_context.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
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
  contexts_.clear();  // tensors kept for captures may be imports, and move to the graveyard
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
    case Deed::kEngine:  // repeats until it replays, if replays are verified
      for (int i = 0; i < (program_.has(Feature::kVerifying) ? 4 : 1); ++i)
        engine(operation);
      return;
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
    case Deed::kLearn:
      return learn(operation);
    case Deed::kInspect:
      return inspect(operation);
    case Deed::kRecycle:
      return recycle(operation);
    case Deed::kFlow:
      return flow(operation);
    case Deed::kLease:
      return lease(operation);
    case Deed::kHoard:
      return hoard(operation);
    case Deed::kGuard:
      return guard(operation);
    case Deed::kSession:
      return session(operation);
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

// Returns -1 for none.
int World::caller_number(const WorldOperation& operation) const {
  if (!program_.has(Feature::kStreams) || is_on_thread(operation)) return -1;
  return operation.stream % (kStreams + 1) - 1;
}

StreamRef World::caller_of(const WorldOperation& operation) const {
  const int number = caller_number(operation);
  return number < 0 ? StreamRef() : streams_[static_cast<std::size_t>(number)]->ref();
}

void World::wait_for_all(StreamRef stream) {
  for (const auto& other : streams_) {
    if (other && other->ref() != stream) stream.wait_for(other->ref());
  }
  for (const auto& other : contexts_) {
    if (other && other->context().stream() != stream) stream.wait_for(other->context().stream());
  }
}

// Makes a stream wait for all writers of x, as a plain copy there requires.
void World::wait_for_writers(StreamRef stream, const Variable& x) {
  wait_for_all(stream);
  if (x.writer) stream.wait_for(x.writer);
  stream.wait_for(producer_->ref());  // an import is ordered for calls, not for plain copies
  if (x.tensor.storage()->domain() != nullptr) {  // from a context that may be destroyed
    stream.wait_for(x.tensor.storage()->stream());
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

}  // namespace cgtree::testing
