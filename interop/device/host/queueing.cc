// Turns what streams are asked to do into work that waits for other work.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "interop/device/host/dot.h"
#include "interop/device/host/runtime.h"

namespace cgtree::host {
namespace {

std::string name_of(StreamHandle stream) {
  if (stream == StreamHandle::kLegacy) return "the legacy stream";
  if (stream == StreamHandle::kPerThread) return "a per-thread stream";
  return fmt::format("stream {}", static_cast<std::uintptr_t>(stream) >> 32);
}

std::string describe(const Task& task) {
  std::string text = describe(*task.work);
  if (task.node != NodeHandle::kNull) {
    text = fmt::format("node {} of graph {}, {}", Graph::index_of(task.node),
                       static_cast<std::uintptr_t>(task.node) >> 32, text);
  }
  return fmt::format("{}, on {}", text, name_of(task.stream));
}

}  // namespace

// Source of the legacy stream's rule: CUDA Runtime API, Stream synchronization behavior. It waits
// for all blocking streams, and they wait for it.
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
  stream.last = queue->add({std::move(work), stream.lane, stream.device, stream.handle}, more);
  return stream.last;
}

// Each node is work of its own, so that the branches of a graph mix with all else that is queued.
OperationPtr Runtime::expand(const HostStream& stream,
                             const std::shared_ptr<const Program>& program,
                             const std::vector<OperationPtr>& first) {
  std::vector<OperationPtr> made(program->steps.size());
  std::vector<OperationPtr> all = first;  // an empty graph waits, too
  for (const std::size_t index : program->order) {
    const Program::Step& step = program->steps[index];
    std::vector<OperationPtr> waits_for;
    for (const std::size_t other : step.after)
      waits_for.push_back(made[other]);
    if (waits_for.empty()) waits_for = first;
    if (step.child != nullptr) {
      made[index] = expand(stream, step.child, waits_for);
    } else {
      std::shared_ptr<const Work> work;  // a node that is not enabled is only a place
      if (step.is_enabled) work = std::shared_ptr<const Work>(program, &step.work);
      const auto node =
          static_cast<NodeHandle>(static_cast<std::uintptr_t>(program->source) + 1 + index);
      made[index] =
          queue->add({std::move(work), stream.lane, stream.device, stream.handle, node}, waits_for);
    }
    all.push_back(made[index]);
  }
  return queue->add({nullptr, stream.lane, stream.device}, all);
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

// Source: CUDA Runtime API, API synchronization behavior. A copy from pageable memory may be staged
// and one to it may be synchronous; one between two host memories is.
Runtime::Queued Runtime::enqueue_work(HostStream& stream, Work work) {
  Queued queued;
  if (auto* const copy = std::get_if<CopyWork>(&work)) {
    const bool reads_pageable = !memory.owns(copy->source);
    const bool writes_pageable = !memory.owns(copy->destination);
    const bool hurries = (reads_pageable || writes_pageable) && queue->hurries();
    queued.is_synchronous = writes_pageable && (hurries || reads_pageable);
    if (reads_pageable && hurries) {
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
  queue->nudge(WorkQueue::Nudge::kAdded);
  return Code::kSuccess;
}

Code Runtime::perform(const Task& task) {
  if (strict != nullptr) {
    if (std::string objection = strict->objection(*task.work); !objection.empty()) {
      findings.add(fmt::format("{}: {}", describe(task), objection));
      return Code::kIllegalAddress;
    }
  }
  ThreadState& thread = this_thread();
  thread.is_running_work = true;
  const Code code = run(*task.work);
  thread.is_running_work = false;
  if (strict == nullptr) return code;
  const std::string damage = strict->damage(/*is_thorough=*/false);
  if (damage.empty()) return code;
  findings.add(fmt::format("after {}: {}", describe(task), damage));
  return Code::kIllegalAddress;
}

// What the glances have missed.
Code Runtime::look_thoroughly(Code code) {
  if (strict == nullptr) return code;
  const std::string damage = strict->damage(/*is_thorough=*/true);
  if (damage.empty()) return code;
  findings.add(fmt::format("some time before the device was synchronized: {}", damage));
  return Code::kIllegalAddress;
}

}  // namespace cgtree::host
