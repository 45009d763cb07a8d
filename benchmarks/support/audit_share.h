// AuditShare: the share of addresses in recordings that the audit could attribute, summed up.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cgtree/values/options.h"
#include "interop/device/graph_api.h"

namespace cgtree::benchmarks {

// Returns the audits of all recordings of a snapshot (docs/snapshot.md) as one object:
//
//   recordings        how many
//   addresses         words of kernels, and sides of copies and memsets, that are addresses
//   by_owner          those, by whose memory it is
//   attributed        the share that is not foreign; null without addresses
//   foreign, unseen   lists: what, and in how many nodes
nlohmann::ordered_json audit_share(const std::string& snapshot);

// Counts the words that the audit reads; for ContextOptions::before_first_launch. Nodes that cgtree
// adds for copied inputs are counted, too.
struct ScannedWords {
  std::size_t nodes = 0;
  std::size_t kernels = 0;
  std::size_t words = 0;      // of eight bytes, of parameters
  std::size_t undecoded = 0;  // nodes

  // Throws DeviceError.
  void add(GraphAPI& graphs, std::span<const GraphHandle> captured);
};

// Adds nodes, kernels, words and undecoded to a row.
void add_to(nlohmann::ordered_json& row, const ScannedWords& scanned);

}  // namespace cgtree::benchmarks
