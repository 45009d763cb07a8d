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
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/frame.h"
#include "cgtree/context.h"
#include "cgtree/steps.h"
#include "cgtree/values/graph_scope.h"
#include "interop/device/device_api.h"

namespace {

using cgtree::InvalidArgument;
using cgtree::str_format;

constexpr std::size_t kMostKeyBytes = 56;  // as text they fill a key

// Returns the fields of a struct that the caller's header knows; the others are 0.
template <typename Struct>
Struct known_part_of(const Struct* given, std::string_view name) {
  Struct all = {};
  if (given == nullptr) return all;
  if (given->struct_size < sizeof(std::size_t) || given->struct_size > sizeof(Struct)) {
    throw InvalidArgument(str_format("struct_size of {} is {}, where this library knows {}", name,
                                     given->struct_size, sizeof(Struct)));
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

cgtree::ContextOptions context_options(const cgs_options& options) {
  cgtree::ContextOptions made;
  made.max_recordings = most_recordings(options);
  if (options.max_graph_bytes != 0) made.max_graph_bytes = options.max_graph_bytes;
  made.at_limit = cgtree::AtLimit::kEvict;
  return made;
}

cgtree::StepsOptions steps_options(std::span<const cgs_binding> bindings,
                                   const cgs_options& options) {
  cgtree::StepsOptions made;
  for (const cgs_binding& binding : bindings) {
    const char* const name = binding.name == nullptr ? "" : binding.name;
    if (((binding.flags & CGS_HOST) != 0) != (binding.host_bytes != 0)) {
      throw InvalidArgument(
          str_format("binding '{}' has {} host_bytes, and {} the flag CGS_HOST: both, or neither",
                     name, binding.host_bytes, binding.flags & CGS_HOST ? "has" : "lacks"));
    }
    made.bindings.push_back({.name = name,
                             .is_copied = (binding.flags & CGS_COPIED) != 0,
                             .is_mutated = (binding.flags & CGS_WRITTEN) != 0,
                             .host_bytes = binding.host_bytes});
  }
  made.capture_mode = options.captures_strictly != 0 ? cgtree::CaptureMode::kThreadLocal
                                                     : cgtree::CaptureMode::kRelaxed;
  made.enabled = options.runs_eagerly == 0;
  made.max_recordings = most_recordings(options);
  made.at_limit = cgtree::AtLimit::kEvict;
  return made;
}

// The message of this thread's last failure without a cgs_steps.
struct LastFailure {
  std::string message;
};

#ifndef CGS_DEVICE_TYPE
#define CGS_DEVICE_TYPE kCuda
#endif

// A cgs_steps is the address of a Door. It is no class of its own: functions of a class that C
// knows could be seen.
struct Door {
  Door(cgtree::Device on, const char* name, std::span<const cgs_binding> bindings,
       const cgs_options& options)
      : device(on),
        key_names(words_of(options.key_names)),
        context(device, context_options(options)),
        steps(context, name, steps_options(bindings, options)) {}

  // Returns the key of the bytes. Those of the last call have it already.
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
  std::optional<std::string> key_bytes;  // of `key`
  cgtree::Key key;
  std::vector<cgtree::Binding> bindings;  // of the last call
  // Of the last call that was warmed up or recorded.
  cgtree::Outcome outcome = cgtree::Outcome::kThrow;
  std::string difference;               // why it was no replay
  std::atomic<bool> is_inside = false;  // a thread
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
    for (const char byte : bytes)
      text += str_format("{:02x}", static_cast<unsigned char>(byte));
    return cgtree::Key{{"key", text}};
  }

  cgtree::Key key_of_numbers(std::string_view bytes) const {
    if (bytes.size() != key_names.size() * sizeof(std::int64_t)) {
      throw InvalidArgument(str_format("a key of {} bytes, where {} names stand for {} bytes",
                                       bytes.size(), key_names.size(),
                                       key_names.size() * sizeof(std::int64_t)));
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

// Returns the status of the exception that is handled, and keeps its message.
int status_of_failure(std::string& message) noexcept {
  const auto say = [&](const char* text, int status) noexcept {
    try {
      message = text;
    } catch (...) {
      message.clear();
    }
    return status;
  };
  try {
    throw;
  } catch (const InvalidArgument& error) {
    return say(error.what(), CGS_INVALID);
  } catch (const cgtree::StaleTensor& error) {
    return say(error.what(), CGS_INVALID);
  } catch (const cgtree::OutOfMemory& error) {
    return say(error.what(), CGS_OUT_OF_MEMORY);
  } catch (const cgtree::DeviceError& error) {
    return say(error.what(), CGS_DEVICE);
  } catch (const cgtree::ConcurrentUse& error) {
    return say(error.what(), CGS_BUSY);
  } catch (const std::bad_alloc&) {
    return say("no memory of the host is left", CGS_OUT_OF_MEMORY);
  } catch (const std::exception& error) {
    return say(error.what(), CGS_FAILED);
  } catch (...) {
    return say("an exception of the work that is no std::exception", CGS_FAILED);
  }
}

// Runs the body of a function. `steps` may be null: then nothing is done.
template <typename Body>
int guarded(cgs_steps* steps, const Body& body) noexcept {
  if (steps == nullptr) {
    cgtree::of_thread<LastFailure>().message = "the cgs_steps is null";
    return CGS_INVALID;
  }
  Door& door = *door_of(steps);
  if (door.is_inside.exchange(true, std::memory_order_acquire)) {
    cgtree::of_thread<LastFailure>().message = "another thread is inside the cgs_steps";
    return CGS_BUSY;
  }
  int status = CGS_FAILED;
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

// Calls that run without a graph may be many, and have a reason.
void note_difference(Door& door, const cgtree::Step& step) {
  if (step.outcome() == cgtree::Outcome::kRunEagerly) return;
  door.outcome = step.outcome();
  door.difference = difference(step.why());
  if (!door.difference.empty()) door.difference.insert(0, ": ");
}

int open(cgs_steps** made, const char* name, cgtree::Device device, const cgs_binding* bindings,
         std::size_t count, const cgs_options* options) noexcept {
  std::string& message = cgtree::of_thread<LastFailure>().message;
  message.clear();
  if (made != nullptr) *made = nullptr;
  try {
    if (made == nullptr || name == nullptr || (bindings == nullptr && count > 0)) {
      throw InvalidArgument(str_format("cgs_open() with a null {}", made == nullptr ? "result"
                                                                    : name == nullptr
                                                                        ? "name"
                                                                        : "array of bindings"));
    }
    auto* const door =
        new Door(device, name, {bindings, count}, known_part_of(options, "cgs_options"));
    *made = reinterpret_cast<cgs_steps*>(door);
    return CGS_DONE;
  } catch (...) {
    return status_of_failure(message);
  }
}

}  // namespace

int cgs_open(cgs_steps** steps, const char* name, int device, const cgs_binding* bindings,
             size_t count, const cgs_options* options) {
  return open(steps, name, {cgtree::DeviceType::CGS_DEVICE_TYPE, device}, bindings, count, options);
}

int cgs_begin(cgs_steps* steps, const void* key, size_t key_bytes, const cgs_range* ranges,
              size_t count, CUstream_st* stream) {
  return guarded(steps, [&](Door& door) {
    if (door.open) {
      throw InvalidArgument(
          "cgs_begin() while a step is open: cgs_end() or cgs_leave() comes first");
    }
    if ((key == nullptr && key_bytes > 0) || (ranges == nullptr && count > 0)) {
      throw InvalidArgument(str_format("cgs_begin() with a null {}", key == nullptr && key_bytes > 0
                                                                         ? "key"
                                                                         : "array of ranges"));
    }
    door.bindings.resize(count);
    for (std::size_t i = 0; i < count; ++i)
      door.bindings[i] = {ranges[i].address, ranges[i].bytes};
    const cgtree::StreamRef on(
        cgtree::device_api(door.device), door.device,
        static_cast<cgtree::StreamHandle>(reinterpret_cast<std::uintptr_t>(stream)));
    cgtree::Step step = door.steps.begin(door.key_of(key, key_bytes), door.bindings, on);
    if (!step.must_run()) return CGS_DONE;
    note_difference(door, step);
    door.open.emplace(std::move(step));
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

int cgs_is_captured(const cgs_steps* steps) {
  const Door* const door = door_of(steps);
  return door != nullptr && door->open && door->open->is_captured();
}

int cgs_end(cgs_steps* steps) {
  return guarded(steps, [&](Door& door) {
    if (!door.open) throw InvalidArgument("cgs_end() without an open step");
    try {
      door.open->end();
    } catch (...) {
      if (!door.open->must_run()) door.open.reset();
      throw;
    }
    if (door.open->must_run()) return CGS_RUN;
    door.open.reset();
    return CGS_DONE;
  });
}

int cgs_leave(cgs_steps* steps) {
  return guarded(steps, [&](Door& door) {
    door.open.reset();
    return CGS_DONE;
  });
}

int cgs_refuse(cgs_steps* steps, const char* why) {
  return guarded(steps, [&](Door&) {
    cgtree::refuse_capture(why == nullptr ? "" : why);
    return CGS_DONE;
  });
}

int cgs_invalidate(cgs_steps* steps, const void* address, size_t bytes) {
  return guarded(steps, [&](Door& door) {
    (void)door.steps.invalidate(address, bytes);
    return CGS_DONE;
  });
}

int cgs_freeze(cgs_steps* steps, int on) {
  return guarded(steps, [&](Door& door) {
    if (on != 0) {
      door.steps.freeze();
    } else {
      door.steps.unfreeze();
    }
    return CGS_DONE;
  });
}

int cgs_release(cgs_steps* steps) {
  return guarded(steps, [&](Door& door) {
    (void)door.context.release_memory();
    return CGS_DONE;
  });
}

const char* cgs_why(cgs_steps* steps) {
  if (steps == nullptr) return cgtree::of_thread<LastFailure>().message.c_str();
  Door& door = *door_of(steps);
  if (door.has_failed) return door.why.c_str();
  try {
    const std::optional<cgtree::CallOutcome> last = door.steps.last_outcome();
    door.why = last ? to_string(*last) : "no call has ended";
    if (last && last->skip_reason) door.why.append(": ") += explain(*last->skip_reason);
    if (last && last->outcome == door.outcome) door.why += door.difference;
  } catch (...) {
    (void)status_of_failure(door.why);
  }
  return door.why.c_str();
}

int cgs_get_stats(const cgs_steps* steps, cgs_stats* stats) {
  std::string& message = cgtree::of_thread<LastFailure>().message;
  try {
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
    return CGS_DONE;
  } catch (...) {
    return status_of_failure(message);
  }
}

void cgs_close(cgs_steps* steps) {
  delete door_of(steps);
}
