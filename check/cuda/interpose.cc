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
#include <mutex>
#include <tuple>
#include <type_traits>

#include "check/cuda/calls.h"
#include "check/cuda/watch.h"

namespace cgtree::graph_check {
namespace {

using Dlsym = void* (*)(void*, const char*) noexcept;
constexpr std::size_t kCallCount = std::size(kCalls);

// Wrappers are called before constructors have run: all is initialized at compile time.
struct Driver {
  std::atomic<Watch*> watch{nullptr};
  std::atomic<bool> is_resolved{false};
  std::mutex mutex;
  std::array<std::atomic<void*>, kCallCount> functions{};  // of libcuda.so
};
constinit Driver driver;

// The version that every C library has: a lookup that fails would allocate memory.
#if defined(__x86_64__)
constexpr const char* kOfDlsym = "GLIBC_2.2.5";
#elif defined(__aarch64__)
constexpr const char* kOfDlsym = "GLIBC_2.17";
#endif

Dlsym real_dlsym() noexcept {
  static const auto real = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", kOfDlsym));
  return real;
}

// Notes the functions of libcuda.so, if it is loaded by that name.
void resolve(const char* name) noexcept {
  void* const library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  const std::lock_guard lock(driver.mutex);
  if (library == nullptr || driver.is_resolved) return;
  for (std::size_t i = 0; i < kCallCount; ++i)
    driver.functions[i] = real_dlsym()(library, kCalls[i].name);
  driver.is_resolved = true;
}

// The watch, if a call of this kind matters to it now.
Watch* watch_of(Does does) noexcept {
  Watch* const watch = driver.watch.load(std::memory_order_acquire);
  return watch != nullptr && watch->wants(does) ? watch : nullptr;
}

// Returns whether the parameters are those that an effect names: words, the stream of work.
template <typename... Parameters>
constexpr bool has_parameters(const Call& call) noexcept {
  const std::size_t sizes[] = {sizeof(Parameters)...};
  const bool are_streams[] = {std::is_same_v<Parameters, CUstream>...};
  for (const std::size_t at : {call.first, call.second, call.third})
    if (at != Call::kNone && (at >= sizeof...(Parameters) || sizes[at] != sizeof(void*)))
      return false;
  const bool is_of_stream = call.does == Does::kWork || call.does == Does::kOrder;
  return !is_of_stream || call.first == Call::kNone || are_streams[call.first];
}

void* replacement(void* address) noexcept;

template <std::size_t kIndex, typename Function>
struct Wrapper;

template <std::size_t kIndex, typename... Parameters>
struct Wrapper<kIndex, CUresult(Parameters...)> {
  static constexpr const Call& kCall = kCalls[kIndex];
  static_assert(has_parameters<Parameters...>(kCall));

  static CUresult CUDAAPI call(Parameters... parameters) {
    // A program that is linked with libcuda.so calls without having asked for an address.
    if (!driver.is_resolved.load(std::memory_order_acquire)) resolve("libcuda.so.1");
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
    Watch* const watch = watch_of(kCall.does);
    if (watch == nullptr) return real(parameters...);
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

// Each symbol of libcuda.so jumps to its wrapper: a function of its name would need the parameters
// a second time.
#if defined(__x86_64__)
#define JUMP(target) "endbr64\n jmp *" target "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(target) "adrp x16, " target "\n ldr x16, [x16, :lo12:" target "]\n br x16\n"
#endif
#define SYMBOL(name, type)                                                                        \
  extern "C" __attribute__((visibility("hidden"), used)) void* const cgtree_check_at_##name =     \
      reinterpret_cast<void*>(&cgtree::graph_check::Wrapper<cgtree::graph_check::index_of(#name), \
                                                            decltype(::type)>::call);             \
  asm(".text\n.globl " #name "\n.type " #name ", %function\n" #name                               \
      ":\n" JUMP("cgtree_check_at_" #name));

#define CALL(name, ...) SYMBOL(name, name)
#define BOTH(name, suffix, ...) CALL(name) SUFFIXED(name##suffix, name)
#define SUFFIXED(name, type) SYMBOL(name, type)
#include "check/cuda/calls.inc"
#undef BOTH
#undef CALL

namespace cgtree::graph_check {
namespace {

#define CALL(name, ...) &cgtree_check_at_##name,
#define BOTH(name, suffix, ...) CALL(name) CALL(name##suffix)
constexpr void* const* kWrappers[] = {
#include "check/cuda/calls.inc"
};
#undef BOTH
#undef CALL

// Returns the wrapper of a function of the driver, or another address as it is.
void* replacement(void* address) noexcept {
  for (std::size_t i = 0; i < kCallCount && address != nullptr; ++i)
    if (driver.functions[i].load(std::memory_order_relaxed) == address) return *kWrappers[i];
  return address;
}

// Returns the driver's function of a name, as the program is to have it.
void* dlsym_of_driver(void* library, const char* name) noexcept {
  void* const address = real_dlsym()(library, name);
  Dl_info found = {};
  Dl_info own = {};
  if (driver.is_resolved || dladdr(address, &found) == 0 || dladdr(&driver, &own) == 0)
    return replacement(address);
  // Without libcuda.so this library alone has the symbol. The lookup fails, as without it.
  if (found.dli_fbase == own.dli_fbase) return real_dlsym()(RTLD_NEXT, name);
  resolve(found.dli_fname);
  return replacement(address);
}

// Returns the function that answers dlsym(library, name).
extern "C" __attribute__((visibility("hidden"), used)) Dlsym cgtree_check_dlsym(
    void*, const char* name) noexcept {
  const bool is_of_driver = name[0] == 'c' && name[1] == 'u' && index_of(name) < kCallCount;
  return is_of_driver ? dlsym_of_driver : real_dlsym();
}

}  // namespace
}  // namespace cgtree::graph_check

// dlsym() jumps to the real function, which looks at its caller if the handle is RTLD_NEXT.
#if defined(__x86_64__)
asm(".text\n.globl dlsym\n.type dlsym, %function\ndlsym:\n endbr64\n push %rdi\n push %rsi\n"
    " sub $8, %rsp\n call cgtree_check_dlsym\n add $8, %rsp\n pop %rsi\n pop %rdi\n jmp *%rax\n");
#elif defined(__aarch64__)
asm(".text\n.globl dlsym\n.type dlsym, %function\ndlsym:\n stp x29, x30, [sp, -32]!\n"
    " stp x0, x1, [sp, 16]\n bl cgtree_check_dlsym\n mov x16, x0\n ldp x0, x1, [sp, 16]\n"
    " ldp x29, x30, [sp], 32\n br x16\n");
#endif
