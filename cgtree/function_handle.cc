// Reads and freezes a function, and removes it when its handle is destroyed.
#include "cgtree/function_handle.h"

#include <utility>

#include "cgtree/tree/engine.h"

namespace cgtree {

FunctionHandle::FunctionHandle(std::shared_ptr<Engine> engine, FunctionState& function) noexcept
    : engine_(std::move(engine)), function_(&function) {
}

FunctionHandle::~FunctionHandle() {
  if (engine_ != nullptr) engine_->remove_function(*function_);
}

FunctionHandle::FunctionHandle(FunctionHandle&& other) noexcept
    : engine_(std::move(other.engine_)), function_(other.function_) {
}

FunctionHandle& FunctionHandle::operator=(FunctionHandle&& other) noexcept {
  std::swap(engine_, other.engine_);
  std::swap(function_, other.function_);
  return *this;
}

const std::string& FunctionHandle::name() const noexcept {
  return function_->name;
}

FunctionStats FunctionHandle::stats() const {
  return engine_->stats_of(*function_);
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
