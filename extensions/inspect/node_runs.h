// Runs of the nodes of a recording, each alone.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "extensions/inspect/found_recording.h"
#include "extensions/inspect/inspect.h"
#include "extensions/inspect/recording_facts.h"
#include "interop/device/node_contents.h"
#include "interop/device/stream.h"

namespace cgtree {

// Code around runs; null for no code.
struct NodeHooks {
  std::function<void()> before;              // the first run
  std::function<void(std::size_t i)> after;  // node `i`
};

// Excludes `nodes`, which are those of the executable graph, from its launches, and launches those
// of `order` alone, one by one, until one fails. Writes into the report.
void run_nodes(ExecHandle exec, std::span<const NodeContents> nodes,
               std::span<const std::size_t> order, const RecordingFacts& facts, StreamRef stream,
               InspectionReport& report, const NodeHooks& hooks = {});
// Later work of the context waits for all users of the recording's memory, as in a replay.
void wait_for_others(FoundRecording& found);
// As launch_replay(), with a second executable graph, whose nodes run one by one.
void run_as_replay(FoundRecording& found, const RecordingFacts& facts, InspectionReport& report,
                   const NodeHooks& hooks = {});

}  // namespace cgtree
