// Reads and freezes a function, and removes it when its handle ends.
#include "cgtree/function_handle.h"

#include <utility>

#include "cgtree/tree/tree_manager.h"

namespace cgtree {

FunctionHandle::FunctionHandle(std::shared_ptr<TreeManager> manager,
                               FunctionState& function) noexcept
    : manager_(std::move(manager)), function_(&function) {
}

FunctionHandle::~FunctionHandle() {
  if (manager_ != nullptr) manager_->remove_function(*function_);
}

FunctionHandle::FunctionHandle(FunctionHandle&& other) noexcept
    : manager_(std::move(other.manager_)), function_(other.function_) {
}

FunctionHandle& FunctionHandle::operator=(FunctionHandle&& other) noexcept {
  std::swap(manager_, other.manager_);
  std::swap(function_, other.function_);
  return *this;
}

const std::string& FunctionHandle::name() const noexcept {
  return function_->name;
}

FunctionStats FunctionHandle::stats() const {
  return manager_->stats_of(*function_);
}

void FunctionHandle::freeze(WhenFrozen when) const noexcept {
  function_->frozen.set(when);
}

void FunctionHandle::unfreeze() const noexcept {
  function_->frozen.set(std::nullopt);
}

bool FunctionHandle::is_frozen() const noexcept {
  return function_->frozen.get().has_value();
}

std::optional<CallOutcome> FunctionHandle::last_outcome() const noexcept {
  return function_->last_outcome.get();
}

}  // namespace cgtree
