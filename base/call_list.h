// CallList: a list of items that are called without a lock held.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/condition.h"
#include "base/mutex.h"

namespace cgtree {

// A CallList keeps items in the order in which they were added. No item is called after remove() of
// it has returned; so an item must not remove itself while it is called.
//
// Thread safety: all functions may be called from any thread.
template <typename Item>
class CallList {
 public:
  using Id = std::size_t;

  Id add(Item item) {
    const std::lock_guard lock(mutex_);
    entries_.push_back({++last_id_, std::move(item)});
    return last_id_;
  }

  // Removes an item, and waits for calls of it in progress. Requires: the id is in the list.
  void remove(Id id) noexcept {
    remove_if([id](const Entry& entry) { return entry.id == id; });
  }
  // Removes the item for which `is_wanted` returns true. Requires: there is exactly one.
  template <typename Predicate>
  void remove_item(Predicate is_wanted) noexcept {
    remove_if([&](const Entry& entry) { return is_wanted(entry.item); });
  }

  // Calls `function` with each item until it returns true. Items that are added meanwhile are
  // called too.
  template <typename Function>
  void call_until(Function function) {
    std::unique_lock lock(mutex_);
    auto entry = next_to_call(1);
    while (entry != entries_.end()) {
      ++entry->calls;
      Call call{*this, lock, *entry};
      lock.unlock();
      if (function(entry->item)) return;
      lock.lock();
      entry = next_to_call(entry->id + 1);
    }
  }

 private:
  struct Entry {
    Id id;
    Item item;
    std::size_t calls = 0;
    bool is_leaving = false;
  };

  // A Call is one call of an item in progress. The entry stays in the list until it ends.
  struct Call {
    CallList& list;
    std::unique_lock<Mutex<LockRank::kLeaf>>& lock;
    Entry& entry;
    ~Call() {
      if (!lock.owns_lock()) lock.lock();
      if (--entry.calls == 0) list.call_ended_.notify_all();
    }
  };

  template <typename Predicate>
  void remove_if(Predicate is_wanted) noexcept {
    std::unique_lock lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return !entry.is_leaving && is_wanted(entry);
    });
    CGTREE_CHECK(found != entries_.end());
    found->is_leaving = true;
    call_ended_.wait(lock, [&] { return found->calls == 0; });
    entries_.erase(found);
  }
  typename std::list<Entry>::iterator next_to_call(Id id) {
    return std::find_if(entries_.begin(), entries_.end(),
                        [&](const Entry& entry) { return entry.id >= id && !entry.is_leaving; });
  }

  Mutex<LockRank::kLeaf> mutex_;  // guards all below
  Condition call_ended_;
  std::list<Entry> entries_;  // by id
  Id last_id_ = 0;
};

}  // namespace cgtree
