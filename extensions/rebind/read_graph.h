// read_graph(): a captured graph in the form in which it is compared with another.
#pragma once

#include "cgtree/record/recording.h"
#include "extensions/rebind/address_words.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"

namespace cgtree {

inline constexpr const char* kBreakIsOpaque = "what an eager_break() uses cannot be seen";

// Reads a graph whose capture has ended, and the host memory that it reads. Parts that cannot be
// read make it opaque. Throws std::bad_alloc.
GraphContents read_graph(DeviceAPI& api, const Graph& graph);
// Notes the host memory that the nodes read. Throws std::bad_alloc.
void read_host_memory(DeviceAPI& api, GraphContents& contents);

// Returns whether the library added the node to a graph of the recording.
bool is_root_or_tail(const Recording& recording, NodeHandle node);

}  // namespace cgtree
