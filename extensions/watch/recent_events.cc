// Writes the last events of contexts, on request or at a signal.
#include "extensions/watch/recent_events.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/tree/engine.h"
#include "extensions/scopes/utf8.h"
#include "extensions/watch/event_log.h"

namespace cgtree {
namespace {

// An EventDump writes lines to a file or a string. For a file it allocates nothing and makes only
// calls that signal handlers may make, without a lock. After an error it continues without writing.
class EventDump {
 public:
  explicit EventDump(int file) noexcept : file_(file) {}
  // `text`: borrowed.
  explicit EventDump(std::string& text) noexcept : text_(&text) {}

  // `signal`: the signal that requested it, or 0.
  void add(const FlightRecorder& recorder, int signal) noexcept {
    FlightRecorder::Header header;
    if (!recorder.header(header)) return;
    // The line of the context comes first, and says how many events are missing after it.
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

  // Returns 0, or the number of the error.
  int finish() noexcept {
    flush();
    return error_;
  }

 private:
  void open(const FlightRecorder::Header& header, std::int64_t time_us, std::uint64_t overwritten,
            int signal) noexcept {
    begin("open", time_us, header);
    field("device", header.device.view());
    field("host", header.host.view());
    put(",\"has_replays\":false");
    if (header.ranks > 0) {
      field("rank", header.rank);
      field("ranks", header.ranks);
    }
    field("overwritten", overwritten);
    if (signal != 0) field("signal", static_cast<std::uint64_t>(signal));
    put("}\n");
  }

  void event(const FlightRecorder::Header& header, const FlightEntry& entry) noexcept {
    const FlightNames& names = names_of(entry.event);
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

  void begin(std::string_view event, std::int64_t time_us,
             const FlightRecorder::Header& header) noexcept {
    put("{\"event\":");
    quote(event);
    field("time_us", static_cast<std::uint64_t>(time_us));
    field("context", header.context.view());
    field("process", static_cast<std::uint64_t>(header.process));
  }

  void field(std::string_view key, std::string_view text) noexcept {
    put(",");
    quote(key);
    put(":");
    quote(text);
  }

  void field(std::string_view key, std::uint64_t number) noexcept {
    std::array<char, 20> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    put(",");
    quote(key);
    put(":");
    put({digits.data(), end});
  }

  void quote(std::string_view text) noexcept {
    put("\"");
    while (!text.empty()) {
      const std::size_t length = character_bytes(text);
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

  void put(std::string_view text) noexcept {
    while (!text.empty()) {
      if (used_ == buffer_.size()) flush();
      const std::size_t fits = std::min(text.size(), buffer_.size() - used_);
      std::memcpy(buffer_.data() + used_, text.data(), fits);
      used_ += fits;
      text.remove_prefix(fits);
    }
  }

  void flush() noexcept {
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

  int file_ = -1;
  std::string* text_ = nullptr;
  int error_ = 0;
  std::size_t used_ = 0;
  std::array<char, 2048> buffer_;
};

constexpr std::array kCrashes = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
// A process continues after these: the system ignores the first four by default (signal(7)), and
// the last two, which would end it, only request the events.
constexpr std::array kHarmless = {SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGUSR1, SIGUSR2};
// A process stops at these by default, and continues later.
constexpr std::array kStops = {SIGTSTP, SIGTTIN, SIGTTOU};
constexpr std::size_t kMostSignals = 65;  // the highest number of Linux is 64

// The data that signal handlers read. A signal is handled only after all of it was written.
struct OnSignal {
  std::array<std::array<char, 4096>, 2> paths;
  std::atomic<std::size_t> path;  // index of the path
  std::array<struct sigaction, kMostSignals> before;
  std::array<bool, kMostSignals> is_handled;
  std::atomic<bool> is_writing;
};
constinit OnSignal g_on_signal = {};

int open_file(const char* path) noexcept {
  return ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

// Returns 0, or the number of the error. Some file systems report a full disk only at closing.
int close_file(int file) noexcept {
  return ::close(file) == 0 || errno == EINTR ? 0 : errno;
}

void say_that_events_are_lost(const char* path) noexcept {
  for (const char* const text : {"cgtree: the last events cannot be written to ", path, "\n"})
    (void)!::write(STDERR_FILENO, text, std::strlen(text));
}

void dump_all(int signal) noexcept {
  const char* const path = g_on_signal.paths[g_on_signal.path].data();
  const int file = open_file(path);
  if (file < 0) return say_that_events_are_lost(path);
  EventDump dump(file);
  FlightRecorder::for_each([&](const FlightRecorder& one) { dump.add(one, signal); });
  const bool is_written = dump.finish() == 0;
  if (close_file(file) != 0 || !is_written) say_that_events_are_lost(path);
}

// A signal that ends the process must not do so while another thread writes.
void wait_for_writer() noexcept {
  constexpr int kMostMilliseconds = 1000;  // the writer may be this thread, which crashed there
  for (int i = 0; i < kMostMilliseconds && g_on_signal.is_writing; ++i)
    (void)::poll(nullptr, 0, 1);
}

// Takes the default action of the signal now. The handler is installed again when this returns.
void stop(int signal) noexcept {
  struct sigaction ours, by_default = {};
  by_default.sa_handler = SIG_DFL;
  sigset_t only, before;
  (void)::sigemptyset(&only);
  (void)::sigaddset(&only, signal);
  (void)::sigaction(signal, &by_default, &ours);
  (void)::raise(signal);
  (void)::pthread_sigmask(SIG_UNBLOCK, &only, &before);  // the signal is delivered here
  (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  (void)::sigaction(signal, &ours, nullptr);
}

void pass_on(int signal, siginfo_t* info, void* state) noexcept {
  const struct sigaction& before = g_on_signal.before[static_cast<std::size_t>(signal)];
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, state);
  // An ignored fault would recur endlessly: the system ends the process instead.
  const bool is_fault = signal != SIGABRT && std::ranges::count(kCrashes, signal) > 0 &&
                        info != nullptr && info->si_code > 0;
  if (before.sa_handler == SIG_IGN && !is_fault) return;
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    return before.sa_handler(signal);
  }
  if (std::ranges::count(kHarmless, signal) > 0) return;
  if (std::ranges::count(kStops, signal) > 0) return stop(signal);
  (void)::signal(signal, SIG_DFL);
  (void)::raise(signal);  // delivered when the handler returns
}

void on_signal(int signal, siginfo_t* info, void* state) noexcept {
  const int error = errno;
  if (g_on_signal.is_writing.exchange(true)) {
    wait_for_writer();
  } else {
    dump_all(signal);
    g_on_signal.is_writing = false;
  }
  errno = error;
  pass_on(signal, info, state);
}

const FlightRecorder& recorder_of(const Context& context) {
  return event_log_of(*context.share_engine()).recorder();
}

[[noreturn]] void refuse_file(const std::string& path, const char* what, int error) {
  throw InvalidArgument(str_format(
      "the last events cannot be {} '{}': {}; name a file in a folder that exists, may be written "
      "to and has room",
      what, path, std::strerror(error)));
}

}  // namespace

std::string recent_events(const Context& context) {
  std::string text;
  EventDump dump(text);
  dump.add(recorder_of(context), /*signal=*/0);
  if (dump.finish() != 0) throw std::bad_alloc();
  return text;
}

void dump_events(const Context& context, const std::string& path) {
  const int file = open_file(path.c_str());
  if (file < 0) refuse_file(path, "written to", errno);
  EventDump dump(file);
  dump.add(recorder_of(context), /*signal=*/0);
  int error = dump.finish();
  const int closing = close_file(file);
  if (error == 0) error = closing;
  if (error != 0) refuse_file(path, "written completely to", error);
}

void dump_events_on_signal(const std::string& path, std::span<const int> signals) {
  std::array<char, 4096>& other = g_on_signal.paths[1 - g_on_signal.path];
  if (path.empty() || path.size() >= other.size()) {
    throw InvalidArgument(
        str_format("dump_events_on_signal() of a path of {} bytes: give one of 1 to {}",
                   path.size(), other.size() - 1));
  }
  if (signals.empty()) signals = kCrashes;
  for (const int signal : signals) {
    struct sigaction now;
    const bool is_refused = signal == SIGKILL || signal == SIGSTOP || signal <= 0 ||
                            static_cast<std::size_t>(signal) >= kMostSignals ||
                            ::sigaction(signal, nullptr, &now) != 0;
    if (!is_refused) continue;
    throw InvalidArgument(str_format(
        "dump_events_on_signal() of {}, which is no signal that can be handled", signal));
  }
  std::memcpy(other.data(), path.c_str(), path.size() + 1);
  g_on_signal.path = 1 - g_on_signal.path;
  for (const int signal : signals) {
    const auto i = static_cast<std::size_t>(signal);
    if (std::exchange(g_on_signal.is_handled[i], true)) continue;
    (void)::sigaction(signal, nullptr, &g_on_signal.before[i]);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    // SA_ONSTACK: a thread whose stack overflowed may have provided another stack for this.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    (void)::sigemptyset(&action.sa_mask);
    (void)::sigaction(signal, &action, nullptr);
  }
}

}  // namespace cgtree
