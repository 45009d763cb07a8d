// Frame: everything that is current on a thread. A step function must find its stream, its
// allocator and its generators without arguments, as in CUDA and TVM. of_thread(): the thread's
// objects of other types.
#pragma once

#include <cxxabi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace cgtree {

class AxisLengths;
class BodyMemory;
class BreakHandler;
class DrawHandler;
class FlowLog;
class Key;
class OrderInBody;
class Refusals;
class RingRounds;
class RunLog;
class StepScope;
class StorageAllocator;
class StreamFork;
class StreamScope;
struct GuardsOfStep;
enum class GraphOverride : std::uint8_t;

// Each member is the innermost of its class, or null. The class defines the meaning of null; scopes
// of the class set the member and restore it.
struct Frame {
  StreamScope* stream = nullptr;
  StreamFork* fork = nullptr;
  std::uint64_t last_stream_scope = 0;  // the number of the last opened scope
  StorageAllocator* allocator = nullptr;
  DrawHandler* draws = nullptr;
  Refusals* refusals = nullptr;
  GraphOverride graphs{};  // GraphOverride::kNone

  StepScope* step = nullptr;
  AxisLengths* lengths = nullptr;
  const Key* key = nullptr;
  BreakHandler* breaks = nullptr;
  GuardsOfStep* guards = nullptr;

  BodyMemory* body = nullptr;  // the next five are of control flow
  RunLog* body_log = nullptr;
  FlowLog* flow_log = nullptr;
  const OrderInBody* order = nullptr;
  const RingRounds* rounds = nullptr;
  bool is_trial = false;  // in the run of a body that detects its effects
};

namespace detail {

extern constinit thread_local Frame t_frame;

}  // namespace detail

// Returns the frame of the calling thread. It is inlined, because each call reads it.
inline Frame& frame() noexcept {
  return detail::t_frame;
}

namespace detail {

// A PlaceOfThread stores a thread's object that needs a destructor. The storage itself needs none.
template <typename T>
class PlaceOfThread {
 public:
  T& object() noexcept {
    if (!is_made_) [[unlikely]] {
      make();
    }
    return *std::launder(reinterpret_cast<T*>(memory_));
  }

 private:
  // A thread-local variable would be destroyed only once. The library that contains the code of the
  // last argument stays loaded until then. Source: Itanium C++ ABI, "Thread-local storage"; glibc,
  // __cxa_thread_atexit_impl.
  void make() noexcept {
    ::new (static_cast<void*>(memory_)) T();
    is_made_ = true;
    (void)abi::__cxa_thread_atexit(end, this, reinterpret_cast<void*>(end));
  }
  static void end(void* address) {
    auto* const place = static_cast<PlaceOfThread*>(address);
    std::destroy_at(&place->object());
    place->is_made_ = false;
  }

  alignas(T) std::byte memory_[sizeof(T)] = {};
  bool is_made_ = false;
};

}  // namespace detail

// Returns the calling thread's object of a type, which is made at its first use and destroyed with
// the thread. A room uses its own types, and containers of these. An object with constant
// initialization and no destructor costs one address. Destructors that run while the thread ends
// may use any object: a destroyed one is made again.
template <typename T>
T& of_thread() noexcept {
  if constexpr (std::is_trivially_destructible_v<T>) {
    static thread_local T object;
    return object;
  } else {
    static constinit thread_local detail::PlaceOfThread<T> place;
    return place.object();
  }
}

// A FrameScope sets a member of its thread's frame until it ends. Scopes of a member nest.
template <auto kMember>
class FrameScope {
 public:
  using Value = std::remove_reference_t<decltype(std::declval<Frame&>().*kMember)>;

  explicit FrameScope(Value value) noexcept : outer_(std::exchange(frame().*kMember, value)) {}
  ~FrameScope() { frame().*kMember = outer_; }
  FrameScope(const FrameScope&) = delete;
  FrameScope& operator=(const FrameScope&) = delete;

 private:
  const Value outer_;
};

using LengthsScope = FrameScope<&Frame::lengths>;
using KeyScope = FrameScope<&Frame::key>;
using BreakScope = FrameScope<&Frame::breaks>;
using GuardScope = FrameScope<&Frame::guards>;

}  // namespace cgtree
