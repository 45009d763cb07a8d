// ReportFacts: the facts that a report is made from, read from a snapshot or the lines of an event
// file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/values/explanation.h"
#include "cgtree/values/metrics.h"
#include "cgtree/values/stats.h"
#include "extensions/sizes/suggest_buckets.h"

namespace cgtree {

// A dynamic axis of a function, and the sizes that calls had along it.
struct AxisFacts {
  std::string axis;
  std::uint64_t actual = 0;  // the sum of the sizes
  std::uint64_t padded = 0;  // the sum of the same sizes as they are padded
  std::vector<std::int64_t> buckets;
  std::vector<SizeCount> sizes;  // the most frequent, and the largest
};

// One function; of an event file, all functions of one name. Of the counters, those of calls by
// outcome, skips and evictions are filled in.
struct FunctionFacts {
  std::string name;
  FunctionStats stats;
  FunctionCauses causes;  // none of a snapshot or an event file of an earlier library
  std::vector<AxisFacts> axes;
};

// An input that the root node copies at each replay.
struct CopiedInput {
  std::uint32_t input = 0;
  std::uint64_t bytes = 0;
};

// One recording, also one that was evicted, if an event file tells of it. Numbers that the source
// does not have are 0.
struct RecordingFacts {
  std::size_t function = 0;  // index into ReportFacts::functions
  std::uint64_t us = 0;      // that recording took, in microseconds
  std::uint64_t footprint_bytes = 0;
  std::uint64_t graph_bytes = 0;
  std::uint64_t replays = 0;
  bool has_moved = true;  // an input had moved at a replay, as far as is known
  // The first mismatch of the nearest recording; kNone for a first recording.
  Mismatch cause;
  std::vector<CopiedInput> copied;
  std::vector<std::string> foreign;  // references to memory that is not known to live as long
};

// One context, as of the snapshot or of the last event.
struct ReportFacts {
  std::string context;
  std::string device;
  std::uint64_t generations = 0;
  std::uint64_t live_outputs = 0;
  std::uint64_t live_bytes = 0;
  std::uint64_t pool_bytes = 0;
  std::uint64_t graph_bytes = 0;
  std::vector<FunctionFacts> functions;
  std::vector<RecordingFacts> recordings;
  std::map<std::string, ReplayTimes> times;   // of functions that were timed; no histograms
  std::map<std::string, std::uint64_t> held;  // outputs that are held, by function, if known
  bool has_replays = true;                    // false: the source does not tell of replays
  std::uint64_t left_out = 0;                 // lines that are no events
};

// Returns the facts of a snapshot, or of each context of an event file in the order in which they
// appear there. A line that is cut or no event is left out. Throws InvalidArgument for a text that
// is neither, and for a snapshot of another version.
std::vector<ReportFacts> read_facts(std::string_view text);

}  // namespace cgtree
