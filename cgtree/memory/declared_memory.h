// DeclaredMemory: ranges of others' memory that recordings may refer to, because its owner has said
// that it will tell when the memory goes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "allocator/pool/block.h"
#include "base/mutex.h"

namespace cgtree {

// Thread safety: any thread.
class DeclaredMemory {
 public:
  // Returns whether recordings may refer to memory that is not declared any more: the name was that
  // of another range. Throws InvalidArgument for a name that is empty, a range without bytes or
  // address, and one that overlaps with a range of another name; then nothing has changed.
  bool declare(std::string name, Range range);
  // Throws InvalidArgument if there is no such name.
  void undeclare(const std::string& name);

  std::vector<std::pair<std::string, Range>> list() const;
  // Returns the ranges that were undeclared since the last call.
  std::vector<Range> take_released();

 private:
  mutable Mutex<LockRank::kDeclared> mutex_;
  std::map<std::string, Range> ranges_;
  std::vector<Range> released_;
};

}  // namespace cgtree
