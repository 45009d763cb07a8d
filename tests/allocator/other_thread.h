// OtherThread: a thread that makes calls for a test, one after another, and stays alive in between.
#pragma once

#include <exception>
#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace cgtree {

class OtherThread {
 public:
  OtherThread() = default;
  ~OtherThread() { end(); }
  OtherThread(const OtherThread&) = delete;
  OtherThread& operator=(const OtherThread&) = delete;

  // Makes the call on the thread and waits for it. Rethrows its exception.
  template <typename Call>
  void run(Call&& call) {
    std::promise<void> done;
    give([&] {
      try {
        call();
        done.set_value();
      } catch (...) {
        done.set_exception(std::current_exception());
      }
    });
    done.get_future().get();
  }

  // Ends the thread, and its thread-local objects.
  void end() {
    if (!thread_.joinable()) return;
    give({});
    thread_.join();
  }

 private:
  using Job = std::function<void()>;  // an empty one ends the thread

  void give(Job job) {
    next_.set_value(std::move(job));
    if (thread_.joinable()) return;
    thread_ = std::thread([this] { work(); });
  }
  void work() {
    for (;;) {
      const Job job = next_.get_future().get();
      next_ = {};
      if (!job) return;
      job();
    }
  }

  std::promise<Job> next_;
  std::thread thread_;
};

}  // namespace cgtree
