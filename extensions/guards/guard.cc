// Keeps guards for the step of the thread, and finds pointers that would dangle.
#include "extensions/guards/guard.h"

#include <pthread.h>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/record/step.h"

namespace cgtree::detail {
namespace {

std::uintptr_t end_of_stack() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* begin = nullptr;
  std::size_t bytes = 0;
  const bool is_known = pthread_attr_getstack(&attributes, &begin, &bytes) == 0;
  (void)pthread_attr_destroy(&attributes);
  return is_known ? reinterpret_cast<std::uintptr_t>(begin) + bytes : 0;
}

// Returns an address among the words that lies between the frame of the caller and that of the
// step's capture, or 0. The stack grows down. The capture of Steps lies in the heap, so nothing is
// known of its variables.
std::uintptr_t find_on_stack(const void* words, std::size_t bytes, std::uintptr_t frame,
                             std::uintptr_t step) {
  if (step < frame || step >= end_of_stack()) return 0;
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= bytes; at += sizeof(std::uintptr_t)) {
    std::uintptr_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(words) + at, sizeof(word));
    if (word >= frame && word < step) return word;
  }
  return 0;
}

}  // namespace

bool keeps_guards() noexcept {
  return frame().guards != nullptr;
}

Guard::Answer keep(Guard guard) {
  GuardsOfStep& step = *frame().guards;
  if (guard.name.empty()) throw InvalidArgument("a guard needs a name");
  if (step.memory.is_checked) {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const std::uintptr_t found = find_on_stack(guard.function.get(), guard.bytes, here,
                                               reinterpret_cast<std::uintptr_t>(&step));
    if (found != 0) {
      throw InvalidArgument(str_format(
          "guard '{}' has the address of a variable on the stack of the step, {:#x}, which is gone "
          "when it is asked again: capture the variable by value, or what owns it",
          guard.name, found));
    }
  }
  return step.ask(std::move(guard));
}

}  // namespace cgtree::detail
