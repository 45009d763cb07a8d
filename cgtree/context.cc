// Passes the calls of a Context to its engine, and opens the step of an EagerScope.
#include "cgtree/context.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/record/step.h"
#include "cgtree/tree/engine.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree {

Context::Context(Device device, ContextOptions options) {
  (void)device_api(device);  // throws if there is no such device
  engine_ = Engine::make(device, std::move(options));
}

Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

Device Context::device() const noexcept {
  return engine_->memory->device();
}

StreamRef Context::stream() const noexcept {
  return engine_->memory->stream();
}

void Context::mark_step() {
  const Entry entry(engine_->gate);
  if (engine_->memory->mark_step()) engine_->drop_stale();
  engine_->tree.go_to_root();
}

void Context::keep(const Tensor& output) {
  const Entry entry(engine_->gate);
  if (!output.defined()) throw InvalidArgument("keep() of a null tensor");
  engine_->memory->keep_across_steps(*output.storage());
}

std::size_t Context::release_captured(std::optional<std::uint64_t> capture) {
  const Entry entry(engine_->gate);
  return engine_->memory->release_captured(capture);
}

std::size_t Context::trim(bool to_device) {
  return engine_->trim(to_device);
}

std::size_t Context::release_memory() {
  ContextMemory& memory = *engine_->memory;
  Entry entry(engine_->gate);
  const StreamRef stream = memory.stream();
  // In a step of another context, the thread's stream is the stream of that step.
  const bool is_in_step = StepScope::active();
  if (is_in_step ? stream.is_capturing() : static_cast<bool>(entry.ask_foreign_capture())) {
    throw_code(Code::kStreamCaptureUnsupported,
               "release_memory() while the stream of the context is captured");
  }
  if (!is_in_step) entry.begin();
  {
    const RelaxedCapture relaxed(stream.api().graphs());
    memory.stream().synchronize();
  }
  const std::size_t before = memory.reserved_bytes();
  while (!engine_->tree.nodes().empty()) {
    Node& node = *engine_->tree.nodes().back();
    const bool has_rebound = std::ranges::any_of(node.recording.rebinds, &RebindChoice::is_rebound);
    // The captures of two sessions prove one recording that serves all sessions.
    node.key->released += node.function->is_callers_work && has_rebound ? 2 : 1;
    engine_->drop(node, "release_memory()");
  }
  for (const auto& function : engine_->tree.functions())
    for (const auto& [hash, keys] : function->keys)
      for (const auto& key : keys)
        key->forget_guards();
  memory.give_back_unused();
  return before - memory.reserved_bytes();
}

void Context::declare(std::string name, const void* address, std::size_t bytes) {
  const Range range{reinterpret_cast<std::uintptr_t>(address), bytes};
  if (engine_->memory->declared()->declare(std::move(name), range)) engine_->gate.request_upkeep();
}

void Context::undeclare(const std::string& name) {
  engine_->memory->declared()->undeclare(name);
  engine_->gate.request_upkeep();
}

std::size_t Context::invalidate(const void* address, std::size_t bytes) {
  return engine_->invalidate(nullptr, {reinterpret_cast<std::uintptr_t>(address), bytes});
}

void Context::synchronize() const {
  try {
    stream().synchronize();
  } catch (const DeviceError& error) {
    if (!engine_->gate.enter()) throw;  // the thread that is inside meets the same error
    engine_->extensions.after(
        {.kind = CallEvent::kDeviceError, .what = error.what(), .code = error.code()});
    engine_->gate.leave();
    throw;
  }
}

ContextStats Context::stats() const {
  return engine_->stats();
}

void Context::write_dot(std::uint32_t id, const std::string& path) const {
  const Inspection inspection(engine_->gate);  // a replay patches the graph that is written here
  const Node* const node = engine_->tree.find(id);
  if (node == nullptr) {
    throw InvalidArgument(str_format(
        "there is no node {}: snapshot_json() lists the {} there are, and some may have been "
        "evicted",
        id, engine_->tree.nodes().size()));
  }
  const Recording& recording = node->recording;
  check(recording.exec.api().write_dot(recording.graph.handle(), path.c_str()),
        str_format("write the graph of node {} to \"{}\"", id, path));
}

struct EagerScope::Open {
  explicit Open(Engine& engine) : entry(engine.gate) {
    const StreamRef captured = entry.ask_foreign_capture();
    if (!captured) entry.begin();
    step.emplace(*engine.memory, captured ? captured : engine.memory->stream(),
                 StepAllocations::Kind::kEager);
  }
  ~Open() { step->finish(); }  // then the entry orders the caller's stream after the context's

  Entry entry;
  std::optional<StepScope> step;
};

EagerScope::EagerScope(Engine& engine) {
  if (!StepScope::active()) {
    open_ = std::make_unique<Open>(engine);
    return;
  }
  if (StepScope::innermost() != &*engine.memory) {
    throw InvalidArgument(
        "Context::eager() of one context inside a step function of another, whose stream and "
        "memory "
        "the body would use: call eager() of that context, or do it before or after");
  }
  if (!current_stream().is_capturing()) return;
  throw_code(Code::kStreamCaptureUnsupported, "Context::eager() inside a step function");
}

EagerScope::~EagerScope() = default;

}  // namespace cgtree
