// Parses and checks the rows of a log.
#include "allocator/reports/rmm_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <unordered_map>

#include "allocator/reports/line_reader.h"
#include "base/error.h"

namespace cgtree {
namespace {

constexpr std::string_view kHeader = "Thread,Time,Action,Pointer,Size,Stream";
constexpr std::size_t kColumns = 6;
constexpr std::string_view kColumnNames[kColumns] = {"Thread",  "Time", "Action",
                                                     "Pointer", "Size", "Stream"};
enum Column { kThread, kTime, kAction, kPointer, kSize, kStream };
using Row = std::array<std::string_view, kColumns>;

// "0x1f" in base 16, all else in the base given; false unless all of the text is the number.
bool parse(std::string_view text, int base, std::uint64_t& number) {
  if (base == 16 && text.substr(0, 2) == "0x") text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number, base);
  return error == std::errc() && end == text.end();
}

class Parser {
 public:
  explicit Parser(const std::string& path) : reader_(path) {}

  Trace run() {
    std::string line;
    if (!reader_.next(line) || line != kHeader) {
      throw InvalidArgument(fmt::format("{}: the header is '{}', not '{}'", reader_.place(),
                                        line.substr(0, 100), kHeader));
    }
    while (reader_.next(line))
      take(split(line));
    return std::move(trace_);
  }

 private:
  struct Live {
    std::uint32_t slot;
    std::size_t bytes;
    std::size_t line;  // that allocated it
  };

  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidArgument(fmt::format("{}: {}", reader_.place(), why));
  }

  Row split(std::string_view line) const {
    const auto commas = static_cast<std::size_t>(std::count(line.begin(), line.end(), ','));
    if (commas + 1 != kColumns) {
      refuse(fmt::format("{} columns where there must be {}: '{}'", commas + 1, kColumns,
                         line.substr(0, 100)));
    }
    Row row;
    for (std::string_view& field : row) {
      field = line.substr(0, line.find(','));
      line.remove_prefix(std::min(field.size() + 1, line.size()));
    }
    return row;
  }

  std::uint64_t number(const Row& row, Column column, int base) const {
    std::uint64_t number = 0;
    if (!parse(row[column], base, number)) {
      refuse(fmt::format("{} '{}' is not a number", kColumnNames[column], row[column]));
    }
    return number;
  }

  void take(const Row& row) {
    const std::uint64_t pointer = number(row, kPointer, 16);
    const std::size_t bytes = number(row, kSize, 10);
    if (row[kAction] == "allocate") {
      allocate(pointer, bytes);
    } else if (row[kAction] == "free") {
      free(pointer, bytes);
    } else if (row[kAction] == "allocate failure") {
      ++trace_.failures;
    } else {
      refuse(fmt::format("Action '{}' is none of 'allocate', 'allocate failure' and 'free'",
                         row[kAction]));
    }
  }

  void allocate(std::uint64_t pointer, std::size_t bytes) {
    if (bytes == 0) refuse("an allocation of 0 bytes");
    const auto slot = static_cast<std::uint32_t>(trace_.slots);
    const auto [known, is_new] = live_.try_emplace(pointer, Live{slot, bytes, reader_.number()});
    if (!is_new) {
      refuse(fmt::format("{:#x} is allocated a second time; it is live since line {}", pointer,
                         known->second.line));
    }
    ++trace_.slots;
    trace_.steps.push_back({slot, bytes});
    live_bytes_ += bytes;
    trace_.peak_live_bytes = std::max(trace_.peak_live_bytes, live_bytes_);
  }

  void free(std::uint64_t pointer, std::size_t bytes) {
    const auto known = live_.find(pointer);
    if (known == live_.end()) refuse(fmt::format("{:#x} is freed but not live", pointer));
    if (known->second.bytes != bytes) {
      refuse(fmt::format("{:#x} is freed with {} bytes, allocated with {} in line {}", pointer,
                         bytes, known->second.bytes, known->second.line));
    }
    trace_.steps.push_back({known->second.slot, 0});
    live_bytes_ -= bytes;
    live_.erase(known);
  }

  LineReader reader_;
  Trace trace_;
  std::unordered_map<std::uint64_t, Live> live_;
  std::size_t live_bytes_ = 0;
};

}  // namespace

Trace read_rmm_log(const std::string& path) {
  return Parser(path).run();
}

}  // namespace cgtree
