// decide(): a decision of the host that a recording asks again.
//
//   const int splits = cgtree::decide("splits", [cache] { return cache->splits(); });
//   launch_attention(cgtree::current_stream(), splits, ...);
//
// A capture freezes decisions of the host: a grid, a kernel, a plan. A guard is the function that
// decides. Each later call asks it before a recording is replayed, and replays only recordings
// whose guards gave the same answers when they were recorded (docs/guards.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "cgtree/values/guard.h"

namespace cgtree {

// An answer of a guard: an integer, an enumeration, a bool, a pointer, or a struct of these without
// padding, of at most 16 bytes; or a float or double. Bytes are compared, and some bytes of a long
// double are not set.
template <typename Value>
inline constexpr bool kIsAnswer = std::is_trivially_copyable_v<Value> &&
                                  sizeof(Value) <= sizeof(Guard::Answer) &&
                                  (std::has_unique_object_representations_v<Value> ||
                                   (std::is_floating_point_v<Value> &&
                                    sizeof(Value) <= sizeof(double)));

namespace detail {

// An integer, or an enumeration, of at most eight bytes.
template <typename Value>
inline constexpr bool kIsNumber = (std::is_integral_v<Value> ||
                                   std::is_enum_v<Value>)&&sizeof(Value) <= sizeof(std::uint64_t);

// Integers keep their sign, for messages.
template <typename Value>
Guard::Answer to_answer(const Value& value) noexcept {
  Guard::Answer answer = {};
  if constexpr (kIsNumber<Value>) {
    answer[0] = static_cast<std::uint64_t>(value);
  } else {
    std::memcpy(answer.data(), &value, sizeof(Value));
  }
  return answer;
}

template <typename Value>
Value from_answer(const Guard::Answer& answer) noexcept {
  if constexpr (kIsNumber<Value>) {
    return static_cast<Value>(answer[0]);
  } else {
    Value value;
    std::memcpy(static_cast<void*>(&value), answer.data(), sizeof(Value));
    return value;
  }
}

// Returns whether the calling thread runs a step that is warmed up or captured.
bool keeps_guards() noexcept;
// Asks the guard and keeps it for the step. Requires: keeps_guards().
Guard::Answer keep(Guard guard);

}  // namespace detail

// Returns the function's result: now, when the work runs, and when it is captured. The recording
// keeps the function, which owns all that it reads, and asks it before each replay.
//
// The function may be asked several times in a call, on the thread of the call or of an explain().
// It must not call the context, nor the device while the work is captured. The call throws
// exceptions of the function before a replay, and counts as a failure. Two guards with the same
// name are both kept. Outside of a step, in an eager_break(), and on another thread than the
// step's, it is just called.
//
// Throws InvalidArgument for an empty name; and if ContextOptions::checked is set, for a function
// that has the address of a variable on the stack of the step function, which is gone when the
// function is asked again.
template <typename Function>
auto decide(std::string_view name, Function function) {
  using Value = std::decay_t<std::invoke_result_t<Function&>>;
  static_assert(kIsAnswer<Value>, "a guard answers with at most 16 bytes, without padding");
  if (!detail::keeps_guards()) return static_cast<Value>(function());
  const auto call = [](void* one) -> Guard::Answer {
    return detail::to_answer<Value>((*static_cast<Function*>(one))());
  };
  Guard guard{.name = std::string(name),
              .function = std::make_shared<Function>(std::move(function)),
              .call = call,
              .answer = {},
              .bytes = std::is_empty_v<Function> ? 0 : sizeof(Function)};
  return detail::from_answer<Value>(detail::keep(std::move(guard)));
}

// Returns the value of a host variable, and replays only recordings for which it had the same
// bytes. Requires: the variable outlives the recordings.
template <typename Value>
Value watch_value(const Value* variable, std::string_view name = "watched value") {
  static_assert(kIsAnswer<Value>, "watch_value() is for at most 16 bytes, without padding");
  return decide(name, [variable] { return *variable; });
}

}  // namespace cgtree
