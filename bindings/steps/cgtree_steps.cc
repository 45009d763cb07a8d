// The C functions of cgtree_steps.h over Steps, with a context for each.
#include "bindings/steps/cgtree_steps.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/frame.h"
#include "cgtree/context.h"
#include "cgtree/record/step.h"
#include "cgtree/steps.h"
#include "cgtree/tree/tree.h"
#include "extensions/rebind/sessions.h"
#include "interop/device/device_api.h"

namespace {

using cgtree::InvalidArgument;
using cgtree::str_format;

constexpr std::size_t kMostKeyBytes = 56;  // as text they fill a key
constexpr unsigned kFlags = CGS_COPIED | CGS_WRITTEN | CGS_HOST | CGS_SESSION;

// Returns the fields of a struct that the caller's header knows; the others are 0.
template <typename Struct>
Struct known_part_of(const Struct* given, std::string_view name) {
  Struct all = {};
  if (given == nullptr) return all;
  if (given->struct_size < sizeof(std::size_t) || given->struct_size > sizeof(Struct) ||
      given->struct_size % alignof(Struct) != 0) {
    throw InvalidArgument(
        str_format("struct_size of {} is {}, where this library knows {}: set it to sizeof({}), of "
                   "the cgtree_steps.h that belongs to it",
                   name, given->struct_size, sizeof(Struct), name));
  }
  std::memcpy(&all, given, given->struct_size);
  return all;
}

std::vector<std::string> words_of(const char* text) {
  std::vector<std::string> words;
  for (std::string_view rest = text == nullptr ? "" : text; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    if (end > 0) words.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return words;
}

std::size_t most_recordings(const cgs_options& options) {
  return options.max_recordings == 0 ? 128 : options.max_recordings;
}

cgtree::ContextOptions context_options(std::span<const cgs_binding> bindings,
                                       const cgs_options& options) {
  cgtree::ContextOptions made;
  made.max_recordings = most_recordings(options);
  if (options.max_graph_bytes != 0) made.max_graph_bytes = options.max_graph_bytes;
  made.at_limit = cgtree::AtLimit::kEvict;
  const bool has_sessions = std::ranges::any_of(
      bindings, [](const cgs_binding& binding) { return (binding.flags & CGS_SESSION) != 0; });
  if (has_sessions) made.extensions = {cgtree::serve_sessions()};
  return made;
}

cgtree::StepsOptions steps_options(std::span<const cgs_binding> bindings,
                                   const cgs_options& options) {
  cgtree::StepsOptions made;
  for (const cgs_binding& binding : bindings) {
    const char* const name = binding.name == nullptr ? "" : binding.name;
    if ((binding.flags & ~kFlags) != 0) {
      throw InvalidArgument(
          str_format("binding '{}' has flags {:#x}, where this library knows {:#x}", name,
                     binding.flags, kFlags));
    }
    if (((binding.flags & CGS_HOST) != 0) != (binding.host_bytes != 0)) {
      throw InvalidArgument(
          str_format("binding '{}' has {} host_bytes, and {} the flag CGS_HOST: both, or neither",
                     name, binding.host_bytes, binding.flags & CGS_HOST ? "has" : "lacks"));
    }
    made.bindings.push_back({.name = name,
                             .is_copied = (binding.flags & CGS_COPIED) != 0,
                             .is_mutated = (binding.flags & CGS_WRITTEN) != 0,
                             .host_bytes = binding.host_bytes,
                             .is_per_session = (binding.flags & CGS_SESSION) != 0});
  }
  made.capture_mode = options.captures_strictly != 0 ? cgtree::CaptureMode::kThreadLocal
                                                     : cgtree::CaptureMode::kRelaxed;
  made.enabled = options.runs_eagerly == 0;
  made.keeps_allocations = options.keeps_allocations != 0;
  made.max_recordings = most_recordings(options);
  made.at_limit = cgtree::AtLimit::kEvict;
  return made;
}

// Returns a text of the core with the names of cgtree_steps.h.
std::string spelled(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"ContextOptions::", "cgs_options."},
      {"CompileOptions::", "cgs_options."},
      {"compiled with enabled = false", "cgs_options.runs_eagerly is set"},
      {"BindingOptions::host_bytes", "CGS_HOST and cgs_binding.host_bytes"},
      {"leave is_copied and is_mutated false", "no other flag goes with CGS_HOST"},
      {"allocate_device_memory() or with empty()", "cudaMalloc()"},
      {"inside a step function allocate with empty() or Workspace, or free there",
       "free in the work"},
      {"is_per_session", "CGS_SESSION"},
      {"cgt_step_leave()", "cgs_leave()"},
      {"release_memory()", "cgs_release()"},
  };
  std::string made(text);
  for (const auto& [core, ours] : kNames) {
    for (std::size_t at = made.find(core); at != std::string::npos;
         at = made.find(core, at + ours.size()))
      made.replace(at, core.size(), ours);
  }
  return made;
}

