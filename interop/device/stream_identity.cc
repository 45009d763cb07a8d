// The table of the streams that have been named, by handle and by identity.
#include "interop/device/stream_identity.h"

#include <array>
#include <atomic>
#include <compare>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/frame.h"
#include "base/log_event.h"
#include "base/mutex.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"

namespace cgtree {
namespace {

using Number = std::optional<std::uint64_t>;  // the device's own; none if it could not be queried

// The handle of a created stream is unique among the devices of a kind; the legacy stream has the
// same handle on each.
struct HandleKey {
  DeviceAPI* api;
  int device;  // -1 for a created stream
  StreamHandle handle;

  auto operator<=>(const HandleKey&) const = default;
};

struct KnownStream {
  StreamIdentity identity = StreamIdentity::kNone;
  Number number;

  // Returns false if the device's number shows that it is another stream.
  bool is_of(const Number& other) const noexcept {
    return identity != StreamIdentity::kNone && (!number || !other || number == other);
  }
};

struct KnownStreams {
  Mutex<LockRank::kLeaf> mutex;
  std::map<HandleKey, KnownStream> by_handle;
  std::unordered_map<StreamIdentity, StreamRef> by_identity;
};

KnownStreams& known_streams() {
  static auto* const made = new KnownStreams;  // outlives every static that uses it
  return *made;
}

std::atomic<std::uint64_t> g_given{0};    // identities
std::atomic<std::uint64_t> g_retired{0};  // streams

StreamIdentity next_identity() noexcept {
  return static_cast<StreamIdentity>(g_given.fetch_add(1, std::memory_order_relaxed) + 1);
}

bool is_legacy(StreamRef stream) noexcept {
  return stream.handle() == StreamHandle::kNull || stream.handle() == StreamHandle::kLegacy;
}

HandleKey key_of(StreamRef stream) noexcept {
  if (is_legacy(stream)) return {&stream.api(), stream.device().id, StreamHandle::kLegacy};
  return {&stream.api(), -1, stream.handle()};
}

// A query of a capturing stream invalidates the capture. The legacy stream is never queried: it
// never ends, and a blocking stream may begin to capture at any time.
bool may_be_asked(StreamRef stream) {
  if (is_legacy(stream)) return false;
  GraphAPI* const graphs = stream.api().graphs();
  if (graphs == nullptr) return true;
  CaptureInfo info;
  check(graphs->capture_info(stream.handle(), &info), "query whether a stream captures");
  return info.status == CaptureStatus::kNone;
}

Number number_of(StreamRef stream) {
  if (!may_be_asked(stream)) return std::nullopt;
  std::uint64_t number = 0;
  const Code code = stream.api().stream_number(stream.device().id, stream.handle(), &number);
  if (code == Code::kNotSupported) return std::nullopt;
  check(code, "ask a stream for its number");
  return number;
}

// Returns the stream with its own device, which callers may not know.
StreamRef with_device(StreamRef stream) {
  int id = 0;
  if (!may_be_asked(stream) || !ok(stream.api().stream_device(stream.handle(), &id))) return stream;
  return StreamRef(stream.api(), {stream.device().type, id}, stream.handle());
}

// The per-thread default streams of a thread, one for each device.
struct OfThread {
  DeviceAPI* api;
  int device;
  KnownStream entry;
};

// A later thread may get the stream of one that has ended, under a new identity.
StreamIdentity identity_on_thread(StreamRef stream) {
  auto& streams = of_thread<std::vector<OfThread>>();
  const Number number = number_of(stream);
  for (OfThread& known : streams) {
    if (known.api != &stream.api() || known.device != stream.device().id) continue;
    if (!known.entry.is_of(number)) known.entry.identity = next_identity();
    if (number) known.entry.number = number;
    return known.entry.identity;
  }
  streams.push_back({&stream.api(), stream.device().id, {next_identity(), number}});
  return streams.back().entry.identity;
}

// Identities that a thread has requested lately, by handle.
struct Recent {
  StreamRef stream;
  StreamIdentity identity = StreamIdentity::kNone;
  std::uint64_t retired = 0;
};

}  // namespace

StreamIdentity identity_of(StreamRef stream) {
  if (!stream) return StreamIdentity::kNone;
  if (stream.is_per_thread()) return identity_on_thread(stream);
  const Number number = number_of(stream);
  KnownStreams& known = known_streams();
  {
    const std::lock_guard lock(known.mutex);
    const auto found = known.by_handle.find(key_of(stream));
    if (found != known.by_handle.end() && found->second.is_of(number)) {
      if (number) found->second.number = number;
      return found->second.identity;
    }
  }
  const StreamRef named = with_device(stream);  // without the mutex
  StreamIdentity made = StreamIdentity::kNone;
  bool is_gone = false;
  {
    const std::lock_guard lock(known.mutex);
    KnownStream& entry = known.by_handle[key_of(stream)];
    if (entry.identity != StreamIdentity::kNone) {
      if (entry.is_of(number)) return entry.identity;  // another thread has named it meanwhile
      is_gone = true;
    }
    made = next_identity();
    known.by_identity.emplace(made, named);
    known.by_identity.erase(entry.identity);
    entry = {made, number};
  }
  if (is_gone) {
    log_event(LogLevel::kWarn,
              "stream_not_retired handle={:#x} what=\"it was destroyed, and another stream has its "
              "handle; call retire_stream() before\"",
              static_cast<std::uintptr_t>(stream.handle()));
  }
  return made;
}

StreamIdentity recent_identity_of(StreamRef stream) {
  const auto bits = static_cast<std::uintptr_t>(stream.handle()) * 0x9e3779b97f4a7c15;
  Recent& slot = of_thread<std::array<Recent, 4>>()[bits >> 62];
  const std::uint64_t retired = g_retired.load(std::memory_order_acquire);
  if (slot.stream != stream || slot.retired != retired) [[unlikely]] {
    slot = {stream, identity_of(stream), retired};
  }
  return slot.identity;
}

StreamRef find_stream(StreamIdentity identity) noexcept {
  KnownStreams& known = known_streams();
  const std::lock_guard lock(known.mutex);
  const auto found = known.by_identity.find(identity);
  return found == known.by_identity.end() ? StreamRef() : found->second;
}

StreamIdentity known_identity_of(StreamRef stream) noexcept {
  if (!stream || stream.is_per_thread()) return StreamIdentity::kNone;
  KnownStreams& known = known_streams();
  const std::lock_guard lock(known.mutex);
  const auto found = known.by_handle.find(key_of(stream));
  return found == known.by_handle.end() ? StreamIdentity::kNone : found->second.identity;
}

void forget_stream(StreamRef stream) noexcept {
  if (!stream || stream.is_per_thread()) return;
  {
    KnownStreams& known = known_streams();
    const std::lock_guard lock(known.mutex);
    const auto found = known.by_handle.find(key_of(stream));
    if (found != known.by_handle.end()) {
      known.by_identity.erase(found->second.identity);
      known.by_handle.erase(found);
    }
  }
  g_retired.fetch_add(1, std::memory_order_release);
}

}  // namespace cgtree
