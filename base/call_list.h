// CallList: a list of items that are called without holding a lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/condition.h"
#include "base/mutex.h"

namespace cgtree {

// A CallList keeps items in the order in which they were added. No item is called after its
// remove() has returned. An item that its own call removes lives until its calls have ended.
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

  // Removes an item, and waits for calls of it in progress on other threads. Requires: the id is in
  // the list.
  void remove(Id id) noexcept {
    remove_if([id](const Entry& entry) { return entry.id == id; });
  }
  // Removes the item for which `is_wanted` returns true. Requires: there is exactly one.
  template <typename Predicate>
  void remove_item(Predicate is_wanted) noexcept {
    remove_if([&](const Entry& entry) { return is_wanted(entry.item); });
  }

  // Calls `function` with each item until it returns true. Items added meanwhile are called too.
  template <typename Function>
  void call_until(Function function) {
    std::unique_lock lock(mutex_);
    auto entry = next_to_call(1);
    while (entry != entries_.end()) {
      Call call(*this, lock, entry);
      lock.unlock();
      if (function(entry->item)) return;
      lock.lock();
      entry = next_to_call(entry->id + 1);
    }
  }

 private:
  struct Call;
  struct Entry {
    Id id;
    Item item;
    Call* calls = nullptr;  // calls in progress
    bool is_leaving = false;
    bool is_removed = false;  // by one of its calls; the last one erases it
  };
  using Entries = std::list<Entry>;

  // A Call is one call of an item in progress. The entry stays in the list until the call ends.
  struct Call {
    // Requires: the lock is held.
    Call(CallList& of, std::unique_lock<Mutex<LockRank::kLeaf>>& held,
         typename Entries::iterator called) noexcept
        : list(of), lock(held), entry(called), next(called->calls) {
      entry->calls = this;
    }
    ~Call() {
      if (!lock.owns_lock()) lock.lock();
      Call** place = &entry->calls;
      while (*place != this)
        place = &(*place)->next;
      *place = next;
      if (entry->is_removed && entry->calls == nullptr) {
        list.entries_.erase(entry);
      } else {
        list.call_ended_.notify_all();
      }
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    CallList& list;
    std::unique_lock<Mutex<LockRank::kLeaf>>& lock;
    const typename Entries::iterator entry;
    const std::thread::id thread = std::this_thread::get_id();
    Call* next;
  };

  static bool is_called_elsewhere(const Entry& entry) noexcept {
    const Call* call = entry.calls;
    while (call != nullptr && call->thread == std::this_thread::get_id())
      call = call->next;
    return call != nullptr;
  }

  template <typename Predicate>
  void remove_if(Predicate is_wanted) noexcept {
    std::unique_lock lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return !entry.is_leaving && is_wanted(entry);
    });
    CGTREE_CHECK(found != entries_.end());
    found->is_leaving = true;
    call_ended_.wait(lock, [&] { return !is_called_elsewhere(*found); });
    found->is_removed = true;
    if (found->calls == nullptr) entries_.erase(found);
  }
  typename Entries::iterator next_to_call(Id id) {
    return std::find_if(entries_.begin(), entries_.end(),
                        [&](const Entry& entry) { return entry.id >= id && !entry.is_leaving; });
  }

  Mutex<LockRank::kLeaf> mutex_;  // guards all below
  Condition call_ended_;
  Entries entries_;  // by id
  Id last_id_ = 0;
};

}  // namespace cgtree
