// The watch of a process, its reports, and the functions that hooks of Python call.
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "check/blocks.h"
#include "check/cuda/interpose.h"
#include "check/cuda/watch.h"
#include "check/reporter.h"
#include "check/stacks.h"

namespace cgtree::graph_check {
namespace {

// All that watches a process. It is never destroyed: calls come until the process has ended.
class Injection {
 public:
  Injection()
      : watch_(driver_questions(),
               [this](const Finding& finding, const Stacks& stacks) { tell(finding, stacks); }) {
    process_ = {.pid = getpid(),
                .program = program_invocation_short_name,
                .unseen = {"addresses in memory of the device or in packed arguments"},
                .calls = {}};
    if (std::getenv("RMM_LOG_FILE") != nullptr) watch_.expect_blocks();
    reporter_ = new Reporter([this](bool is_end) { return report(is_end); });
  }

  Watch& watch() noexcept { return watch_; }
  // `ask` hands over blocks, and may be null.
  void set_source(void (*ask)()) {
    ask_ = ask;
    watch_.expect_blocks();
  }
  void add(std::string_view source, const Blocks& blocks) {
    watch_.add_blocks(source, blocks.events, blocks.kept);
    has_blocks_ = true;
  }

 private:
  void tell(const Finding& finding, const Stacks& stacks) {
    const nlohmann::json json = to_json(finding, stacks);
    reporter_->tell(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  Report report(bool is_end) {
    if (is_end) {
      watch_.stop();
    } else if (void (*const ask)() = ask_) {
      ask();
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
    if (path == nullptr) return;
    std::ifstream file(path, std::ios::binary);
    if (!file) return;
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    add("RMM", read_rmm_log(text, now()));
  }

  Watch watch_;
  Process process_;
  Reporter* reporter_ = nullptr;
  std::atomic<void (*)()> ask_{nullptr};
  std::atomic<bool> has_blocks_{false};
};

std::atomic<Injection*> injection{nullptr};

}  // namespace

Watch* watch_of_process() noexcept {
  static Watch* const watch = []() -> Watch* {
    try {
      injection = new Injection;
      pthread_atfork(nullptr, nullptr, [] { injection.load()->watch().stop(); });
      return &injection.load()->watch();
    } catch (const std::exception& error) {
      say(error.what());
      return nullptr;
    }
  }();
  return watch;
}

}  // namespace cgtree::graph_check

using cgtree::graph_check::injection;

// For cgtree_check/hooks/sitecustomize.py. Each does nothing where CUDA has not started.

// Takes the events of PyTorch's allocator, as read_torch_blocks() reads them.
extern "C" __attribute__((visibility("default"))) void cgtree_check_blocks(const char* text,
                                                                           std::size_t bytes) {
  auto* const to = injection.load();
  if (to == nullptr) return;
  try {
    to->add("PyTorch", cgtree::graph_check::read_torch_blocks({text, bytes}));
  } catch (const std::exception& error) {
    cgtree::graph_check::say(error.what());
  }
}

// `ask` is called before a report that SIGUSR1 asks for, and calls cgtree_check_blocks().
extern "C" __attribute__((visibility("default"))) void cgtree_check_set_source(void (*ask)()) {
  if (auto* const to = injection.load()) to->set_source(ask);
}

// As set_python_frames().
extern "C" __attribute__((visibility("default"))) void cgtree_check_python_frames(
    const char* lines) {
  cgtree::graph_check::set_python_frames(lines);
}
