// A profiler for tests: a library that NVTX loads because of NVTX_INJECTION64_PATH, and that
// records the ranges of all domains. nvtx_recorder_take() returns them.
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kMostEvents = 1 << 16;  // later ones are dropped

struct Event {
  bool is_push;
  std::string domain, text;
  std::uint64_t payload;
};

std::mutex mutex;
std::vector<Event> events;

void remember(Event event) {
  const std::lock_guard lock(mutex);
  if (events.size() < kMostEvents) events.push_back(std::move(event));
}

const std::string& name_of(nvtxDomainHandle_t domain) {
  return *reinterpret_cast<const std::string*>(domain);
}

// A domain lives as long as the process.
nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));
}
int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  remember({true, name_of(domain), event->message.ascii, event->payload.ullValue});
  return 0;
}
int NVTX_API pop(nvtxDomainHandle_t domain) {
  remember({false, name_of(domain), "", 0});
  return 0;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create_domain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

// Calls visit() for each event since the last call, in order, and drops the events.
__attribute__((visibility("default"))) void nvtx_recorder_take(
    void (*visit)(void* user, bool is_push, const char* domain, const char* text,
                  std::uint64_t payload),
    void* user) {
  std::vector<Event> taken;
  {
    const std::lock_guard lock(mutex);
    taken.swap(events);
  }
  for (const Event& event : taken)
    visit(user, event.is_push, event.domain.c_str(), event.text.c_str(), event.payload);
}

}  // extern "C"