// Keeps the message, and returns the status.
int told(std::string& message, std::string_view text, int status) noexcept {
  try {
    message = spelled(text);
  } catch (...) {
    message.clear();
  }
  return status;
}

// The message of this thread's last failure without a cgs_steps.
struct LastFailure {
  std::string message;
};

int told_on_thread(std::string_view text, int status) noexcept {
  return told(cgtree::of_thread<LastFailure>().message, text, status);
}

struct Door;

// The cgs_steps with an open step on this thread. A thread that ends abandons its step.
struct OpenOnThread {
  ~OpenOnThread();

  Door* door = nullptr;
};

#ifndef CGS_DEVICE_TYPE
#define CGS_DEVICE_TYPE kCuda
#endif

// A cgs_steps points to a Door. It is not a class: functions of a class that C knows could be seen.
struct Door {
  Door(cgtree::Device on, const char* name, std::span<const cgs_binding> bindings,
       const cgs_options& options)
      : device(on),
        key_names(words_of(options.key_names)),
        context(device, context_options(bindings, options)),
        steps(context, name, steps_options(bindings, options)) {
    if (!key_names.empty()) (void)key_of_numbers(std::string(bytes_of_names(), 0));  // or throws
  }
  ~Door() { close(); }

  // Keeps the step until close(), or until its thread ends.
  void keep(cgtree::Step step) {
    cgtree::of_thread<OpenOnThread>().door = this;
    thread = std::this_thread::get_id();
    open.emplace(std::move(step));
  }
  // Requires: the step was begun on this thread.
  void close() noexcept {
    if (!open) return;
    open.reset();
    cgtree::of_thread<OpenOnThread>().door = nullptr;
  }
  void check_closed(std::string_view function) const {
    if (!open) return;
    throw InvalidArgument(
        str_format("{} while a step of '{}' is open: cgs_end() or cgs_leave() comes first",
                   function, steps.name()));
  }

  // Returns the key of the bytes. The last call's bytes already have one.
  const cgtree::Key& key_of(const void* bytes, std::size_t size) {
    const std::string_view given(static_cast<const char*>(bytes), size);
    if (key_bytes && given == *key_bytes) return key;
    key_bytes.reset();
    key = key_names.empty() ? key_of_bytes(given) : key_of_numbers(given);
    key_bytes = given;
    return key;
  }

  const cgtree::Device device;
  const std::vector<std::string> key_names;
  cgtree::Context context;
  cgtree::Steps steps;
  std::optional<cgtree::Step> open;      // while the work must run
  std::thread::id thread;                // of `open`
  std::optional<std::string> key_bytes;  // of `key`
  cgtree::Key key;
  std::vector<cgtree::Binding> bindings;  // of the last call
  // Outcome of the last call that was warmed up or recorded.
  cgtree::Outcome outcome = cgtree::Outcome::kThrow;
  std::string difference;               // why it was not a replay
  std::atomic<bool> is_inside = false;  // true while a thread is inside
  bool has_failed = false;              // the last function; `why` has its message
  std::string why;

