// The users of a source of segments: who may be asked to give some back.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "allocator/segments/call_list.h"
#include "base/check.h"

namespace cgtree {

class SegmentUser;

// Threads: any.
class SegmentUsers {
 public:
  // Once each.
  void attach(SegmentUser& user) {
    const std::lock_guard lock(mutex_);
    const auto entry = ids_.emplace(&user, 0).first;
    try {
      entry->second = users_.add(&user);
    } catch (...) {
      ids_.erase(entry);
      throw;
    }
  }

  // Waits for a call in progress.
  void detach(SegmentUser& user) noexcept { users_.remove(take_id(user)); }

  // Calls `function` with each user until it returns true; no lock is held meanwhile.
  template <typename Function>
  void call_until(Function function) {
    users_.call_until(std::move(function));
  }

 private:
  using Users = CallList<SegmentUser*>;

  Users::Id take_id(SegmentUser& user) noexcept {
    const std::lock_guard lock(mutex_);
    const auto entry = ids_.find(&user);
    CGTREE_CHECK(entry != ids_.end());
    const Users::Id id = entry->second;
    ids_.erase(entry);
    return id;
  }

  Users users_;
  std::mutex mutex_;  // guards ids_
  std::map<SegmentUser*, Users::Id> ids_;
};

}  // namespace cgtree
