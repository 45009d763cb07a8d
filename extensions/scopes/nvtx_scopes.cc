// Looks for the library that passes NVTX ranges on.
#include "extensions/scopes/nvtx_scopes.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/log_event.h"
#include "extensions/scopes/scope_stack.h"

namespace cgtree {
namespace {

std::uint64_t open_range(const char* name, std::size_t bytes) {
  return of_thread<ScopeStack>().open({name, bytes});
}

void close_range(std::uint64_t scope) {
  of_thread<ScopeStack>().close(scope);
}

// The library must be known by its name: loading a profiler here would disturb NVTX.
bool connect() noexcept {
  const char* const path = std::getenv("NVTX_INJECTION64_PATH");
  if (path == nullptr) return false;
  const std::string_view name = path;
  if (!name.ends_with("libcgtree_nvtx.so")) return false;
  void* const library = dlopen(path, RTLD_NOW);
  auto* const function = library == nullptr ? nullptr : dlsym(library, "cgtree_nvtx_connect");
  if (function == nullptr) {
    const char* const why = dlerror();
    log_event(LogLevel::kWarn, "nvtx_ranges_are_no_scopes path=\"{}\" what=\"{}\"", path,
              why == nullptr ? "it has no cgtree_nvtx_connect" : why);
    return false;
  }
  using Connect = void (*)(decltype(&open_range), decltype(&close_range));
  reinterpret_cast<Connect>(function)(&open_range, &close_range);
  return true;
}

}  // namespace

void connect_nvtx_scopes() noexcept {
  [[maybe_unused]] static const bool is_connected = connect();
}

}  // namespace cgtree
