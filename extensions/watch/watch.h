// Watch: events, metrics and snapshots of a context.
#pragma once

#include <cstddef>
#include <string>

#include "cgtree/values/options.h"

namespace cgtree {

// The options of watch().
struct WatchOptions {
  // A file to which events are appended as lines of JSON (docs/events.md); empty for no file.
  // Events are warm_up, record, skip, evict and failure, and replay if event_file_has_replays is
  // set.
  std::string event_file = "";
  bool event_file_has_replays = false;
  // Measures the device time of every n-th replay of each recording, by two events, which a later
  // replay reads (docs/metrics.md); at most 64 are unread. 0: of no replay.
  std::size_t time_every_nth_replay = 0;
};

// Makes the extension that each context of //:cgtree has. The context throws InvalidArgument if the
// file cannot be opened.
ExtensionFactory watch(WatchOptions options = {});

}  // namespace cgtree
