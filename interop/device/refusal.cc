// The list of the Refusals of each thread.
#include "interop/device/refusal.h"

#include <new>
#include <utility>

#include "base/frame.h"
#include "interop/device/code.h"

namespace cgtree {
Refusals::Refusals() noexcept : next_(std::exchange(frame().refusals, this)) {
}

// Captures of two contexts may end in the order in which they began.
Refusals::~Refusals() {
  Refusals** place = &frame().refusals;
  while (*place != nullptr && *place != this)
    place = &(*place)->next_;
  if (*place != nullptr) *place = next_;
}

void Refusals::note(Code code, std::string_view what) noexcept {
  Refusals* const innermost = frame().refusals;
  if (innermost == nullptr || innermost->first_) return;
  try {
    innermost->first_.emplace(Refusal{code, std::string(what)});
  } catch (const std::bad_alloc&) {
    innermost->first_.emplace(Refusal{code, {}});
  }
}

}  // namespace cgtree