 private:
  static cgtree::Key key_of_bytes(std::string_view bytes) {
    if (bytes.empty()) return {};
    if (bytes.size() > kMostKeyBytes) {
      throw InvalidArgument(
          str_format("a key of {} bytes, of which there are at most {}: pass a hash of it, "
                     "if you trust the hash",
                     bytes.size(), kMostKeyBytes));
    }
    std::string text;
    for (const unsigned char byte : bytes)
      text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
    return cgtree::Key{{"key", text}};
  }

  std::size_t bytes_of_names() const { return key_names.size() * sizeof(std::int64_t); }

  cgtree::Key key_of_numbers(std::string_view bytes) const {
    if (bytes.size() != bytes_of_names()) {
      throw InvalidArgument(str_format("a key of {} bytes, where {} names stand for {} bytes",
                                       bytes.size(), key_names.size(), bytes_of_names()));
    }
    std::vector<cgtree::Key::Part> parts;
    for (std::size_t i = 0; i < key_names.size(); ++i) {
      std::int64_t number = 0;
      std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
      parts.emplace_back(key_names[i], number);
    }
    return cgtree::Key(parts);
  }
};

Door* door_of(cgs_steps* steps) noexcept {
  return reinterpret_cast<Door*>(steps);
}
const Door* door_of(const cgs_steps* steps) noexcept {
  return reinterpret_cast<const Door*>(steps);
}

// Another thread may be about to read that the step is open.
OpenOnThread::~OpenOnThread() {
  if (door == nullptr) return;
  while (door->is_inside.exchange(true, std::memory_order_acquire))
    std::this_thread::yield();
  door->open.reset();
  door->is_inside.store(false, std::memory_order_release);
}

// Returns the status of the exception in flight, and keeps its message.
int status_of_failure(std::string& message) noexcept {
  try {
    throw;
  } catch (const InvalidArgument& error) {
    return told(message, error.message(), CGS_INVALID);
  } catch (const cgtree::OutOfMemory& error) {
    return told(message, error.message(), CGS_OUT_OF_MEMORY);
  } catch (const cgtree::DeviceError& error) {
    return told(message, error.message(), CGS_DEVICE);
  } catch (const cgtree::Error& error) {
    return told(message, error.message(), CGS_FAILED);
  } catch (const std::bad_alloc&) {
    return told(message, "no memory of the host is left", CGS_OUT_OF_MEMORY);
  } catch (const std::exception& error) {
    return told(message, error.what(), CGS_FAILED);
  } catch (...) {
    return told(message, "an exception of unknown type", CGS_FAILED);
  }
}

// Lets this thread in, or returns CGS_BUSY: another thread is inside, or has a step open.
int enter(Door& door) noexcept {
  if (door.is_inside.exchange(true, std::memory_order_acquire))
    return told_on_thread("another thread is inside the cgs_steps: use it on one at a time",
                          CGS_BUSY);
  if (!door.open || door.thread == std::this_thread::get_id()) return CGS_DONE;
  door.is_inside.store(false, std::memory_order_release);
  return told_on_thread("a step is open on another thread: end or leave it there", CGS_BUSY);
}

// Runs the body of a function. `steps` may be null: then nothing is done.
template <typename Body>
int guarded(cgs_steps* steps, const Body& body) noexcept {
  if (steps == nullptr) return told_on_thread("the cgs_steps is null", CGS_INVALID);
  Door& door = *door_of(steps);
  int status = enter(door);
  if (status != CGS_DONE) return status;
  try {
    door.has_failed = false;
    status = body(door);
  } catch (...) {
    door.has_failed = true;
    status = status_of_failure(door.why);
  }
  door.is_inside.store(false, std::memory_order_release);
  return status;
}

// Calls that run without a graph may be many, and have another reason.
void note_difference(Door& door, const cgtree::Step& step) {
  if (step.outcome() == cgtree::Outcome::kRunEagerly) return;
  door.outcome = step.outcome();
  door.difference = difference(step.why());
  if (!door.difference.empty()) door.difference.insert(0, ": ");
}

