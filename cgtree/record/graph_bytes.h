// Estimates the device memory of executable graphs, which no function of the driver returns.
//
// Source: measured by benchmarks/process_bench, H200, driver 580, CUDA 13.0. A graph takes memory
// for each of its parallel branches, and for each kernel node:
//
//   one kernel                        114,688 + 2,304
//   a chain of 100 kernels            114,688 + 100 * 2,304
//   4 chains of 25, joined            4 * 114,688 + 100 * 2,304
//
// Up to 100 nodes the estimate is right to a few hundredths. The driver takes memory in pieces of 2
// MiB, which graphs share; large graphs leave up to a fifth of a piece unused. A graph that forks
// again and again may take several branches more.
#pragma once

#include <cstddef>

namespace cgtree {

inline constexpr std::size_t kGraphBytesPerBranch = 114'688;
inline constexpr std::size_t kGraphBytesPerNode = 2'304;

// Returns the estimate for a graph without branches whose nodes are small kernels.
constexpr std::size_t graph_bytes_of_chain(std::size_t nodes) noexcept {
  return nodes == 0 ? 0 : kGraphBytesPerBranch + nodes * kGraphBytesPerNode;
}

}  // namespace cgtree
