// Formats events without a lock, an allocation or a library that may have either.
#include "extensions/watch/event_dump.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace cgtree {
namespace {

struct Names {
  std::string_view event;
  std::string_view reason;  // the key of FlightEntry::reason
  std::string_view what;    // the key of FlightEntry::what
};

Names names_of(FlightEvent event) noexcept {
  switch (event) {
    case FlightEvent::kWarmUp:
      return {"warm_up", "reason", "inputs"};
    case FlightEvent::kRecord:
      return {"record", "reason", "what"};
    case FlightEvent::kSkip:
      return {"skip", "reason", "what"};
    case FlightEvent::kEvict:
      return {"evict", "limit", "what"};
    case FlightEvent::kDrop:
      return {"drop", "reason", "what"};
    case FlightEvent::kDemote:
      return {"demote", "reason", "name"};
    case FlightEvent::kVerify:
      return {"verify", "left_out", "what"};
    case FlightEvent::kFailure:
      return {"failure", "reason", "what"};
    case FlightEvent::kRunning:
      return {"running", "call", "reason"};
  }
  return {"unknown", "reason", "what"};
}

// Returns how many bytes the first character of the text has, or 0 if they are not UTF-8. Of what
// UTF-8 forbids, it lets pass what is longer than it need be, and surrogates.
std::size_t length_of_character(std::string_view text) noexcept {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80                     ? 1
                             : first >= 0xC2 && first < 0xE0  ? 2
                             : first >= 0xE0 && first < 0xF0  ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  return length;
}

}  // namespace

void EventDump::add(const FlightRecorder& recorder, int signal) noexcept {
  FlightRecorder::Header header;
  if (!recorder.header(header)) return;
  // The line of the context comes first, and says what is missing behind it.
  bool is_open = false;
  std::uint64_t first = 0;
  (void)recorder.visit(header.life, [&](const FlightEntry& entry) {
    if (!is_open) {
      first = entry.event == FlightEvent::kRunning ? 0 : entry.number;
      open(header, first == 0 ? header.time_us : entry.time_us, first, signal);
      is_open = true;
    }
    event(header, entry);
  });
  if (!is_open) open(header, header.time_us, 0, signal);
}

int EventDump::finish() noexcept {
  flush();
  return error_;
}

void EventDump::open(const FlightRecorder::Header& header, std::int64_t time_us,
                     std::uint64_t overwritten, int signal) noexcept {
  begin("open", time_us, header);
  put(",");
  put(header.fields.view());
  field("overwritten", overwritten);
  if (signal != 0) field("signal", static_cast<std::uint64_t>(signal));
  put("}\n");
}

void EventDump::event(const FlightRecorder::Header& header, const FlightEntry& entry) noexcept {
  const Names names = names_of(entry.event);
  begin(names.event, entry.time_us, header);
  field("function", entry.function.view());
  if (entry.node != 0) field("node", entry.node);
  field("generation", entry.generation);
  field(entry.event == FlightEvent::kEvict ? "replays" : "function_replays", entry.replays);
  if (entry.us >= 0) field("us", static_cast<std::uint64_t>(entry.us));
  if (!entry.reason.view().empty()) field(names.reason, entry.reason.view());
  if (!entry.what.view().empty()) field(names.what, entry.what.view());
  put("}\n");
}

void EventDump::begin(std::string_view event, std::int64_t time_us,
                      const FlightRecorder::Header& header) noexcept {
  put("{\"event\":");
  quote(event);
  field("time_us", static_cast<std::uint64_t>(time_us));
  field("context", header.context.view());
  field("process", static_cast<std::uint64_t>(header.process));
}

void EventDump::field(std::string_view key, std::string_view text) noexcept {
  put(",");
  quote(key);
  put(":");
  quote(text);
}

void EventDump::field(std::string_view key, std::uint64_t value) noexcept {
  put(",");
  quote(key);
  put(":");
  number(value);
}

void EventDump::quote(std::string_view text) noexcept {
  put("\"");
  while (!text.empty()) {
    const std::size_t length = length_of_character(text);
    const char first = text[0];
    if (length == 0) {
      put("\xEF\xBF\xBD");  // the replacement character
    } else if (first == '"' || first == '\\') {
      put("\\");
      put(text.substr(0, 1));
    } else if (static_cast<unsigned char>(first) < 0x20) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      put("\\u00");
      put(kDigits.substr(static_cast<unsigned char>(first) / 16, 1));
      put(kDigits.substr(static_cast<unsigned char>(first) % 16, 1));
    } else {
      put(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  put("\"");
}

void EventDump::number(std::uint64_t number) noexcept {
  std::array<char, 20> digits;
  std::size_t begin = digits.size();
  do {
    digits[--begin] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  put({digits.data() + begin, digits.size() - begin});
}

void EventDump::put(std::string_view text) noexcept {
  while (!text.empty()) {
    if (used_ == buffer_.size()) flush();
    const std::size_t fits = std::min(text.size(), buffer_.size() - used_);
    std::memcpy(buffer_.data() + used_, text.data(), fits);
    used_ += fits;
    text.remove_prefix(fits);
  }
}

void EventDump::flush() noexcept {
  std::size_t done = 0;
  if (text_ != nullptr && error_ == 0) {
    try {
      text_->append(buffer_.data(), used_);
    } catch (...) {
      error_ = ENOMEM;
    }
    done = used_;
  }
  while (done < used_ && error_ == 0) {
    const ssize_t written = ::write(file_, buffer_.data() + done, used_ - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  used_ = 0;
}

}  // namespace cgtree
