// The library that CUDA loads: CUDA_INJECTION64_PATH=.../libcgtree_check.so program.
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "check/blocks.h"
#include "check/cuda/cupti.h"
#include "check/cuda/watch.h"
#include "check/reporter.h"
#include "check/stacks.h"

namespace cgtree::graph_check {
namespace {

// All that watches a process. It is never destroyed: callbacks come until the process has ended.
class Injection {
 public:
  Injection()
      : watch_(questions(),
               [this](const Finding& finding, const Stacks& stacks) { tell(finding, stacks); }),
        cupti_(&on_callback, &watch_) {
    if (!cupti_.why_not().empty()) {
      say(cupti_.why_not() + "; the program runs on without it");
      return;
    }
    process_ = {.pid = getpid(),
                .program = program_invocation_short_name,
                .cuda = str_format("CUPTI {}", cupti_.version()),
                .unseen = {"addresses in memory of the device or in packed arguments"},
                .calls = {}};
    reporter_ = new Reporter([this](bool is_end) { return report(is_end); });
    cupti_.enable(true, CUPTI_CB_DOMAIN_DRIVER_API, driver_calls(/*are_work=*/false));
  }

  Watch& watch() noexcept { return watch_; }
  // `ask` hands over blocks, and may be null.
  void set_source(void (*ask)()) noexcept { ask_ = ask; }
  void add(std::string_view source, const Blocks& blocks) {
    watch_.add_blocks(source, blocks.events, blocks.kept);
    has_blocks_ = true;
  }

 private:
  static void CUPTIAPI on_callback(void* watch, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                   const void* data) {
    static_cast<Watch*>(watch)->on_call(domain, id, data);
  }

  Questions questions() {
    Questions questions = driver_questions();
    questions.watch_work = [this](bool is_wanted) {
      cupti_.enable(is_wanted, CUPTI_CB_DOMAIN_DRIVER_API, driver_calls(/*are_work=*/true));
      cupti_.enable(is_wanted, CUPTI_CB_DOMAIN_RUNTIME_API, runtime_work_calls());
    };
    return questions;
  }

  void tell(const Finding& finding, const Stacks& stacks) {
    if (reporter_ == nullptr) return;
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
  Cupti cupti_;
  Process process_;
  Reporter* reporter_ = nullptr;
  std::atomic<void (*)()> ask_{nullptr};
  std::atomic<bool> has_blocks_{false};
};

std::atomic<Injection*> injection{nullptr};

}  // namespace
}  // namespace cgtree::graph_check

using cgtree::graph_check::injection;

// The C++ library that is linked statically refers to it; glibc has it since 2.36. Nothing here
// draws random numbers.
extern "C" std::uint32_t arc4random() noexcept {
  return 0;
}

// Called by the driver when CUDA starts. Returning 0 would be a failure of the program's.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  static const bool is_made = [] {
    try {
      injection = new cgtree::graph_check::Injection;
      pthread_atfork(nullptr, nullptr, [] { injection.load()->watch().stop(); });
    } catch (const std::exception& error) {
      cgtree::graph_check::say(error.what());
    }
    return true;
  }();
  return is_made ? 1 : 0;
}

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
