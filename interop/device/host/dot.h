// A graph in the language of Graphviz.
#pragma once

#include <string>

#include "interop/device/host/graph.h"

namespace cgtree::host {

// A node a line: its number, what it does, and to which addresses; then an edge a line. A child
// graph is a cluster.
std::string to_dot(const Graph& graph);

// "kernel axpy", "copy of 64 bytes", ...
std::string describe(const Work& work);

}  // namespace cgtree::host
