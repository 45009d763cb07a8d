// Parses a request trace from left to right, and names the line and column of an error.
#include "benchmarks/serve/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"
#include "interop/device/code.h"

namespace cgtree::serve {
namespace {

struct ParsedTimestamp {
  std::int64_t nanoseconds = 0;  // since 1970-01-01
  std::string error;             // empty if it parsed
  std::size_t error_offset = 0;  // bytes before the first wrong character
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// A Cursor reads one timestamp. After the first error it does not move.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool at_end() const { return offset_ == text_.size(); }
  bool ok() const { return error_.empty(); }
  char peek() const { return at_end() ? '\0' : text_[offset_]; }

  // Reads exactly `width` digits, a number between `low` and `high`.
  int number(int width, int low, int high, std::string_view what) {
    int value = 0;
    for (int i = 0; i < width && ok(); ++i) {
      if (!is_digit(peek())) {
        fail(fmt::format("expected {} digits of {}", width, what));
      } else {
        value = value * 10 + (text_[offset_++] - '0');
      }
    }
    if (ok() && (value < low || value > high)) {
      offset_ -= static_cast<std::size_t>(width);
      fail(fmt::format("{} {} is not between {} and {}", what, value, low, high));
    }
    return ok() ? value : low;
  }

  // Reads one of `choices`.
  void literal(std::string_view choices) {
    if (!ok()) return;
    if (!at_end() && choices.find(peek()) != std::string_view::npos) {
      ++offset_;
    } else {
      fail(fmt::format("expected '{}'", choices[0]));
    }
  }

  // Reads up to nine decimals and returns them as nanoseconds.
  std::int64_t decimals() {
    std::int64_t value = 0;
    int count = 0;
    for (; ok() && is_digit(peek()); ++count) {
      if (count == 9) {
        fail("expected at most 9 decimals of a second");
        return 0;
      }
      value = value * 10 + (text_[offset_++] - '0');
    }
    if (count == 0) fail("expected decimals of a second");
    for (; count < 9; ++count)
      value *= 10;
    return value;
  }

  void fail(std::string message) {
    if (ok()) error_ = std::move(message);
  }

  ParsedTimestamp result(std::int64_t nanoseconds) const {
    return ok() ? ParsedTimestamp{nanoseconds, {}, 0} : ParsedTimestamp{0, error_, offset_};
  }

 private:
  std::string_view text_;
  std::size_t offset_ = 0;
  std::string error_;
};

std::chrono::sys_days parse_date(Cursor& cursor) {
  using namespace std::chrono;
  const int years = cursor.number(4, 1970, 2200, "year");
  cursor.literal("-");
  const int months = cursor.number(2, 1, 12, "month");
  cursor.literal("-");
  const int days = cursor.number(2, 1, 31, "day");
  const year_month_day date(year(years), month(static_cast<unsigned>(months)),
                            day(static_cast<unsigned>(days)));
  if (!date.ok()) {
    cursor.fail(fmt::format("month {}-{:02} has no day {}", years, months, days));
  }
  return cursor.ok() ? sys_days(date) : sys_days();
}

std::chrono::seconds parse_offset(Cursor& cursor) {
  using namespace std::chrono;
  if (cursor.at_end()) return seconds(0);
  if (cursor.peek() == 'Z') {
    cursor.literal("Z");
    return seconds(0);
  }
  const int sign = cursor.peek() == '-' ? -1 : 1;
  cursor.literal("+-");
  const int hour = cursor.number(2, 0, 14, "offset hours");
  cursor.literal(":");
  const int minute = cursor.number(2, 0, 59, "offset minutes");
  return sign * (hours(hour) + minutes(minute));
}

ParsedTimestamp parse_timestamp(std::string_view text) {
  using namespace std::chrono;
  Cursor cursor(text);
  const sys_days date = parse_date(cursor);
  cursor.literal(" T");
  const int hour = cursor.number(2, 0, 23, "hour");
  cursor.literal(":");
  const int minute = cursor.number(2, 0, 59, "minute");
  cursor.literal(":");
  const int second = cursor.number(2, 0, 60, "second");  // 60: a leap second
  std::int64_t fraction = 0;
  if (cursor.ok() && cursor.peek() == '.') {
    cursor.literal(".");
    fraction = cursor.decimals();
  }
  const seconds offset = parse_offset(cursor);
  if (cursor.ok() && !cursor.at_end()) cursor.fail("unexpected text after the timestamp");
  const nanoseconds since_epoch = date.time_since_epoch() + hours(hour) + minutes(minute) +
                                  seconds(second) - offset + nanoseconds(fraction);
  return cursor.result(since_epoch.count());
}

constexpr std::array<std::string_view, 3> kColumns = {"TIMESTAMP", "ContextTokens",
                                                      "GeneratedTokens"};

struct Field {
  std::string_view text;
  std::size_t column = 1;  // of the first character of `text`
};
using Fields = std::array<Field, kColumns.size()>;

// A Line is the text of one line of the trace and its number.
class Line {
 public:
  Line(std::string_view name, std::size_t number, std::string_view text)
      : name_(name), number_(number), text_(text) {}

