// libcgtree_nvtx.so: ranges of NVTX become scopes of cgtree (docs/scopes.md).
//
// NVTX loads the library that NVTX_INJECTION64_PATH names, and tells it of ranges. This library
// passes ranges of threads (push and pop, of all domains) to the cgtree in the process, which may
// be linked statically or be part of a Python extension: cgtree connects itself. A profiler that
// shows ranges is also an injected library, and a process has only one.
#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using Open = std::uint64_t (*)(const char* name, std::size_t bytes);
using Close = void (*)(std::uint64_t scope);

// The cgtree that connected last: a process may have one in a program and one in Python.
struct Cgtree {
  Open open;
  Close close;
};
std::atomic<const Cgtree*> g_cgtree{nullptr};

struct Range {
  nvtxDomainHandle_t domain;
  std::uint64_t scope;
  Close close;  // of the cgtree that opened the scope; null: no cgtree had connected
};
thread_local std::vector<Range> t_ranges;  // open ranges

// Returns the depth of the range in its domain.
int push(nvtxDomainHandle_t domain, std::string_view name) {
  int depth = 0;
  for (const Range& range : t_ranges)
    if (range.domain == domain) ++depth;
  Range made{domain, 0, nullptr};
  if (const Cgtree* const cgtree = g_cgtree.load(std::memory_order_acquire)) {
    made.scope = cgtree->open(name.data(), name.size());
    made.close = cgtree->close;
  }
  t_ranges.push_back(made);
  return depth;
}

// Ranges of one domain nest; those of several may cross.
int pop(nvtxDomainHandle_t domain) {
  for (std::size_t i = t_ranges.size(); i-- > 0;) {
    const Range range = t_ranges[i];
    if (range.domain != domain) continue;
    t_ranges.erase(t_ranges.begin() + static_cast<std::ptrdiff_t>(i));
    if (range.close != nullptr) range.close(range.scope);
    int depth = 0;
    for (const Range& one : t_ranges)
      if (one.domain == domain) ++depth;
    return depth;
  }
  return -1;  // no range is open
}

std::string utf8(const wchar_t* text) {
  std::string bytes;
  for (; text != nullptr && *text != 0; ++text) {
    const auto code = static_cast<std::uint32_t>(*text);
    const auto tail = [&](int shift) { bytes += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
    if (code < 0x80) {
      bytes += static_cast<char>(code);
    } else if (code < 0x800) {
      bytes += static_cast<char>(0xc0 | code >> 6);
      tail(0);
    } else if (code < 0x10000) {
      bytes += static_cast<char>(0xe0 | code >> 12);
      tail(6);
      tail(0);
    } else {
      bytes += static_cast<char>(0xf0 | (code >> 18 & 7));
      tail(12);
      tail(6);
      tail(0);
    }
  }
  return bytes;
}

std::string_view view(const char* text) {
  return text == nullptr ? std::string_view() : std::string_view(text);
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  if (event == nullptr) return push(domain, std::string_view());
  switch (event->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      return push(domain, view(event->message.ascii));
    case NVTX_MESSAGE_TYPE_UNICODE:
      return push(domain, std::string_view(utf8(event->message.unicode)));
    case NVTX_MESSAGE_TYPE_REGISTERED:
      if (event->message.registered == nullptr) return push(domain, std::string_view());
      return push(domain, std::string_view(
                              *reinterpret_cast<const std::string*>(event->message.registered)));
    default:
      return push(domain, std::string_view());
  }
}

int NVTX_API push_event(const nvtxEventAttributes_t* event) {
  return push(nullptr, event);
}
int NVTX_API push_ascii(const char* text) {
  return push(nullptr, view(text));
}
int NVTX_API push_wide(const wchar_t* text) {
  return push(nullptr, std::string_view(utf8(text)));
}
int NVTX_API pop_range() {
  return pop(nullptr);
}
int NVTX_API push_of_domain(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  return push(domain, event);
}
int NVTX_API pop_of_domain(nvtxDomainHandle_t domain) {
  return pop(domain);
}

// Domains and registered names live as long as the process. cgtree's own domain is not passed on:
// its ranges are calls, not scopes.
nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  if (view(name) == "cgtree") return nullptr;
  return reinterpret_cast<nvtxDomainHandle_t>(new char);
}
nvtxDomainHandle_t NVTX_API create_domain_wide(const wchar_t* name) {
  return create_domain(utf8(name).c_str());
}
nvtxStringHandle_t NVTX_API name_string(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(new std::string(view(text)));
}
nvtxStringHandle_t NVTX_API name_string_wide(nvtxDomainHandle_t, const wchar_t* text) {
  return reinterpret_cast<nvtxStringHandle_t>(new std::string(utf8(text)));
}

// A Table is the list of places for the functions of a module.
class Table {
 public:
  Table(const NvtxExportTableCallbacks& callbacks, NvtxCallbackModule module) {
    if (callbacks.GetModuleFunctionTable(module, &table_, &size_) == 0) size_ = 0;
  }
  template <typename Function>
  void set(unsigned int place, Function* function) {
    if (place < size_) *table_[place] = reinterpret_cast<NvtxFunctionPointer>(function);
  }

 private:
  NvtxFunctionTable table_ = nullptr;
  unsigned int size_ = 0;
};

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr) return 0;
  Table core(*callbacks, NVTX_CB_MODULE_CORE);
  core.set(NVTX_CBID_CORE_RangePushEx, push_event);
  core.set(NVTX_CBID_CORE_RangePushA, push_ascii);
  core.set(NVTX_CBID_CORE_RangePushW, push_wide);
  core.set(NVTX_CBID_CORE_RangePop, pop_range);
  Table of_domains(*callbacks, NVTX_CB_MODULE_CORE2);
  of_domains.set(NVTX_CBID_CORE2_DomainRangePushEx, push_of_domain);
  of_domains.set(NVTX_CBID_CORE2_DomainRangePop, pop_of_domain);
  of_domains.set(NVTX_CBID_CORE2_DomainCreateA, create_domain);
  of_domains.set(NVTX_CBID_CORE2_DomainCreateW, create_domain_wide);
  of_domains.set(NVTX_CBID_CORE2_DomainRegisterStringA, name_string);
  of_domains.set(NVTX_CBID_CORE2_DomainRegisterStringW, name_string_wide);
  return 1;
}

// Called once by each cgtree. The functions open and close scopes of the calling thread.
__attribute__((visibility("default"))) void cgtree_nvtx_connect(Open open, Close close) {
  g_cgtree.store(new Cgtree{open, close}, std::memory_order_release);
}

}  // extern "C"
