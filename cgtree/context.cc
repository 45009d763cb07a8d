// Passes the calls of a Context on to its TreeManager, and opens the step of an EagerScope.
#include "cgtree/context.h"

#include <optional>

#include "base/error.h"
#include "cgtree/record/step.h"
#include "cgtree/tree/tree_manager.h"
#include "interop/device/device.h"

namespace cgtree {

Context::Context(Device device, ContextOptions options) {
  (void)device_api(device);  // throws if there is no such device
  manager_ = TreeManager::make(device, std::move(options));
}

Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

Device Context::device() const noexcept {
  return manager_->memory().device();
}

StreamRef Context::stream() const noexcept {
  return manager_->memory().stream();
}

void Context::mark_step() {
  manager_->mark_step();
}

std::size_t Context::release_captured(std::optional<std::uint64_t> capture) {
  return manager_->release_captured(capture);
}

std::size_t Context::trim(bool to_device) {
  return manager_->trim(to_device);
}

void Context::keep(const Tensor& output) {
  manager_->keep_across_steps(output);
}

std::size_t Context::release_memory() {
  return manager_->release_memory();
}

void Context::declare(std::string name, const void* address, std::size_t bytes) {
  manager_->declare(std::move(name), {reinterpret_cast<std::uintptr_t>(address), bytes});
}

void Context::undeclare(const std::string& name) {
  manager_->undeclare(name);
}

std::size_t Context::invalidate(const void* address, std::size_t bytes) {
  return manager_->invalidate(nullptr, {reinterpret_cast<std::uintptr_t>(address), bytes});
}

ContextStats Context::stats() const {
  return manager_->stats();
}

void Context::write_dot(std::uint32_t node, const std::string& path) const {
  manager_->write_dot(node, path);
}

struct EagerScope::Open {
  explicit Open(TreeManager& manager) : visit(manager.door()) {
    const StreamRef captured = visit.ask_foreign_capture();
    if (!captured) visit.begin();
    step.emplace(manager.memory(), captured ? captured : manager.memory().stream(),
                 StepAllocations::Kind::kEager);
  }
  ~Open() { step->finish(); }  // then the visit puts the caller's stream behind the context's

  Visit visit;
  std::optional<StepScope> step;
};

EagerScope::EagerScope(TreeManager& manager) {
  if (!StepScope::active()) {
    open_ = std::make_unique<Open>(manager);
    return;
  }
  if (StepScope::innermost() != &manager.memory()) {
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
