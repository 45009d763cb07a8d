// Finds objects by handle, orders work between threads, and queues work that waits for other work.
#include "simulator/runtime.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/frame.h"
#include "interop/device/code.h"
#include "simulator/graph.h"
#include "simulator/strict_memory.h"

namespace cgtree::host {
namespace {

bool orders_with_legacy(const HostStream& stream) {
  return stream.kind == StreamKind::kBlocking && stream.device == 0;
}

std::uint64_t this_thread_number() {
  static std::atomic<std::uint64_t> threads{0};
  static thread_local const std::uint64_t number = ++threads;
  return number;
}

int checked(int devices) {
  if (devices >= 1) return devices;
  throw InvalidArgument(str_format("a host device with {} devices: give at least 1", devices));
}

std::unique_ptr<WorkQueue> make_queue(const HostDeviceOptions& options,
                                      WorkQueue::Perform perform) {
  if (options.executor == HostExecutor::kInline && options.checker == nullptr) return nullptr;
  return std::make_unique<WorkQueue>(options.executor, options.seed, std::move(perform));
}

}  // namespace

Runtime::Runtime(const HostDeviceOptions& options, std::uint64_t number)
    : devices(checked(options.devices)),
      checker(options.checker),
      memory(checker.get(), devices),
      queue(make_queue(options, [this](const Task& task) { return perform(task); })),
      free_waits_(options.free_waits),
      number_(number),
      legacy_(make_stream(StreamHandle::kLegacy, 0, StreamKind::kBlocking)) {
}

// An open capture and its streams own each other; this breaks the cycle.
Runtime::~Runtime() {
  queue.reset();  // running work needs the other members
  for (int device = 0; device < devices; ++device) {
    for (const auto& stream : streams_of(device))
      stream->capture.reset();
  }
}

// On the process's device, the state of a thread ends with the thread, as in CUDA. On other devices
// it ends with the device, because a thread may outlive the device.
ThreadState& Runtime::this_thread() {
  if (number_ == 0) {
    auto& state = of_thread<ThreadState>();
    if (state.id == 0) state.id = this_thread_number();
    return state;
  }
  static thread_local struct {
    std::uint64_t runtime = 0;
    ThreadState* state = nullptr;
  } latest;
  if (latest.runtime == number_) return *latest.state;
  const std::lock_guard lock(threads_mutex_);
  std::unique_ptr<ThreadState>& state = threads_[this_thread_number()];
  if (state == nullptr) {
    state = std::make_unique<ThreadState>();
    state->id = this_thread_number();
  }
  latest = {number_, state.get()};
  return *state;
}

std::shared_ptr<HostStream> Runtime::make_stream(StreamHandle handle, int device, StreamKind kind) {
  static std::atomic<std::uint64_t> streams{0};  // of all host devices
  return std::make_shared<HostStream>(handle, device, kind, ++streams);
}

std::shared_ptr<HostStream> Runtime::find_stream(StreamHandle handle) {
  if (handle == StreamHandle::kNull || handle == StreamHandle::kLegacy) return legacy_;
  if (handle != StreamHandle::kPerThread) {
    const auto found = streams.find(handle);
    return found == streams.end() ? nullptr : found->second;
  }
  ThreadState& thread = this_thread();
  if (thread.stream == nullptr) {
    auto stream = make_stream(handle, 0, StreamKind::kBlocking);
    std::erase_if(thread_streams_, [](const auto& other) { return other.expired(); });
    thread_streams_.push_back(stream);
    thread.stream = std::move(stream);
  }
  return thread.stream;
}

std::vector<std::shared_ptr<HostStream>> Runtime::streams_of(int device) const {
  std::vector<std::shared_ptr<HostStream>> found;
  for (const auto& [handle, stream] : streams) {
    if (stream->device == device) found.push_back(stream);
  }
  if (device != 0) return found;
  found.push_back(legacy_);
  for (const auto& weak : thread_streams_) {
    if (auto stream = weak.lock()) found.push_back(std::move(stream));
  }
  return found;
}

std::shared_ptr<Graph> Runtime::find_graph(GraphHandle graph) const {
  if (std::shared_ptr<Graph> whole = find_whole_graph(graph)) return whole;
  const auto body = bodies.find(graph);
  if (body == bodies.end()) return captures.find_graph(graph);
  std::shared_ptr<Graph> found = body->second.lock();
  return found == nullptr || found->is_lost() ? nullptr : found;
}

std::shared_ptr<Graph> Runtime::find_whole_graph(GraphHandle graph) const {
  const auto found = graphs.find(graph);
  return found == graphs.end() ? nullptr : found->second;
}

bool Runtime::is_idle(HostStream& stream) {
  if (queue != nullptr) {
    queue->run_some();
    const std::lock_guard lock(mutex);
    for (const OperationPtr& operation : before(stream)) {
      if (!queue->is_done(operation)) return false;
    }
    return true;
  }
  const std::unique_lock order(stream.order, std::try_to_lock);
  if (!order.owns_lock() || !stream.is_legacy()) return order.owns_lock();
  return std::unique_lock(legacy_gate_, std::try_to_lock).owns_lock();
}

Code Runtime::synchronize(HostStream& stream) {
  if (queue == nullptr) {
    return run_in_order(stream, [] { return Code::kSuccess; });
  }
  std::vector<OperationPtr> all;
  {
    const std::lock_guard lock(mutex);
    all = before(stream);
  }
  for (const OperationPtr& operation : all) {
    if (operation != nullptr) queue->wait(operation);
  }
  return queue->take_failure();
}

Code Runtime::synchronize(int device) {
  if (queue != nullptr) {
    queue->wait(device);
    return check_thoroughly(queue->take_failure());
  }
  std::vector<std::shared_ptr<HostStream>> found;
  {
    const std::lock_guard lock(mutex);
    found = streams_of(device);
  }
  for (const auto& stream : found) {
    if (const Code code = synchronize(*stream); !ok(code)) return code;
  }
  return Code::kSuccess;
}

Code Runtime::synchronize(const OperationPtr& operation) {
  if (operation == nullptr) return Code::kSuccess;
  queue->wait(operation);
  return queue->take_failure();
}

// Other devices are skipped: their work may wait for work that this thread enqueues next.
void Runtime::settle(std::optional<int> device) {
  if (queue == nullptr || !free_waits_) return;
  for (int id = device.value_or(0); id <= device.value_or(devices - 1); ++id)
    queue->wait(id);
}

Runtime::Turn::Turn(Runtime& runtime, HostStream& stream) {
  if (stream.is_legacy()) {
    order_ = std::unique_lock(stream.order);
    as_legacy_ = std::unique_lock(runtime.legacy_gate_);
    return;
  }
  if (orders_with_legacy(stream)) {
    // Locking the legacy stream's order briefly lets legacy work that already waits go first.
    std::unique_lock(runtime.legacy_->order).unlock();
    with_legacy_ = std::shared_lock(runtime.legacy_gate_);
  }
  order_ = std::unique_lock(stream.order);
}

namespace {

std::string name_of(StreamHandle stream) {
  if (stream == StreamHandle::kLegacy) return "the legacy stream";
  if (stream == StreamHandle::kPerThread) return "a per-thread stream";
  return str_format("stream {}", static_cast<std::uintptr_t>(stream) >> 32);
}

std::string describe(const Task& task) {
  std::string text = describe(*task.work);
  if (task.node != NodeHandle::kNull) {
    text = str_format("node {} of graph {}, {}", Graph::index_of(task.node),
                      static_cast<std::uintptr_t>(task.node) >> 32, text);
  }
  return str_format("{}, on {}", text, name_of(task.stream));
}

}  // namespace

// Source: CUDA Runtime API, Stream synchronization behavior. The legacy stream waits for all
// blocking streams, and they wait for it.
std::vector<OperationPtr> Runtime::before(const HostStream& stream) const {
  std::vector<OperationPtr> found{stream.last};
  if (stream.is_legacy()) {
    for (const auto& other : streams_of(stream.device)) {
      if (other->kind == StreamKind::kBlocking) found.push_back(other->last);
    }
  } else if (stream.kind == StreamKind::kBlocking && stream.device == legacy_->device) {
    found.push_back(legacy_->last);
  }
  return found;
}

OperationPtr Runtime::enqueue(HostStream& stream, std::shared_ptr<const Work> work,
                              std::vector<OperationPtr> more) {
  const std::vector<OperationPtr> own = before(stream);
  more.insert(more.end(), own.begin(), own.end());
  stream.last = queue->add({std::move(work), stream.number, stream.device, stream.handle}, more);
  return stream.last;
}

// Each node is queued separately, so that the branches of a graph mix with all other queued work.
OperationPtr Runtime::expand(const HostStream& stream, const std::shared_ptr<const Graph>& graph,
                             const std::vector<OperationPtr>& first) {
  std::vector<OperationPtr> made(graph->nodes().size());
  std::vector<OperationPtr> all = first;  // a launch of an empty graph waits, too
  for (const std::size_t index : graph->order()) {
    const Node& node = graph->nodes()[index];
    std::vector<OperationPtr> waits_for;
    for (const NodeHandle other : node.dependencies)
      waits_for.push_back(made[Graph::index_of(other)]);
    if (waits_for.empty()) waits_for = first;
    std::shared_ptr<const Work> work;  // null: waits only
    if (node.is_enabled) work = {graph, &node.work};
    made[index] = queue->add(
        {std::move(work), stream.number, stream.device, stream.handle, graph->node_handle(index)},
        waits_for);
    all.push_back(made[index]);
  }
  return queue->add({nullptr, stream.number, stream.device}, all);
}

Code Runtime::allocate_for(const Exec& exec) {
  const auto is_left = [&](const Exec::MemoryStep& step) {
    return !step.is_free && allocated.contains(step.memory->data);
  };
  if (!exec.frees_on_launch() && std::ranges::any_of(exec.memory_steps(), is_left))
    return Code::kInvalidValue;
  for (const Exec::MemoryStep& step : exec.memory_steps()) {
    if (step.is_free) {
      allocated.erase(step.memory->data);
    } else {
      allocated.insert_or_assign(step.memory->data, step.memory);
    }
  }
  return Code::kSuccess;
}

Code Runtime::enqueue_launch(HostStream& stream, Exec& exec) {
  Queued queued;
  {
    const std::lock_guard lock(mutex);
    std::vector<OperationPtr> first = before(stream);
    first.push_back(exec.last);  // one launch of an exec at a time
    queued.operation = expand(stream, exec.share(), first);
    stream.last = exec.last = queued.operation;
  }
  return submitted(queued);
}

// Source: CUDA Runtime API, API synchronization behavior. A copy from pageable memory may be
// staged. A copy to pageable memory may be synchronous; a copy between two host memories is.
Runtime::Queued Runtime::enqueue_work(HostStream& stream, Work work) {
  Queued queued;
  if (auto* const copy = std::get_if<CopyWork>(&work)) {
    const bool reads_pageable = !memory.owns(copy->source);
    const bool writes_pageable = !memory.owns(copy->destination);
    const bool is_eager = (reads_pageable || writes_pageable) && queue->is_eager();
    queued.is_synchronous = writes_pageable && (is_eager || reads_pageable);
    if (reads_pageable && is_eager) {
      const auto* const bytes = static_cast<const std::byte*>(copy->source);
      copy->staged = std::make_shared<const std::vector<std::byte>>(bytes, bytes + copy->bytes);
      copy->source = copy->staged->data();
    }
  }
  queued.operation = enqueue(stream, std::make_shared<const Work>(std::move(work)));
  return queued;
}

Code Runtime::submitted(const Queued& queued) {
  if (queued.is_synchronous || queue->is_inline()) return synchronize(queued.operation);
  queue->run_some_added();
  return Code::kSuccess;
}

Code Runtime::perform(const Task& task) {
  if (const auto* const conditional = std::get_if<ConditionalWork>(task.work.get())) {
    return run_bodies(*conditional, [&](const auto& body) { return perform(task, body); });
  }
  if (checker != nullptr) {
    if (std::string objection = checker->objection(*task.work); !objection.empty()) {
      checker->report(str_format("{}: {}", describe(task), objection));
      return Code::kIllegalAddress;
    }
  }
  ThreadState& thread = this_thread();
  thread.is_running_work = true;
  const Code code = run(*task.work);
  thread.is_running_work = false;
  if (checker == nullptr) return code;
  const std::string damage = checker->damage(/*is_thorough=*/false);
  if (damage.empty()) return code;
  checker->report(str_format("after {}: {}", describe(task), damage));
  return Code::kIllegalAddress;
}

// The nodes of a body run one after another.
Code Runtime::perform(const Task& conditional, const std::shared_ptr<const Graph>& body) {
  for (const std::size_t index : body->order()) {
    Task task = conditional;
    task.work = std::shared_ptr<const Work>(body, &body->nodes()[index].work);
    task.node = body->node_handle(index);
    if (const Code code = perform(task); !ok(code)) return code;
  }
  return Code::kSuccess;
}

// Finds damage that the checks after each work item missed.
Code Runtime::check_thoroughly(Code code) {
  if (checker == nullptr) return code;
  const std::string damage = checker->damage(/*is_thorough=*/true);
  if (damage.empty()) return code;
  checker->report(str_format("some time before the device was synchronized: {}", damage));
  return Code::kIllegalAddress;
}

}  // namespace cgtree::host
