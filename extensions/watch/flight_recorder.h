// FlightRecorder: the last events of a context, in memory, to be written after a failure.
//
// Recorders are never freed: a context that ends gives its recorder back, and a later context takes
// it. So a signal handler can visit all of them without a lock, at any time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>
#include <type_traits>

namespace cgtree {

// A SharedRecord holds a T that one thread writes and others read, without a lock: a read that
// overlaps with a write fails.
template <typename T>
class SharedRecord {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);

 public:
  void write(const T& value) noexcept {
    std::array<std::uint64_t, kWords> words;
    std::memcpy(words.data(), &value, sizeof(T));
    const std::uint64_t sequence = sequence_.load(std::memory_order_relaxed);
    sequence_.store(sequence + 1, std::memory_order_relaxed);
    // A reader that sees one of these words sees the odd sequence, too.
    for (std::size_t i = 0; i < kWords; ++i)
      words_[i].store(words[i], std::memory_order_release);
    sequence_.store(sequence + 2, std::memory_order_release);
  }

  // Returns false if the value was being written; then `value` is not changed.
  bool read(T& value) const noexcept {
    const std::uint64_t sequence = sequence_.load(std::memory_order_acquire);
    if (sequence % 2 != 0) return false;
    std::array<std::uint64_t, kWords> words;
    for (std::size_t i = 0; i < kWords; ++i)
      words[i] = words_[i].load(std::memory_order_acquire);
    if (sequence_.load(std::memory_order_relaxed) != sequence) return false;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
    return true;
  }

 private:
  static constexpr std::size_t kWords = sizeof(T) / sizeof(std::uint64_t);

  std::atomic<std::uint64_t> sequence_{0};
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

// A ShortText holds the beginning of a text. A text that was cut ends in "...".
template <std::size_t kBytes>
class ShortText {
 public:
  ShortText() = default;
  explicit ShortText(std::string_view text) noexcept { *this += text; }
  ShortText& operator+=(std::string_view text) noexcept {
    const std::size_t length = view().size();
    const std::size_t fits = std::min(text.size(), kBytes - 1 - length);
    std::memcpy(bytes_.data() + length, text.data(), fits);
    bytes_[length + fits] = '\0';
    if (fits < text.size()) std::memcpy(bytes_.data() + kBytes - 4, "...", 3);
    return *this;
  }
  std::string_view view() const noexcept { return {bytes_.data(), strnlen(bytes_.data(), kBytes)}; }

 private:
  std::array<char, kBytes> bytes_{};
};

enum class FlightEvent : std::uint8_t {
  kWarmUp,
  kRecord,
  kSkip,
  kEvict,
  kDrop,
  kDemote,
  kVerify,
  kFailure,
  kRunning,  // a call other than a replay has begun and not ended
};

// The names of an event and of the two fields that its entry keeps as texts, as in the event file;
// "": no field.
struct FlightNames {
  std::string_view event;
  std::string_view reason;  // for FlightEntry::reason
  std::string_view what;    // for FlightEntry::what
  bool ends_call;           // ends the running call
};

// In the order of FlightEvent.
inline constexpr FlightNames kFlightNames[] = {
    {"warm_up", "", "", true},
    {"record", "", "what", true},
    {"skip", "reason", "what", true},
    {"evict", "limit", "", false},
    {"drop", "", "what", false},
    {"demote", "", "name", false},
    {"verify", "left_out", "what", true},
    {"failure", "", "what", true},
    {"running", "call", "reason", false},
};

static_assert(std::size(kFlightNames) == static_cast<std::size_t>(FlightEvent::kRunning) + 1);

inline const FlightNames& names_of(FlightEvent event) noexcept {
  return kFlightNames[static_cast<std::size_t>(event)];
}

// One event. Its fields depend on its kind (docs/events.md).
struct FlightEntry {
  std::int64_t time_us = 0;  // since the epoch
  std::int64_t us = -1;      // duration of the call; -1: not known
  std::uint64_t generation = 0;
  std::uint64_t replays = 0;  // of the function, before the event
  std::uint64_t number = 0;   // of the context's events; set by the recorder
  std::uint32_t node = 0;     // the recording; 0: no recording
  std::uint32_t life = 0;     // of the recorder; set by it
  ShortText<32> reason;       // a name: of a skip, of a limit, of the running call
  ShortText<48> function;
  ShortText<96> what;
  FlightEvent event = FlightEvent::kRunning;
  std::array<std::uint8_t, 7> unused = {};
};

class FlightRecorder {
 public:
  static constexpr std::size_t kEvents = 1000;  // kept events

  // The fields of the context, which all its events share.
  struct Header {
    std::int64_t time_us = 0;  // when the context was made
    std::int64_t process = 0;
    std::uint32_t life = 0;  // counts the contexts that the recorder has had
    std::uint32_t is_open = 0;
    std::uint32_t rank = 0;
    std::uint32_t ranks = 0;  // 0: the context is not in a group
    ShortText<128> context;   // the name
    ShortText<64> device;
    ShortText<256> host;
  };

  // Returns a recorder without events, for a context. Throws std::bad_alloc.
  static FlightRecorder& take(Header header);
  // Must be called when the context ends. The recorder must not be used any more.
  void give_back() noexcept;

  // For the thread that is inside the context.
  void add(FlightEntry entry) noexcept;
  void set_running(FlightEntry entry) noexcept;
  void clear_running() noexcept;

  // The next are for any thread, and for signal handlers.
  // Returns false if no context has it, or the context is being made or ends.
  bool header(Header& header) const noexcept;
  // Calls visit(entry) for each kept event, the oldest first, and then for the running call, if
  // there is one. Leaves out events that are overwritten meanwhile. Returns how many older events
  // were overwritten.
  template <typename Visit>
  std::uint64_t visit(std::uint32_t life, Visit&& visit) const noexcept {
    const std::uint64_t end = count_.load(std::memory_order_acquire);
    const std::uint64_t begin = end > kEvents ? end - kEvents : 0;
    FlightEntry entry;
    for (std::uint64_t i = begin; i < end; ++i) {
      if (events_[i % kEvents].read(entry) && entry.number == i && entry.life == life) visit(entry);
    }
    if (running_.read(entry) && entry.life == life) visit(entry);
    return begin;
  }
  // Calls visit(recorder) for each recorder.
  template <typename Visit>
  static void for_each(Visit&& visit) noexcept {
    for (FlightRecorder* one = first_.load(std::memory_order_acquire); one != nullptr;
         one = one->next_)
      visit(*one);
  }

 private:
  FlightRecorder() = default;

  static constinit std::atomic<FlightRecorder*> first_;

  FlightRecorder* next_ = nullptr;  // constant once it is in the list
  std::atomic<bool> is_taken_{true};
  std::uint32_t life_ = 0;
  SharedRecord<Header> header_;
  std::atomic<std::uint64_t> count_{0};
  SharedRecord<FlightEntry> running_;  // life 0: no call
  std::array<SharedRecord<FlightEntry>, kEvents> events_;
};

}  // namespace cgtree
