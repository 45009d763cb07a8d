// guarded(): from exceptions to a status and the thread's last error.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "cgtree/c_api.h"
#include "cgtree/c_api/thread_state.h"

namespace cgtree::capi {

// A failure that is only C's: its status is not that of any exception of the library.
class StatusError : public Error {
 public:
  StatusError(cgt_status status, std::string_view message,
              std::source_location where = std::source_location::current())
      : Error(message, where), status_(status) {}

  cgt_status status() const noexcept { return status_; }

 private:
  cgt_status status_;
};

// What is being handled becomes the thread's last error.
cgt_status note_failure() noexcept;

// The exception that `error` was made from, with "`before`: " in front of its message.
[[noreturn]] void rethrow(const ErrorRecord& error, std::string_view before);

// Of the thread's current stream.
cgt_capture_state capture_state_now() noexcept;

template <typename Body>
cgt_status guarded(const Body& body) noexcept {
  try {
    check_thread();
    body();
    return CGT_OK;
  } catch (...) {
    return note_failure();
  }
}

[[noreturn]] void throw_missing(std::string_view what);

// Throws InvalidArgument.
template <typename T>
T& required(T* pointer, std::string_view what) {
  if (pointer == nullptr) [[unlikely]]
    throw_missing(what);
  return *pointer;
}

// Text to a caller's buffer. Throws StatusError.
void write_text(std::string_view text, char* buffer, std::size_t capacity, std::size_t* length);

}  // namespace cgtree::capi
