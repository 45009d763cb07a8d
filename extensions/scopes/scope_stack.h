// ScopeStack: the open scopes of a thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/frame.h"

namespace cgtree {

class ScopeLog;

// A ScopeStack allocates nothing. Before it changes, it notifies the open capture logs of the
// thread: nodes captured since the last change belong to the scopes that were open until then.
//
// Thread safety: of_thread<ScopeStack>() is that of the calling thread, which alone uses it.
class ScopeStack {
 public:
  static constexpr std::size_t kMostOpen = 64;
  static constexpr std::size_t kMostBytes = 2048;  // of a path, with the terminating zero
  static constexpr std::size_t kMostOfName = 255;

  // Returns the id for close().
  std::uint64_t open(std::string_view name) noexcept;
  // Does nothing if it is closed already, or was opened on another thread.
  void close(std::uint64_t id) noexcept;

  // The number of open scopes, including unnamed ones.
  std::size_t size() const noexcept { return named_ + unnamed_; }
  // A point in time, to tell scopes opened before it from later ones.
  struct Mark {
    std::uint64_t id;
    std::size_t unnamed;
  };
  Mark mark() const noexcept { return {last_id_, unnamed_}; }
  // The number of open scopes that were opened since.
  std::size_t open_since(Mark mark) const noexcept;
  // Closes these scopes.
  void close_since(Mark mark) noexcept;
  // Returns the names, with '/' between them.
  std::string_view path() const noexcept { return {path_.data(), end_}; }

  // The log is notified of changes from now on, until it is removed. Borrowed.
  void add(ScopeLog& log) noexcept;
  void remove(const ScopeLog& log) noexcept;

 private:
  struct Open {
    std::uint64_t id;
    std::size_t begin;  // in path_, of the name, or of the '/' before it
  };

  void tell() noexcept;
  // Adds at most this many bytes of the text, in whole characters, as far as they fit.
  void append(std::string_view text, std::size_t most) noexcept;
  void erase(std::size_t i) noexcept;

  std::array<Open, kMostOpen> scopes_{};
  std::size_t named_ = 0;    // their ids ascend
  std::size_t unnamed_ = 0;  // beyond kMostOpen
  std::array<char, kMostBytes> path_{};
  std::size_t end_ = 0;        // of the path
  std::uint64_t last_id_ = 0;  // unique over all threads
  ScopeLog* logs_ = nullptr;
};

}  // namespace cgtree
