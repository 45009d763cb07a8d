// Stacks: call stacks as numbers, which are read as text in a report alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "check/finding.h"

namespace cgtree::graph_check {

// Thread safety: every function may be called from any thread.
class Stacks {
 public:
  // Returns the number of this thread's stack. Equal stacks have one number. Frames of Python are
  // part of it if this thread holds the interpreter's lock, or has given them by
  // set_python_frames(). The first call loads the unwinder, and may wait for the linker.
  StackId take();
  // Returns the frames of a stack, the innermost first: those of Python, then those of machine code
  // without the ones of CUDA and of this library. May wait for the linker.
  std::vector<std::string> frames(StackId stack) const;

 private:
  struct Stack {
    std::vector<void*> addresses;
    std::string python;  // a line for each frame

    bool operator==(const Stack&) const = default;
  };

  mutable std::mutex mutex_;
  std::deque<Stack> stacks_;  // by number, less one; a stack stays as it is
  std::unordered_multimap<std::uint64_t, StackId> by_hash_;
};

// Gives the frames of Python of this thread, a line each, the innermost first, for the calls that
// follow. An empty text ends it. For callers that give up the interpreter's lock before CUDA is
// called.
void set_python_frames(const char* lines);

}  // namespace cgtree::graph_check
