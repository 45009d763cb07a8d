// ScopeStack: the scopes that are open on a thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/frame.h"

namespace cgtree {

class ScopeLog;

// A ScopeStack allocates nothing. Before it changes, the logs of the captures that are open on the
// thread are told: what they have captured since was captured in the scopes that were open until
// then.
//
// Thread safety: of_thread<ScopeStack>() is that of the calling thread, which alone uses it.
class ScopeStack {
 public:
  static constexpr std::size_t kMostOpen = 64;
  static constexpr std::size_t kMostBytes = 2048;  // of a path, with the zero behind it
  static constexpr std::size_t kMostOfName = 255;

  // Returns what close() takes.
  std::uint64_t open(std::string_view name) noexcept;
  // Does nothing if it was closed before, or was opened on another thread.
  void close(std::uint64_t id) noexcept;

  // How many are open, with those that have no name.
  std::size_t size() const noexcept { return named_ + unnamed_; }
  // A point in time: what was opened before it, and what since.
  struct Mark {
    std::uint64_t id;
    std::size_t unnamed;
  };
  Mark mark() const noexcept { return {last_id_, unnamed_}; }
  // How many are open that were opened since, whatever was closed.
  std::size_t open_since(Mark mark) const noexcept;
  // Closes those.
  void close_since(Mark mark) noexcept;
  // Returns the names, with '/' between them.
  std::string_view path() const noexcept { return {path_.data(), end_}; }

  // The log is told of changes from now on, until it is removed. Borrowed.
  void add(ScopeLog& log) noexcept;
  void remove(const ScopeLog& log) noexcept;

 private:
  struct Open {
    std::uint64_t id;
    std::size_t begin;  // in path_, of the name, or of the '/' before it
  };

  void tell() noexcept;
  // Adds so many bytes of the text at most, in whole characters, and as many as fit.
  void append(std::string_view text, std::size_t most) noexcept;
  void erase(std::size_t i) noexcept;

  std::array<Open, kMostOpen> scopes_{};
  std::size_t named_ = 0;    // their ids ascend
  std::size_t unnamed_ = 0;  // beyond kMostOpen
  std::array<char, kMostBytes> path_{};
  std::size_t end_ = 0;        // of the path
  std::uint64_t last_id_ = 0;  // of no other thread
  ScopeLog* logs_ = nullptr;
};

}  // namespace cgtree