  [[noreturn]] void fail(std::size_t column, std::string_view message) const {
    throw InvalidArgument(fmt::format("{}:{}:{}: {}", name_, number_, column, message));
  }

  Fields split() const {
    Fields fields;
    std::size_t at = 0;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      fields[i] = take_field(at);
      const bool is_last = i + 1 == fields.size();
      if (is_last && at < text_.size()) {
        fail(at + 1, fmt::format("unexpected text after {}", kColumns[i]));
      }
      if (!is_last && at == text_.size()) {
        fail(at + 1, fmt::format("expected ',' and {}", kColumns[i + 1]));
      }
      ++at;  // the comma
    }
    return fields;
  }

 private:
  // Moves `at` to the comma after the field or to the end of the line. No field of a trace holds a
  // quote, so doubled quotes are not read.
  Field take_field(std::size_t& at) const {
    if (at < text_.size() && text_[at] == '"') {
      const std::size_t close = text_.find('"', at + 1);
      if (close == std::string_view::npos) fail(at + 1, "quote is never closed");
      const Field field{text_.substr(at + 1, close - at - 1), at + 2};
      at = close + 1;
      if (at < text_.size() && text_[at] != ',') fail(at + 1, "expected ',' after the quote");
      return field;
    }
    const std::size_t end = std::min(text_.find(',', at), text_.size());
    const Field field{text_.substr(at, end - at), at + 1};
    at = end;
    return field;
  }

  std::string_view name_;
  std::size_t number_;
  std::string_view text_;
};

void expect_header(const Line& line) {
  const Fields fields = line.split();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].text != kColumns[i]) {
      line.fail(fields[i].column,
                fmt::format("expected the column {}, found '{}'", kColumns[i], fields[i].text));
    }
  }
}

std::int64_t parse_count(const Line& line, const Field& field, std::int64_t low,
                         std::string_view what) {
  std::int64_t value = 0;
  const char* const begin = field.text.data();
  const char* const end = begin + field.text.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc::invalid_argument) {
    line.fail(field.column, fmt::format("expected a number as {}", what));
  }
  if (stop != end) {
    line.fail(field.column + static_cast<std::size_t>(stop - begin),
              fmt::format("unexpected '{}' in {}", *stop, what));
  }
  if (error != std::errc() || value < low || value > kMaxTraceTokens) {
    line.fail(field.column, fmt::format("{} {} is not between {} and {}", what, field.text, low,
                                        kMaxTraceTokens));
  }
  return value;
}

Request parse_request(const Line& line) {
  const Fields fields = line.split();
  const ParsedTimestamp timestamp = parse_timestamp(fields[0].text);
  if (!timestamp.error.empty()) {
    line.fail(fields[0].column + timestamp.error_offset, timestamp.error);
  }
  return {timestamp.nanoseconds, parse_count(line, fields[1], 0, kColumns[1]),
          parse_count(line, fields[2], 1, kColumns[2])};
}

void order_by_arrival(std::vector<Request>& requests) {
  std::stable_sort(requests.begin(), requests.end(),
                   [](const Request& a, const Request& b) { return a.arrival_ns < b.arrival_ns; });
  const std::int64_t first = requests.front().arrival_ns;
  for (Request& request : requests)
    request.arrival_ns -= first;
}

// Removes the first line of `text` and returns it without its end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

std::vector<Request> parse_trace(std::string_view text, std::string_view name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<Request> requests;
  bool has_header = false;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view content = take_line(text);
    if (content.empty()) continue;
    const Line line(name, number, content);
    if (has_header) {
      requests.push_back(parse_request(line));
    } else {
      expect_header(line);
      has_header = true;
    }
  }
  if (requests.empty()) {
    throw InvalidArgument(fmt::format(
        "{}: the trace holds no request; expected a line {} and one line per request below it",
        name, fmt::join(kColumns, ",")));
  }
  order_by_arrival(requests);
  return requests;
}

std::vector<Request> read_trace(const std::filesystem::path& path) {
  // Opening a directory succeeds; reading it does not.
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file && !std::filesystem::is_directory(path)) {
    text.assign(std::istreambuf_iterator<char>(file), {});
  } else {
    file.setstate(std::ios::badbit);
  }
  if (file.bad()) {
    throw InvalidArgument(fmt::format("cannot read the trace '{}': {}", path.string(),
                                      std::filesystem::is_directory(path) ? "it is a folder"
                                      : std::filesystem::exists(path)     ? "permission denied"
                                                                          : "no such file"));
  }
  return parse_trace(text, path.string());
}

}  // namespace cgtree::serve
