// Context passes calls on to its TreeManager.
#include "cgtree/context.h"

#include "cgtree/tree/tree_manager.h"
#include "interop/device/device.h"

namespace cgtree {

Context::Context(Device device, ContextOptions options) {
  (void)device_api(device);  // throws if there is no such device
  manager_ = std::make_shared<TreeManager>(device, std::move(options));
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

ContextStats Context::stats() const {
  return manager_->stats();
}

std::string Context::snapshot_json() const {
  return manager_->snapshot_json();
}

void Context::write_dot(std::uint32_t node, const std::string& path) const {
  manager_->write_dot(node, path);
}

}  // namespace cgtree
