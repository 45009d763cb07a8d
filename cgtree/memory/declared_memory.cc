// Keeps the declared ranges disjoint.
#include "cgtree/memory/declared_memory.h"

#include "base/error.h"
#include "base/format.h"
#include "base/room.h"

namespace cgtree {
namespace {

std::string text_of(const std::string& name, Range range) {
  return str_format("'{}' ({} bytes at {:#x})", name, range.bytes, range.address);
}

}  // namespace

bool DeclaredMemory::declare(std::string name, Range range) {
  if (name.empty()) throw InvalidArgument("declare() of memory without a name: messages use it");
  if (range.address == 0 || range.bytes == 0 || range.end() < range.address) {
    throw InvalidArgument(
        str_format("declare() of {}: give the address of its first byte, and how many there are",
                   text_of(name, range)));
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [other, declared] : ranges_) {
    if (other == name || !declared.overlaps(range)) continue;
    throw InvalidArgument(
        str_format("declare() of {}, which overlaps with {}: undeclare that one, or declare the "
                   "parts that lie apart",
                   text_of(name, range), text_of(other, declared)));
  }
  make_room(released_);
  const auto [found, is_new] = ranges_.try_emplace(std::move(name), range);
  if (is_new || found->second == range) return false;
  released_.push_back(std::exchange(found->second, range));
  return true;
}

void DeclaredMemory::undeclare(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(name);
  if (found == ranges_.end()) {
    throw InvalidArgument(
        str_format("undeclare() of '{}': nothing of that name is declared", name));
  }
  released_.push_back(found->second);
  ranges_.erase(found);
}

std::vector<std::pair<std::string, Range>> DeclaredMemory::list() const {
  const std::lock_guard lock(mutex_);
  return {ranges_.begin(), ranges_.end()};
}

std::vector<Range> DeclaredMemory::take_released() {
  const std::lock_guard lock(mutex_);
  return std::exchange(released_, {});
}

}  // namespace cgtree
