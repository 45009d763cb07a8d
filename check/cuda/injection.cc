// The library that CUDA loads: CUDA_INJECTION64_PATH=.../libcgtree_check.so program.
#include <cupti_callbacks.h>
#include <cupti_version.h>
#include <dlfcn.h>
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
#include "check/cuda/watch.h"
#include "check/reporter.h"
#include "check/stacks.h"

namespace cgtree::graph_check {
namespace {

// Of CUDA 12.0. Source: cupti_version.h.
constexpr std::uint32_t kLeastVersion = 18;

// A library that is loaded is taken first: PyTorch brings one, and two would not know of each
// other.
void* load() {
  constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
  for (const char* const name : kNames)
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return library;
  const char* const given = std::getenv("CGTREE_CHECK_CUPTI");
  for (const char* const path :
       {given != nullptr ? given : "", kNames[0], kNames[1], kNames[2],
        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", "/usr/local/cuda/lib64/libcupti.so"}) {
    void* const library = *path != '\0' ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library != nullptr) return library;
  }
  return nullptr;
}

template <typename Function>
bool find(void* library, const char* name, Function* function) noexcept {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// CUPTI's functions, from the library that the process has or finds.
class Cupti {
 public:
  // Loads the library and subscribes. On failure why_not() says why.
  Cupti(CUpti_CallbackFunc callback, void* user) {
    void* const library = load();
    if (library == nullptr) {
      why_not_ = "libcupti.so cannot be loaded: set CGTREE_CHECK_CUPTI to its path";
      return;
    }
    decltype(&cuptiSubscribe) subscribe = nullptr;
    decltype(&cuptiGetVersion) get_version = nullptr;
    std::uint32_t version = 0;
    if (!find(library, "cuptiSubscribe", &subscribe) ||
        !find(library, "cuptiGetVersion", &get_version) ||
        !find(library, "cuptiEnableCallback", &enable_)) {
      why_not_ = "libcupti.so lacks its functions for callbacks";
      return;
    }
    if (get_version(&version) != CUPTI_SUCCESS || version < kLeastVersion) {
      why_not_ =
          str_format("CUPTI {} is older than that of CUDA 12.0 ({})", version, kLeastVersion);
      return;
    }
    switch (const CUptiResult result = subscribe(&subscriber_, callback, user)) {
      case CUPTI_SUCCESS:
        return;
      case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
        why_not_ = "another tool has subscribed to CUPTI, which takes one at a time";
        return;
      default:
        why_not_ = str_format("cuptiSubscribe returned {}", static_cast<int>(result));
    }
  }

  // Returns "" if there are callbacks.
  const std::string& why_not() const noexcept { return why_not_; }
  // Has callbacks of these functions of the driver made, or not. Functions that CUPTI does not know
  // are left out.
  void enable(bool is_wanted, const std::vector<CUpti_CallbackId>& calls) noexcept {
    for (const CUpti_CallbackId call : calls)
      static_cast<void>(enable_(is_wanted ? 1 : 0, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, call));
  }

 private:
  std::string why_not_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  decltype(&cuptiEnableCallback) enable_ = nullptr;
};

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
                .unseen = {"addresses in memory of the device or in packed arguments"},
                .calls = {}};
    if (std::getenv("RMM_LOG_FILE") != nullptr) watch_.expect_blocks();
    reporter_ = new Reporter([this](bool is_end) { return report(is_end); });
    cupti_.enable(true, driver_calls(Calls::kGraphs));
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
  static void CUPTIAPI on_callback(void* watch, CUpti_CallbackDomain, CUpti_CallbackId id,
                                   const void* data) {
    static_cast<Watch*>(watch)->on_call(id, *static_cast<const CUpti_CallbackData*>(data));
  }

  Questions questions() {
    Questions questions = driver_questions();
    questions.watch = [this](Calls calls, bool is_wanted) {
      cupti_.enable(is_wanted, driver_calls(calls));
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
