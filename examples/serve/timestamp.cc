// Reads a timestamp from left to right and stops at the first character that does not fit.
#include "examples/serve/timestamp.h"

#include <fmt/format.h>

#include <chrono>

namespace cgtree::serve {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// After the first error nothing moves any more.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool at_end() const { return offset_ == text_.size(); }
  bool ok() const { return error_.empty(); }
  char peek() const { return at_end() ? '\0' : text_[offset_]; }

  // Exactly `width` digits, between `low` and `high`.
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

  // One of `choices`.
  void literal(std::string_view choices) {
    if (!ok()) return;
    if (!at_end() && choices.find(peek()) != std::string_view::npos) {
      ++offset_;
    } else {
      fail(fmt::format("expected '{}'", choices[0]));
    }
  }

  // Up to nine decimals, as nanoseconds.
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

}  // namespace

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

}  // namespace cgtree::serve
