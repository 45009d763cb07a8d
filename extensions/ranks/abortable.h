// Abortable: a handle that one thread may end while others use it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/condition.h"
#include "base/mutex.h"

namespace cgtree {

// An Abortable frees a handle that is used on one thread and aborted on another. It starts a thread
// for this in its constructor, because freeing may wait for work that the aborting thread must end,
// and so that an abort cannot fail.
//
//   Abortable life([&] { library_abort(handle); });      // frees the handle
//   if (const Abortable::Use use = life.use()) ...       // the handle is there
//   life.abort("rank 1 has not come");                   // on any thread, does not wait
//   if (!life.end()) library_destroy(handle);
//
// Thread safety: any thread, except end() and the destructor.
class Abortable {
 public:
  struct EndUse {
    void operator()(Abortable* life) const noexcept { life->end_use(); }
  };
  // While a Use lives, the handle is not freed, unless the use lasts longer than the patience after
  // an abort: then it waits inside the library, and only the abort ends it.
  using Use = std::unique_ptr<Abortable, EndUse>;

  static constexpr std::chrono::milliseconds kPatience{1'000};

  // `free` is called at most once. Throws std::system_error if no thread can be started.
  explicit Abortable(std::function<void()> free, std::chrono::milliseconds patience = kPatience);
  ~Abortable() { (void)end(); }
  Abortable(const Abortable&) = delete;
  Abortable& operator=(const Abortable&) = delete;

  // Returns null if the handle was aborted.
  Use use() noexcept;
  // Forbids uses from now on; the handle is freed when those in progress have ended. The first
  // reason stays.
  void abort(std::string_view why) noexcept;
  bool is_aborted() const noexcept;
  std::string why() const;

  // Ends the thread; from now on abort() does nothing. Returns whether the handle was freed: after
  // an abort it waits for that. Requires: there are no uses.
  bool end() noexcept;

 private:
  void run();
  void end_use() noexcept;

  const std::function<void()> free_;
  const std::chrono::milliseconds patience_;
  mutable Mutex<LockRank::kLeaf> mutex_;
  Condition changed_;
  // Guarded by mutex_.
  int uses_ = 0;
  bool is_aborted_ = false;
  bool has_ended_ = false;
  std::string why_;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace cgtree
