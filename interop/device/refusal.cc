// The list of the Refusals that live on each thread.
#include "interop/device/refusal.h"

#include <new>
#include <utility>

namespace cgtree {
namespace {

constinit thread_local Refusals* t_first = nullptr;

}  // namespace

Refusals::Refusals() noexcept : next_(std::exchange(t_first, this)) {
}

// Captures of two contexts may end in the order in which they began.
Refusals::~Refusals() {
  Refusals** place = &t_first;
  while (*place != nullptr && *place != this)
    place = &(*place)->next_;
  if (*place != nullptr) *place = next_;
}

void Refusals::note(Code code, std::string_view what) noexcept {
  if (t_first == nullptr || t_first->first_) return;
  try {
    t_first->first_.emplace(Refusal{code, std::string(what)});
  } catch (const std::bad_alloc&) {
    t_first->first_.emplace(Refusal{code, {}});
  }
}

}  // namespace cgtree
