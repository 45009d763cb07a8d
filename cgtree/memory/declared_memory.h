// DeclaredMemory: ranges of foreign memory that recordings may refer to, because the owner promises
// to tell when the memory is freed.
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
  // Returns whether recordings may refer to a range that is no longer declared: the name belonged
  // to another range. Throws InvalidArgument for an empty name, a range without bytes or address,
  // and a range that overlaps one of another name; nothing has changed then.
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
