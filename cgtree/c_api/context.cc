// Contexts in C.
#include <chrono>
#include <utility>

#include "cgtree/c_api/convert.h"
#include "cgtree/c_api/handles.h"
#include "cgtree/c_api/json.h"
#include "cgtree/c_api/options.h"
#include "cgtree/c_api/sized_struct.h"
#include "cgtree/c_api/status.h"

namespace cgtree::capi {

template <>
inline constexpr std::size_t kFirstSize<cgt_context_options> = offsetof(cgt_context_options,
                                                                        release);

namespace {

ContextOptions context_options(const cgt_context_options* given) {
  constexpr std::string_view kWhat = "cgt_context_options";
  const cgt_context_options read = read_struct(given, kWhat);
  ContextOptions options;
  // From here on it is released whatever happens.
  if (read.release != nullptr) {
    options.owner = std::shared_ptr<void>(read.owner, Release{read.release});
  }
  check_flags(read.flags,
              CGT_CONTEXT_CHECKED | CGT_CONTEXT_EVENTS_OF_REPLAYS | CGT_CONTEXT_POOLS_GROW_IN_PLACE,
              kWhat);
  if (read.stream != nullptr) options.stream = stream_of_c(*read.stream);
  if (read.max_bytes != 0) options.max_bytes = read.max_bytes;
  if (read.max_recordings != 0) options.max_recordings = read.max_recordings;
  if (read.max_graph_bytes != 0) options.max_graph_bytes = read.max_graph_bytes;
  if (read.max_recording_microseconds != 0) {
    options.max_recording_time = std::chrono::microseconds(static_cast<std::int64_t>(
        std::min<std::uint64_t>(read.max_recording_microseconds, INT64_MAX)));
  }
  if (read.event_file != nullptr) options.event_file = read.event_file;
  options.at_limit = at_limit_of_c(read.at_limit);
  options.checked = (read.flags & CGT_CONTEXT_CHECKED) != 0;
  options.pools_grow_in_place = (read.flags & CGT_CONTEXT_POOLS_GROW_IN_PLACE) != 0;
  options.event_file_has_replays = (read.flags & CGT_CONTEXT_EVENTS_OF_REPLAYS) != 0;
  return options;
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_context_create(cgt_device device, const cgt_context_options* options,
                              cgt_context* out) {
  return guarded([&] {
    ContextOptions read = context_options(options);
    required(out, "the place for the context");
    Context context(device_of_c(device), std::move(read));
    *out = handle_of<cgt_context>(
        contexts().make(std::move(context), std::make_shared<std::atomic<bool>>(false)));
  });
}

cgt_status cgt_context_destroy(cgt_context context) {
  return guarded([&] {
    if (context != nullptr) contexts().destroy(number_of(context), "the context");
  });
}

cgt_status cgt_context_mark_step(cgt_context context) {
  return guarded([&] {
    const auto pin = context_of(context);
    expect_not_abandoned(*pin);
    pin->context.mark_step();
  });
}

cgt_status cgt_context_synchronize(cgt_context context) {
  return guarded([&] { context_of(context)->context.synchronize(); });
}

cgt_status cgt_context_stream(cgt_context context, cgt_stream* out) {
  return guarded([&] {
    required(out, "the place for the stream") = to_c(context_of(context)->context.stream());
  });
}

cgt_status cgt_context_stats_json(cgt_context context, char* buffer, size_t capacity,
                                  size_t* length) {
  return guarded([&] {
    const auto pin = context_of(context);
    expect_not_abandoned(*pin);
    write_text(to_json(pin->context.stats()), buffer, capacity, length);
  });
}

cgt_status cgt_context_snapshot_json(cgt_context context, char* buffer, size_t capacity,
                                     size_t* length) {
  return guarded([&] {
    const auto pin = context_of(context);
    expect_not_abandoned(*pin);
    write_text(pin->context.snapshot_json(), buffer, capacity, length);
  });
}

}  // extern "C"
