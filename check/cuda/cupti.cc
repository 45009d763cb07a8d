// Finds libcupti, and subscribes to it.
#include "check/cuda/cupti.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/format.h"

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

}  // namespace

Cupti::Cupti(CUpti_CallbackFunc callback, void* user) {
  void* const library = load();
  if (library == nullptr) {
    why_not_ = "libcupti.so cannot be loaded: set CGTREE_CHECK_CUPTI to its path";
    return;
  }
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiGetVersion) get_version = nullptr;
  if (!find(library, "cuptiSubscribe", &subscribe) ||
      !find(library, "cuptiGetVersion", &get_version) ||
      !find(library, "cuptiEnableCallback", &enable_)) {
    why_not_ = "libcupti.so lacks its functions for callbacks";
    return;
  }
  if (get_version(&version_) != CUPTI_SUCCESS || version_ < kLeastVersion) {
    why_not_ = str_format("CUPTI {} is older than that of CUDA 12.0 ({})", version_, kLeastVersion);
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

void Cupti::enable(bool is_wanted, CUpti_CallbackDomain domain,
                   std::span<const CUpti_CallbackId> calls) noexcept {
  for (const CUpti_CallbackId call : calls)
    static_cast<void>(enable_(is_wanted ? 1 : 0, subscriber_, domain, call));
}

}  // namespace cgtree::graph_check
