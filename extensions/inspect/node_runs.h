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

// Code around runs; null for none.
struct NodeHooks {
  std::function<void()> before;              // the first run
  std::function<void(std::size_t i)> after;  // node `i`
};

// Leaves `nodes`, which are those of the executable graph, out of launches of it, and launches
// those of `order` alone, until one has failed. Writes into the report.
void run_nodes(ExecHandle exec, std::span<const NodeContents> nodes,
               std::span<const std::size_t> order, const RecordingFacts& facts, StreamRef stream,
               InspectionReport& report, const NodeHooks& hooks = {});
// The context's work from now on waits for all that use memory of the recording, as a replay does.
void wait_for_others(FoundRecording& found);
// As launch_replay(), of a second executable graph, whose nodes run alone.
void run_as_replay(FoundRecording& found, const RecordingFacts& facts, InspectionReport& report,
                   const NodeHooks& hooks = {});

}  // namespace cgtree
