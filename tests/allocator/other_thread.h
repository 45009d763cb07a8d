// OtherThread: a thread that makes calls for a test, one after the other, and lives between them.
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

  // Makes the call there and waits for it. Throws what it throws.
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

  // Ends the thread, and with it what belongs to it.
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
