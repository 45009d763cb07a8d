// Calls: the functions of the driver that the check watches, and the effect of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace cgtree::graph_check {

// The effect of a call, with its parameters in parentheses.
enum class Does : std::uint8_t {
  kGetAddress,             // of another function of the driver
  kStart,                  // (): CUDA starts
  kAllocate,               // (address, written by the call; bytes)
  kAllocateInOrder,        // (address; bytes; stream)
  kMap,                    // (address; bytes)
  kFree,                   // (address)
  kFreeInOrder,            // (address; stream)
  kUnmap,                  // (address; bytes)
  kBeginCapture,           // (stream; a graph that is there, if any)
  kEndCapture,             // (stream; graph, written by the call)
  kInstantiate,            // (executable, written by the call; graph)
  kInstantiateWithFlags,   // (the same; flags)
  kInstantiateWithParams,  // (the same; parameters with flags)
  kUpdate,                 // (executable; graph)
  kLaunch,                 // (executable)
  kDestroyExec,            // (executable)
  kDestroyGraph,           // (graph)
  kPatch,                  // (executable; node)
  kWork,                   // (stream), if any
  kWorkOfConfig,           // (a configuration with the stream)
  kOrder,                  // (stream): events
  kDestroyStream,          // (stream)
};

// A function, with the positions of the parameters that its effect names.
struct Call {
  const char* name;
  bool is_per_thread;  // its default stream is that of the thread
  Does does;
  std::size_t first = kNone;
  std::size_t second = kNone;
  std::size_t third = kNone;

  static constexpr std::size_t kNone = SIZE_MAX;
};

#define CALL(name, ...) {#name, false, Does::__VA_ARGS__},
#define BOTH(name, suffix, ...) CALL(name, __VA_ARGS__){#name #suffix, true, Does::__VA_ARGS__},
inline constexpr Call kCalls[] = {
#include "check/cuda/calls.inc"
};
#undef BOTH
#undef CALL

// Returns the index in kCalls of a function, or the number of calls.
constexpr std::size_t index_of(std::string_view name) noexcept {
  std::size_t index = 0;
  while (index < std::size(kCalls) && name != kCalls[index].name)
    ++index;
  return index;
}

// A call in progress, or one that has returned.
struct CallData {
  const Call& call;
  const void* const* params;  // the address of each parameter
  std::uint64_t* shared;      // kept from the beginning of the call to its return
  const int* result;          // null at the beginning
};

}  // namespace cgtree::graph_check