// Returns why the last call ran without a graph: the present answer, if it has the same SkipReason.
std::string reason_of(Door& door, cgtree::SkipReason reason) {
  try {
    const cgtree::Explanation now = door.steps.explain(door.key, door.bindings);
    if (now.skip_reason == reason) return difference(now);
  } catch (const cgtree::Error&) {  // in a step, or the memory is gone
  }
  return std::string(explain(reason));
}

std::string text_of(Door& door) {
  const std::optional<cgtree::CallOutcome> last = door.steps.last_outcome();
  if (!last) return "no call has ended";
  std::string text = to_string(*last);
  if (last->skip_reason) text.append(": ") += reason_of(door, *last->skip_reason);
  if (last->outcome == cgtree::Outcome::kThrow)
    text.append(": ") += door.steps.stats().last_failure;
  if (last->outcome == door.outcome && !door.open) text += door.difference;
  return text;
}

// Runs the body of a function without a cgs_steps, whose failure the thread keeps.
template <typename Body>
int told_to_thread(Body body) noexcept {
  try {
    body();
    return CGS_DONE;
  } catch (...) {
    return status_of_failure(cgtree::of_thread<LastFailure>().message);
  }
}

cgtree::StreamRef on(cgtree::Device device, CUstream_st* stream) {
  return {cgtree::device_api(device), device,
          static_cast<cgtree::StreamHandle>(reinterpret_cast<std::uintptr_t>(stream))};
}

int open(cgs_steps** made, const char* name, cgtree::Device device, const cgs_binding* bindings,
         std::size_t count, const cgs_options* options) noexcept {
  cgtree::of_thread<LastFailure>().message.clear();
  if (made != nullptr) *made = nullptr;
  return told_to_thread([&] {
    if (made == nullptr || name == nullptr || (bindings == nullptr && count > 0)) {
      throw InvalidArgument(str_format("cgs_open() with a null {}", made == nullptr ? "result"
                                                                    : name == nullptr
                                                                        ? "name"
                                                                        : "array of bindings"));
    }
    auto* const door =
        new Door(device, name, {bindings, count}, known_part_of(options, "cgs_options"));
    *made = reinterpret_cast<cgs_steps*>(door);
  });
}

}  // namespace

int cgs_open(cgs_steps** steps, const char* name, int device, const cgs_binding* bindings,
             size_t count, const cgs_options* options) {
  return open(steps, name, {cgtree::DeviceType::CGS_DEVICE_TYPE, device}, bindings, count, options);
}

int cgs_begin(cgs_steps* steps, const void* key, size_t key_bytes, const cgs_range* ranges,
              size_t count, CUstream_st* stream) {
  return guarded(steps, [&](Door& door) {
    door.check_closed("cgs_begin()");
    if ((key == nullptr && key_bytes > 0) || (ranges == nullptr && count > 0)) {
      throw InvalidArgument(str_format("cgs_begin() with a null {}", key == nullptr && key_bytes > 0
                                                                         ? "key"
                                                                         : "array of ranges"));
    }
    door.bindings.resize(count);
    for (std::size_t i = 0; i < count; ++i)
      door.bindings[i] = {ranges[i].bytes == 0 ? nullptr : ranges[i].address, ranges[i].bytes};
    cgtree::Step step =
        door.steps.begin(door.key_of(key, key_bytes), door.bindings, on(door.device, stream));
    if (!step.must_run()) return CGS_DONE;
    note_difference(door, step);
    door.keep(std::move(step));
    return CGS_RUN;
  });
}

void* cgs_address(cgs_steps* steps, size_t i) {
  void* address = nullptr;
  (void)guarded(steps, [&](Door& door) {
    if (door.open) address = door.open->address(i);
    return CGS_DONE;
  });
  return address;
}

