// Refuses what a body may not do, by name.
#include "cgtree/flow/body.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace cgtree {
namespace {

// Of no allocation of the step itself: which of those become outputs is noted by number.
constexpr std::uint32_t kFirstInBodies = std::uint32_t{1} << 30;

constinit thread_local BodyMemory* t_memory = nullptr;

std::uint32_t* count_of_step() noexcept {
  StepScope* const step = StepScope::current();
  return step == nullptr ? nullptr : &step->allocations().count;
}

}  // namespace

BodyScope::BodyScope(const Body& body) noexcept
    : body_(body), count_(count_of_step()), counted_(count_ == nullptr ? 0 : *count_) {
  if (count_ != nullptr) *count_ = std::max(*count_, kFirstInBodies);
}

BodyScope::~BodyScope() {
  if (count_ != nullptr) *count_ = counted_;
}

void BodyScope::eager_break(EagerBreak) {
  throw InvalidArgument(fmt::format(
      "{} calls eager_break(): a body runs on the device, without the host; call it before or "
      "behind the branch or loop",
      body_.name));
}

void BodyScope::refuse_draw() const {
  throw InvalidArgument(fmt::format(
      "{} uses a generator: how often a body runs, and so how many random numbers a replay draws, "
      "is known on the device alone; draw before the branch or loop",
      body_.name));
}

BodyMemory::BodyMemory(const Body& body, Of of, const StreamFork* fork) noexcept
    : body_(body),
      of_(of),
      fork_(fork),
      outer_(t_memory),
      base_(outer_ != nullptr ? outer_->base_ : current_allocator()) {
  CGTREE_CHECK(base_ != nullptr);
  t_memory = this;
}

BodyMemory::~BodyMemory() {
  t_memory = outer_;
  for (BodyMemory* around = outer_; around != nullptr; around = around->outer_) {
    if (around->fork_ == nullptr || around->fork_->is_joined()) continue;
    around->handed_on_.splice(around->handed_on_.end(), made_);
    around->handed_on_.splice(around->handed_on_.end(), handed_on_);
    return;
  }
}

bool BodyMemory::is_current() noexcept {
  return t_memory != nullptr;
}

void BodyMemory::check_nothing_kept() const {
  const auto kept = std::ranges::count_if(
      made_, [](const StorageRef& storage) { return storage && storage->references() > 1; });
  if (kept == 0) return;
  throw InvalidArgument(fmt::format(
      "{} keeps {} of the tensors it has made: they are scratch memory of the body; make what is "
      "used outside before the branch or loop, and write there",
      body_.name, kept));
}

StorageRef BodyMemory::allocate(std::size_t bytes) {
  made_.emplace_back();  // before what it is for
  return made_.back() = base_->allocate(bytes);
}

void BodyMemory::made_elsewhere(const StorageRef& storage) {
  base_->made_elsewhere(storage);
}

bool BodyMemory::keep(const StorageRef& storage) {
  return of_ == Of::kTrial || base_->keep(storage);
}

}  // namespace cgtree
