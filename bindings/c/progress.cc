// ProgressWatch in C: where replays hang.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "bindings/c/sized_struct.h"
#include "extensions/progress/progress_json.h"
#include "extensions/watch/monitor.h"

namespace cgtree::capi {
namespace {

ProgressOptions options_of_c(const cgt_progress_options* given) {
  constexpr const char* kWhat = "cgt_progress_options";
  const auto read = read_struct(given, kWhat);
  check_flags(
      read.flags,
      CGT_PROGRESS_BEHIND_LIMIT_ALONE | CGT_PROGRESS_NO_TIME_LIMIT | CGT_PROGRESS_TIMES_SCOPES,
      kWhat);
  ProgressOptions options;
  if (read.every_nth_replay != 0) options.every_nth_replay = read.every_nth_replay;
  if ((read.flags & CGT_PROGRESS_BEHIND_LIMIT_ALONE) != 0) options.every_nth_replay = 0;
  if (read.time_limit_milliseconds != 0) {
    options.time_limit =
        std::chrono::milliseconds(std::min<std::uint64_t>(read.time_limit_milliseconds, INT32_MAX));
  }
  if ((read.flags & CGT_PROGRESS_NO_TIME_LIMIT) != 0) options.time_limit = {};
  options.times_scopes = (read.flags & CGT_PROGRESS_TIMES_SCOPES) != 0;
  if (read.on_timeout != nullptr) {
    options.on_timeout = [function = read.on_timeout, user = read.user](const std::string& text) {
      function(user, text.c_str());
    };
  }
  return options;
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_progress_watch_create(const cgt_progress_options* options, cgt_progress_watch* out) {
  return write_result(out, [&] {
    return WatchTable::make(std::make_shared<ProgressWatch>(options_of_c(options)));
  });
}

cgt_status cgt_progress_watch_destroy(cgt_progress_watch watch) {
  return guarded([&] { WatchTable::destroy(watch); });
}

cgt_status cgt_progress_watch_report(cgt_progress_watch watch, const char** text) {
  return write_text(text, [&] { return to_string((*WatchTable::pin(watch))->report()); });
}

cgt_status cgt_progress_watch_json(cgt_progress_watch watch, const char** text) {
  return write_text(text, [&] { return progress_json((*WatchTable::pin(watch))->report()); });
}

cgt_status cgt_context_watch_progress(cgt_context context, cgt_progress_watch watch) {
  return guarded([&] {
    std::shared_ptr<ProgressWatch> shared;
    if (watch != nullptr) shared = *WatchTable::pin(watch);
    watch_progress(*ContextTable::pin(context), std::move(shared));
  });
}

}  // extern "C"
