// Stands between a program and libcuda.so: LD_PRELOAD=.../libcgtree_check.so program.
//
// Programs get the driver's functions by dlsym(), by cuGetProcAddress(), as the CUDA runtime does,
// or by linking with libcuda.so. This library has these symbols, and hands out wrappers that tell a
// Watch of calls. An address that is none of a function in calls.inc stays as it is, so that the
// ABI of each wrapper is known.
//
// Source: the CUDA driver API, "Driver Entry Point Access". cuGetProcAddress() returns the
// addresses of the symbols that libcuda.so exports (seen with driver 580).
#define __CUDA_API_VERSION_INTERNAL  // declares all versions of functions
#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <tuple>

#include "check/cuda/calls.h"
#include "check/cuda/watch.h"

namespace cgtree::graph_check {
namespace {

using Dlsym = void* (*)(void*, const char*) noexcept;
constexpr std::size_t kCallCount = std::size(kCalls);

// Wrappers are called before constructors have run: all is initialized at compile time. There is no
// lock: a caller may have the linker's, by dlopen(), which dlsym() takes.
struct Driver {
  std::atomic<Watch*> watch{nullptr};
  std::atomic<bool> is_resolved{false};
  std::array<std::atomic<void*>, kCallCount> functions{};  // of libcuda.so
};
constinit Driver driver;

constexpr const char* kDriver = "libcuda.so.1";
// The version that every C library has: a lookup that fails would allocate memory.
#if defined(__x86_64__)
constexpr const char* kOfDlsym = "GLIBC_2.2.5";
#elif defined(__aarch64__)
constexpr const char* kOfDlsym = "GLIBC_2.17";
#endif

Dlsym real_dlsym() noexcept {
  static constinit std::atomic<Dlsym> real{nullptr};
  if (real == nullptr) real = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", kOfDlsym));
  return real;
}

// Notes the functions of libcuda.so, if it is loaded by that name. Leaves no dlerror().
bool resolve(const char* name) noexcept {
  if (driver.is_resolved.load(std::memory_order_acquire)) return true;
  void* const library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  for (std::size_t i = 0; i < kCallCount && library != nullptr; ++i)
    driver.functions[i] = real_dlsym()(library, kCalls[i].name);
  if (library != nullptr) driver.is_resolved.store(true, std::memory_order_release);
  dlerror();
  return library != nullptr;
}

void* replacement(void* address) noexcept;

template <std::size_t kIndex, typename Function>
struct Wrapper;

template <std::size_t kIndex, typename... Parameters>
struct Wrapper<kIndex, CUresult(Parameters...)> {
  static constexpr const Call& kCall = kCalls[kIndex];

  static CUresult CUDAAPI call(Parameters... parameters) {
    resolve(kDriver);  // for a program that is linked with libcuda.so, and has asked for no address
    const auto real =
        reinterpret_cast<CUresult (*)(Parameters...)>(driver.functions[kIndex].load());
    if (real == nullptr) return CUDA_ERROR_NOT_FOUND;
    if constexpr (kCall.does == Does::kGetAddress) {
      const CUresult result = real(parameters...);
      void** const address = std::get<1>(std::tie(parameters...));
      if (result == CUDA_SUCCESS && address != nullptr) *address = replacement(*address);
      return result;
    }
    if constexpr (kCall.does == Does::kStart) driver.watch = watch_of_process();
    Watch* const watch = driver.watch.load(std::memory_order_acquire);
    if (watch == nullptr || !watch->wants(kCall.does)) return real(parameters...);
    const void* const addresses[] = {&parameters...};
    std::uint64_t shared = 0;
    watch->on_call({kCall, addresses, &shared, nullptr});
    const CUresult result = real(parameters...);
    const int code = result;
    watch->on_call({kCall, addresses, &shared, &code});
    return result;
  }
};

}  // namespace
}  // namespace cgtree::graph_check

// Each symbol of libcuda.so jumps to its wrapper (entry_points.S): a function of its name would
// need the parameters a second time. Its second name is this library's alone.
#define SYMBOL(name, type)                                                                        \
  extern "C" __attribute__((visibility("hidden"))) char cgtree_check_jump_##name[];               \
  extern "C" __attribute__((visibility("hidden"), used)) void* const cgtree_check_at_##name =     \
      reinterpret_cast<void*>(&cgtree::graph_check::Wrapper<cgtree::graph_check::index_of(#name), \
                                                            decltype(::type)>::call);
#define CALL(name, ...) SYMBOL(name, name)
#define BOTH(name, suffix, ...) CALL(name) SYMBOL(name##suffix, name)
#include "check/cuda/calls.inc"
#undef BOTH
#undef CALL

namespace cgtree::graph_check {
namespace {

#define CALL(name, ...) cgtree_check_jump_##name,
#define BOTH(name, suffix, ...) CALL(name) CALL(name##suffix)
constexpr char* kWrappers[] = {
#include "check/cuda/calls.inc"
};
#undef BOTH
#undef CALL

// Returns the wrapper of a function of the driver, or another address as it is.
void* replacement(void* address) noexcept {
  for (std::size_t i = 0; i < kCallCount && address != nullptr; ++i)
    if (driver.functions[i].load(std::memory_order_relaxed) == address) return kWrappers[i];
  return address;
}

// Looks behind this library, which alone has the symbols that the driver lacks.
void* dlsym_behind(void*, const char* name) noexcept {
  void* const address = real_dlsym()(RTLD_NEXT, name);
  asm volatile("");  // no tail call, whose caller would be the program
  return address;
}

bool has_driver(const char* name) noexcept {
  return resolve(kDriver) && driver.functions[index_of(name)] != nullptr;
}

// Returns the driver's function of a name, as the program is to have it.
void* dlsym_of_driver(void* library, const char* name) noexcept {
  void* const address = real_dlsym()(library, name);
  Dl_info found = {}, own = {};
  if (dladdr(address, &found) == 0 || dladdr(&driver, &own) == 0) return address;
  if (found.dli_fbase == own.dli_fbase)
    return has_driver(name) ? address : dlsym_behind(library, name);
  // Another library may have a function by this name.
  const std::string_view path = found.dli_fname;
  if (!resolve(kDriver) && path.substr(path.rfind('/') + 1).starts_with("libcuda.so"))
    resolve(found.dli_fname);
  return replacement(address);
}

// Returns the function that answers dlsym(library, name). The real one alone sees the caller,
// behind which RTLD_NEXT looks.
extern "C" __attribute__((visibility("hidden"), used)) Dlsym cgtree_check_dlsym(
    void* library, const char* name) noexcept {
  if (name[0] != 'c' || name[1] != 'u' || index_of(name) == kCallCount) return real_dlsym();
  if (library != RTLD_NEXT) return dlsym_of_driver;
  const bool is_there = has_driver(name) || dlsym_behind(library, name) != nullptr;
  return is_there ? real_dlsym() : dlsym_behind;
}

}  // namespace
}  // namespace cgtree::graph_check
