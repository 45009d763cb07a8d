// The watch of a process, its reports, and the functions that hooks of Python call.
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "check/blocks.h"
#include "check/cuda/watch.h"
#include "check/reporter.h"
#include "check/stacks.h"

namespace cgtree::graph_check {
namespace {

// All that watches a process. It is never destroyed: calls come until the process has ended.
class Injection {
 public:
  Injection()
      : watch_(driver_questions(), [this](const Finding& finding, const Stacks& stacks) {
          const auto how = nlohmann::json::error_handler_t::replace;
          reporter_->tell(to_json(finding, stacks).dump(-1, ' ', false, how));
        }) {
    process_ = {.pid = getpid(),
                .program = program_invocation_short_name,
                .unseen = {"addresses in memory of the device or in packed arguments"},
                .calls = {}};
    if (std::getenv("RMM_LOG_FILE") != nullptr) watch_.expect_blocks();
    reporter_ = new Reporter([this](bool is_end) { return report(is_end); });
  }

  Watch& watch() noexcept { return watch_; }
  // `ask` hands over blocks, and may be null. The one before is not called any more.
  void set_source(void (*ask)()) {
    const std::lock_guard lock(asking_);
    ask_ = ask;
    watch_.expect_blocks();
  }
  void add(std::string_view source, const Blocks& blocks) {
    watch_.add_blocks(source, blocks.events, blocks.kept);
    has_blocks_ = true;
  }

 private:
  Report report(bool is_end) {
    if (is_end) {
      watch_.stop();
    } else if (const std::lock_guard lock(asking_); ask_ != nullptr) {
      ask_();
    }
    add_rmm_log();
    Process process = process_;
    if (!has_blocks_)
      process.unseen.emplace_back("memory that a caching allocator takes back and keeps");
    return watch_.report(std::move(process));
  }

  // The log that RMM writes by itself where this variable names one.
  void add_rmm_log() {
    const char* const path = std::getenv("RMM_LOG_FILE");
    struct stat there = {};  // a device, say, would be read for ever
    if (path == nullptr || stat(path, &there) != 0 || !S_ISREG(there.st_mode)) return;
    std::ifstream file(path, std::ios::binary);
    if (!file) return;
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    add("RMM", read_rmm_log(text, now()));
  }

  Watch watch_;
  Process process_;
  Reporter* reporter_ = nullptr;
  std::mutex asking_;
  void (*ask_)() = nullptr;
  std::atomic<bool> has_blocks_{false};
};

std::atomic<Injection*> injection{nullptr};

}  // namespace

Watch* watch_of_process() noexcept {
  static Watch* const watch = []() -> Watch* {
    try {
      auto* const made = new Injection;
      injection = made;
      pthread_atfork(nullptr, nullptr, [] {  // another thread may have had the lock
        if (auto* const of_parent = injection.exchange(nullptr)) of_parent->watch().stop();
      });
      return &made->watch();
    } catch (const std::exception& error) {
      say(error.what());
      return nullptr;
    }
  }();
  return watch;
}

}  // namespace cgtree::graph_check

using cgtree::graph_check::injection;
#define EXPORT extern "C" __attribute__((visibility("default")))

// For cgtree_check/hooks/sitecustomize.py. Each does nothing where CUDA has not started.

// Takes the events of PyTorch's allocator, as read_torch_blocks() reads them.
EXPORT void cgtree_check_blocks(const char* text, std::size_t bytes) try {
  if (auto* const to = injection.load())
    to->add("PyTorch", cgtree::graph_check::read_torch_blocks({text, bytes}));
} catch (const std::exception& error) {
  cgtree::graph_check::say(error.what());
}

// `ask` is called before a report that SIGUSR1 asks for, and calls cgtree_check_blocks().
EXPORT void cgtree_check_set_source(void (*ask)()) {
  if (auto* const to = injection.load()) to->set_source(ask);
}

// As set_python_frames().
EXPORT void cgtree_check_python_frames(const char* lines) {
  cgtree::graph_check::set_python_frames(lines);
}
