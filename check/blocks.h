// Blocks: events of caching allocators, which the driver does not see.
#pragma once

#include <string_view>
#include <vector>

#include "check/ledger.h"

namespace cgtree::graph_check {

struct Blocks {
  std::vector<BlockEvent> events;  // in the order of time
  std::vector<BlockRange> kept;    // segments of graphs' own pools
};

// Reads a snapshot of PyTorch's allocator as cgtree_check/hooks/sitecustomize.py writes it, in
// lines: "TIME,allocate,ADDRESS,BYTES,WHERE", the same with "free", and "0,kept,ADDRESS,BYTES,".
// TIME is in microseconds since 1970, ADDRESS is hexadecimal.
Blocks read_torch_blocks(std::string_view text);

// Reads a log of RMM, whose rows have the time of day; `now` says of which day. Source: RMM's
// logging_resource_adaptor: Thread,Time,Action,Pointer,Size,Stream. Both leave out other lines.
Blocks read_rmm_log(std::string_view text, Time now);

}  // namespace cgtree::graph_check
