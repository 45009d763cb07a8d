// World: what callers do on streams of their own, their captures, and tensors of other libraries.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <optional>
#include <thread>

#include "base/error.h"
#include "interop/exchange/dlpack_tensor.h"
#include "interop/exchange/stream_synchronization.h"
#include "interop/tensor/copy.h"
#include "tests/support/steps.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

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

// The source stays, and a call may write it at once: the copy has been announced.
void World::read_beside(const WorldOperation& operation) {
  const Variable x = ready(operation.x);
  if (!x.tensor.is_contiguous()) return;
  Variable made = fresh_of(Shape(x.tensor.shape().dims()));
  const bool is_short_lived = operation.choice % 4 == 0;
  const int copies = is_short_lived ? 40 : 1;
  for (int i = 0; i < copies; ++i) {
    std::optional<Stream> short_lived;
    if (is_short_lived) short_lived.emplace(device_);
    const StreamRef stream = short_lived ? short_lived->ref() : reader_->ref();
    wait_for_all(stream);
    if (x.writer) stream.wait_for(x.writer);
    stream.wait_for(producer_->ref());
    if (x.tensor.storage()->domain() != nullptr) stream.wait_for(x.tensor.storage()->stream());
    cgtree::copy(made.tensor, x.tensor, stream);
    if (short_lived) {
      reader_->ref().wait_for(stream);
      short_lived->synchronize();
    }
  }
  ++totals_.done[is_short_lived ? "readers whose streams end" : "a reader on another stream"];
  model_copy(made.model, x.model);
  made.writer = reader_->ref();
  put(operation.to, made);
  if (operation.choice % 4 != 1 || operation.to % kVariables == operation.x % kVariables) return;
  WorldOperation next = operation;
  next.deed = Deed::kBump;
  next.to = static_cast<std::uint8_t>((operation.to + 1) % kVariables);
  call(next);
}

void World::copy_out(const WorldOperation& operation) {
  const Variable x = ready(operation.x);
  if (!x.tensor.is_contiguous()) return;
  const StreamRef stream = streams_[operation.stream % kStreams]->ref();
  wait_for_all(stream);
  if (x.writer) stream.wait_for(x.writer);
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
  bool is_refused = false;
  bool is_missed = false;
  const auto record = [&] {
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
    } catch (const CaptureError&) {
      is_missed = true;
    } catch (const Error&) {
      is_refused = true;  // a context may refuse
    }
  };
  if (program_.has(Feature::kThreads) && operation.choice % 2 == 0) {
    ++totals_.done["a thread of its own captures"];
    std::thread(record).join();
  } else {
    record();
  }
  if (is_missed) throw Difference("a call in a capture is not made part of it");
  if (is_refused) {
    ++totals_.refused;
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

}  // namespace cgtree::testing
