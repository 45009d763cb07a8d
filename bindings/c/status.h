// guarded(): runs the body of a C function. ThreadState: the state of the C ABI for each thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/frame.h"
#include "bindings/c/c_api.h"
#include "interop/device/stream.h"

namespace cgtree::capi {

// An ErrorRecord is a failure, as cgt_last_error() writes it.
struct ErrorRecord {
  cgt_status status = CGT_OK;
  std::int32_t cuda_code = 0;
  cgt_capture_state capture = CGT_CAPTURE_NONE;
  std::string message;
  std::string where;
  std::uint64_t number = 0;  // counts the failures of the thread
};

// The streams that a thread made current, the latest first, because a list ends from its front on.
using PushedStreams = std::forward_list<StreamScope>;

// A CallbackFrame is a running step function or other callback.
struct CallbackFrame {
  std::string name;              // "step function 'decode'"
  bool is_body = false;          // of a branch or loop, which is not a call
  std::vector<cgt_tensor> made;  // handles that end with it
  std::string said;              // by cgt_set_error()
  // States of generators taken while it is recorded, by their cgt_generator_state::recording.
  std::vector<std::pair<std::uint64_t, std::shared_ptr<const void>>> states;
  CallbackFrame* outer = nullptr;
  PushedStreams pushed;  // those that it does not pop end with it
};

// Returns whether the status is a failure: one of c_api.h, or a step function's.
bool is_failure(cgt_status status) noexcept;

// The state of a thread that outlives its calls.
struct ThreadState {
  ErrorRecord error;
  cgt_capture_state step_capture = CGT_CAPTURE_NONE;  // at the last failure of a step function
  // Slots of tensors that step functions destroyed while their callers may still use them.
  std::vector<std::uint32_t> parked;
  PushedStreams pushed;  // outside of callbacks
  std::string text;      // of the last call that wrote text
};
ThreadState& thread_state() noexcept;  // of the calling thread

// A ThreadMarks is the state that every call reads. It is trivial, so that reading it costs only an
// address computation.
struct ThreadMarks {
  CallbackFrame* frame = nullptr;  // the innermost callback
  bool has_parked = false;
};
// The marks of the calling thread.
inline ThreadMarks& marks() noexcept {
  return of_thread<ThreadMarks>();
}

// A StatusError is a failure whose status belongs to no other exception.
class StatusError : public Error {
 public:
  // Requires: the status is a failure.
  StatusError(cgt_status status, std::string_view message,
              std::source_location where = std::source_location::current())
      : Error(message, where), status_(status) {}

  // The status that the call returns.
  cgt_status status() const noexcept { return status_; }

 private:
  cgt_status status_;
};

// Makes the exception in flight the thread's last error, and returns its status.
cgt_status note_failure() noexcept;

// Throws the exception from which `error` was made, with "`before`: " before its message.
[[noreturn]] void rethrow(const ErrorRecord& error, std::string_view before);

// Returns the capture state of the thread's current stream.
cgt_capture_state capture_state_now() noexcept;

// Releases tensors that callbacks destroyed, when the outermost call of the thread ends.
struct ParkedScope {
  ~ParkedScope() {
    if (marks().has_parked && marks().frame == nullptr) [[unlikely]]
      release_parked();
  }

 private:
  static void release_parked() noexcept;
};

// Runs body() and returns CGT_OK, or the status of its exception.
template <typename Body>
cgt_status guarded(const Body& body) noexcept {
  try {
    const ParkedScope parked;
    body();
    return CGT_OK;
  } catch (...) {
    return note_failure();
  }
}

// Throws InvalidArgument: `what` is NULL.
[[noreturn]] void throw_missing(std::string_view what);

// Returns *pointer. Throws InvalidArgument if it is NULL; `what` names it in the message.
template <typename T>
T& required(T* pointer, std::string_view what) {
  if (pointer == nullptr) [[unlikely]]
    throw_missing(what);
  return *pointer;
}

// Returns an array of the caller's. Throws InvalidArgument if it is NULL and has elements.
template <typename T>
std::span<T> span_of_c(T* array, std::size_t count, std::string_view what) {
  if (count > 0) required(array, what);
  return {array, count};
}

// Keeps text that the calling thread wrote, until it writes the next.
inline const char* keep_text(std::string text) {
  return (thread_state().text = std::move(text)).c_str();
}

// The next three are guarded() for a result: a value that the caller requires, a text, and an
// optional count.
template <typename T, typename Make>
cgt_status write_result(T* out, const Make& make) noexcept {
  return guarded([&] {
    required(out, "the place for the result");
    *out = make();
  });
}
template <typename Make>
cgt_status write_text(const char** out, const Make& make) noexcept {
  return write_result(out, [&] { return keep_text(make()); });
}
template <typename Make>
cgt_status write_count(std::size_t* out, const Make& make) noexcept {
  return guarded([&] {
    const std::size_t count = make();
    if (out != nullptr) *out = count;
  });
}

}  // namespace cgtree::capi
