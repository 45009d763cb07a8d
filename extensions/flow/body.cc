// Names the body in errors of work that a body must not do.
#include "extensions/flow/body.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "extensions/flow/condition_kernels.h"

namespace cgtree {
namespace {

// A number that no allocation of the step itself has: the step notes by number which of its
// allocations become outputs.
constexpr std::uint32_t kFirstInBodies = std::uint32_t{1} << 30;

// Requires: a step is open.
bool& is_in_body() noexcept {
  return StepScope::current()->allocations().is_in_body;
}

}  // namespace

void FlowDraws::reserve(const std::int32_t* round) {
  round_ = round;
  for (const Generator& generator : generators_)
    blocks_.push_back(generator.reserve(1));
}

BodyScope::BodyScope(const Body& body, std::optional<std::int32_t> round) : body_(body) {
  if (StepScope* const step = StepScope::current()) {
    std::uint32_t& count = step->allocations().count;
    uncounted_.emplace(count, std::max(count, kFirstInBodies));
  }
  for (std::size_t i = 0; i < body.draws.blocks_.size(); ++i) {
    const PhiloxRange& call = body.draws.blocks_[i];
    Draws& draws = made_.emplace_back(Draws{body.draws.generators_[i].sequence(), {}, {}});
    if (!round) {
      const StreamRef stream = current_stream();
      draws.place = empty({sizeof(PhiloxPosition)}, DType::kUInt8);
      launch_begin_draws(stream, call, body.draws.round_,
                         reinterpret_cast<PhiloxPosition*>(draws.place.address()));
      note_use(draws.place.storage(), stream);
    } else if (call.origin() == nullptr) {
      draws.first = draws_of_round(call.block(0), *round);
    } else {
      throw InvalidArgument(str_format(
          "{} draws on a stream that the recording of the step does not capture", body.name));
    }
  }
}

void BodyScope::eager_break(EagerBreak) {
  throw InvalidArgument(str_format(
      "{} calls eager_break(): a body runs on the device, without the host; call it before or "
      "behind the branch or loop",
      body_.name));
}

PhiloxRange BodyScope::reserve(const PhiloxSequenceRef& sequence, std::uint64_t blocks) {
  const auto found = std::ranges::find(made_, sequence, &Draws::sequence);
  if (found == made_.end()) {
    throw InvalidArgument(str_format(
        "{} uses a generator that its branch or loop was not given: pass it there, and to each "
        "branch and loop around that one, so that they take as much of it whatever way is taken",
        body_.name));
  }
  const std::uint64_t before = std::exchange(found->blocks, found->blocks + blocks);
  if (found->place.defined()) {
    return {reinterpret_cast<const PhiloxPosition*>(found->place.address()), before};
  }
  expect_no_capture();
  return PhiloxRange({found->first.seed, found->first.offset + before});
}

void BodyScope::refuse_position() const {
  throw InvalidArgument(str_format(
      "{} asks for the position of a generator, or sets it: how often a body runs, and so what "
      "that is, is known on the device alone; do it before or behind the branch or loop",
      body_.name));
}

BodyMemory::BodyMemory(const Body& body, const StreamFork* fork) noexcept
    : body_(body),
      fork_(fork),
      outer_(frame().body),
      base_(outer_ != nullptr ? outer_->base_ : current_allocator()) {
  CGTREE_CHECK(base_ != nullptr);
  frame().body = this;
  if (fork_ != nullptr) was_in_body_ = std::exchange(is_in_body(), true);
}

BodyMemory::~BodyMemory() {
  frame().body = outer_;
  if (fork_ != nullptr) is_in_body() = was_in_body_;
  const Restored<bool> now = free_at_once();
  for (BodyMemory* around = outer_; around != nullptr; around = around->outer_) {
    if (around->fork_ == nullptr || around->fork_->is_joined()) continue;
    around->handed_on_.splice(around->handed_on_.end(), made_);
    around->handed_on_.splice(around->handed_on_.end(), handed_on_);
    return;
  }
  made_.clear();
  handed_on_.clear();
}

Restored<bool> BodyMemory::free_at_once() noexcept {
  return {is_in_body(), false};
}

bool BodyMemory::is_current() noexcept {
  return frame().body != nullptr;
}

void BodyMemory::check_nothing_kept() const {
  const auto kept = std::ranges::count_if(
      made_, [](const StorageRef& storage) { return storage && storage->references() > 1; });
  if (kept == 0) return;
  throw InvalidArgument(str_format(
      "{} keeps {} of the tensors it has made: they are scratch memory of the body; make what is "
      "used outside before the branch or loop, and write there",
      body_.name, kept));
}

// Without a fork, the step itself frees in order.
bool BodyMemory::is_one_chain() const noexcept {
  for (const BodyMemory* body = this; body != nullptr; body = body->outer_) {
    if (body->fork_ != nullptr && !body->fork_->is_joined()) return false;
  }
  return true;
}

StorageRef BodyMemory::allocate(std::size_t bytes) {
  if (is_one_chain()) {
    const Restored<bool> now = free_at_once();
    handed_on_.clear();
    made_.remove_if([](const StorageRef& storage) { return storage->references() == 1; });
  }
  std::list<StorageRef> made(1);  // first, because it may throw
  made.front() = base_->allocate(bytes);
  made_.splice(made_.end(), made);
  return made_.back();
}

void BodyMemory::made_elsewhere(const StorageRef& storage) {
  base_->made_elsewhere(storage);
}

// A trial keeps nothing, and uses nothing.
bool BodyMemory::keep(const StorageRef& storage) {
  return frame().is_trial || base_->keep(storage);
}

bool is_warming_up() noexcept {
  StepScope* const step = StepScope::current();
  return step != nullptr && step->allocations().kind == StepAllocations::Kind::kWarmUp;
}

}  // namespace cgtree