int cgs_guard(cgs_steps* steps, const char* name, int64_t (*ask)(void* data), void* data,
              int64_t* answer) {
  return guarded(steps, [&](Door& door) {
    if (name == nullptr || *name == '\0' || ask == nullptr || answer == nullptr)
      throw InvalidArgument("cgs_guard() with a null argument, or an empty name");
    if (!door.open)
      throw InvalidArgument("cgs_guard() without an open step: cgs_begin() comes first");
    using Asked = std::pair<int64_t (*)(void*), void*>;
    const auto call = [](void* one) -> cgtree::Guard::Answer {
      const auto& [function, with] = *static_cast<const Asked*>(one);
      return {static_cast<std::uint64_t>(function(with))};
    };
    cgtree::GuardsOfStep* const guards = cgtree::frame().guards;
    cgtree::Guard guard{name, std::make_shared<Asked>(ask, data), call, {}, sizeof(Asked)};
    *answer =
        guards == nullptr ? ask(data) : static_cast<std::int64_t>(guards->ask(std::move(guard))[0]);
    return CGS_DONE;
  });
}

int cgs_is_captured(const cgs_steps* steps) {
  const Door* const door = door_of(steps);
  return door != nullptr && door->open && door->open->is_captured();
}

int cgs_end(cgs_steps* steps) {
  return guarded(steps, [&](Door& door) {
    if (!door.open)
      throw InvalidArgument("cgs_end() without an open step: cgs_begin() comes first");
    try {
      door.open->end();
    } catch (...) {
      if (!door.open->must_run()) door.close();
      throw;
    }
    if (door.open->must_run()) return CGS_RUN;
    door.close();
    return CGS_DONE;
  });
}

int cgs_leave(cgs_steps* steps) {
  return guarded(steps, [&](Door& door) {
    door.close();
    return CGS_DONE;
  });
}

int cgs_refuse(cgs_steps* steps, const char* why) {
  return guarded(steps, [&](Door& door) {
    if (!door.open) throw InvalidArgument("cgs_refuse() without an open step: it is for the work");
    door.open->refuse(why == nullptr ? "" : why);
    return CGS_DONE;
  });
}

int cgs_invalidate(cgs_steps* steps, const void* address, size_t bytes) {
  return guarded(steps, [&](Door& door) {
    door.check_closed("cgs_invalidate()");
    (void)door.steps.invalidate(address, bytes);
    return CGS_DONE;
  });
}

int cgs_retire_stream(int device, CUstream_st* stream) {
  return told_to_thread([&] {
    if (stream != nullptr)
      cgtree::retire_stream(on({cgtree::DeviceType::CGS_DEVICE_TYPE, device}, stream));
  });
}

int cgs_freeze(cgs_steps* steps, int is_frozen) {
  return guarded(steps, [&](Door& door) {
    if (is_frozen != 0) {
      door.steps.freeze();
    } else {
      door.steps.unfreeze();
    }
    return CGS_DONE;
  });
}

int cgs_release(cgs_steps* steps) {
  return guarded(steps, [&](Door& door) {
    door.check_closed("cgs_release()");
    (void)door.context.release_memory();
    return CGS_DONE;
  });
}

const char* cgs_why(cgs_steps* steps) {
  if (steps == nullptr) return cgtree::of_thread<LastFailure>().message.c_str();
  Door& door = *door_of(steps);
  if (door.has_failed) return door.why.c_str();
  try {
    door.why = spelled(text_of(door));
  } catch (...) {
    (void)status_of_failure(door.why);
  }
  return door.why.c_str();
}

int cgs_get_stats(const cgs_steps* steps, cgs_stats* stats) {
  return told_to_thread([&] {
    if (steps == nullptr || stats == nullptr)
      throw InvalidArgument("cgs_get_stats() with a null argument");
    const cgtree::ContextStats all = door_of(steps)->context.stats();
    const std::size_t size = known_part_of(stats, "cgs_stats").struct_size;
    const cgs_stats told = {.struct_size = size,
                            .calls = all.calls,
                            .warm_ups = all.warm_ups,
                            .recordings = all.recordings,
                            .replays = all.replays,
                            .eager = all.skipped(),
                            .failures = all.failures,
                            .evictions = all.evictions,
                            .kept = all.kept_recordings,
                            .graph_bytes = all.graph_bytes};
    std::memcpy(stats, &told, size);
  });
}

int cgs_close(cgs_steps* steps) {
  if (steps == nullptr) return CGS_DONE;
  const int status = enter(*door_of(steps));
  if (status == CGS_DONE) delete door_of(steps);
  return status;
}
