// EventDump: writes what flight recorders hold as lines of an event file, in signal handlers too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "extensions/watch/flight_recorder.h"

namespace cgtree {

// An EventDump is lines on their way to a file or a string. To a file it allocates nothing and
// makes calls that signal handlers may make. It goes on after an error, and writes nothing then.
class EventDump {
 public:
  explicit EventDump(int file) noexcept : file_(file) {}
  // `text`: borrowed.
  explicit EventDump(std::string& text) noexcept : text_(&text) {}

  // `signal`: which has asked for it, or 0.
  void add(const FlightRecorder& recorder, int signal) noexcept;
  // Returns 0, or the number of the error.
  int finish() noexcept;

 private:
  void open(const FlightRecorder::Header& header, std::int64_t time_us, std::uint64_t overwritten,
            int signal) noexcept;
  void event(const FlightRecorder::Header& header, const FlightEntry& entry) noexcept;
  void begin(std::string_view event, std::int64_t time_us,
             const FlightRecorder::Header& header) noexcept;
  void field(std::string_view key, std::string_view text) noexcept;
  void field(std::string_view key, std::uint64_t number) noexcept;
  void quote(std::string_view text) noexcept;
  void number(std::uint64_t number) noexcept;
  void put(std::string_view text) noexcept;
  void flush() noexcept;

  int file_ = -1;
  std::string* text_ = nullptr;
  int error_ = 0;
  std::size_t used_ = 0;
  std::array<char, 2048> buffer_;
};

}  // namespace cgtree
