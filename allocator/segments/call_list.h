// Whom to call, without a lock held while they are called.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <list>
#include <mutex>
#include <utility>

namespace cgtree {

// Threads: any. An item is not called any more once remove() has returned; so an item must not
// remove itself while it is called.
template <typename Item>
class CallList {
 public:
  using Id = std::size_t;

  Id add(Item item) {
    const std::lock_guard lock(mutex_);
    entries_.push_back({++last_id_, std::move(item)});
    return last_id_;
  }

  // Waits for calls in progress. The id must be in the list.
  void remove(Id id) noexcept {
    std::unique_lock lock(mutex_);
    const auto found = first_from(id);
    found->is_leaving = true;
    call_ended_.wait(lock, [&] { return found->calls == 0; });
    entries_.erase(found);
  }

  // Calls `function` with each item until it returns true. Items added meanwhile are called, too.
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

  // Ends the call however it ends; the entry stays until then.
  struct Call {
    CallList& list;
    std::unique_lock<std::mutex>& lock;
    Entry& entry;
    ~Call() {
      if (!lock.owns_lock()) lock.lock();
      if (--entry.calls == 0) list.call_ended_.notify_all();
    }
  };

  typename std::list<Entry>::iterator first_from(Id id) {
    return std::find_if(entries_.begin(), entries_.end(),
                        [&](const Entry& entry) { return entry.id >= id; });
  }
  typename std::list<Entry>::iterator next_to_call(Id id) {
    auto entry = first_from(id);
    while (entry != entries_.end() && entry->is_leaving)
      ++entry;
    return entry;
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable call_ended_;
  std::list<Entry> entries_;  // by id
  Id last_id_ = 0;
};

}  // namespace cgtree
