// Finding: one fault, or one remark, on the graphs of a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cgtree::graph_check {

// Microseconds since 1970.
using Time = std::int64_t;

// The number of a call stack; 0: none was taken.
enum class StackId : std::uint32_t { kNone = 0 };

// The first seven are faults: a replay computes with other data than the program means, or fails.
// The others are remarks.
enum class FindingKind : std::uint8_t {
  kFreed,       // launched after memory of its parameters was freed
  kReused,      // the same, and the address was allocated again
  kUnmapped,    // launched after virtual memory of its parameters was unmapped
  kRefused,     // a call failed inside a capture whose graph is used
  kLegacy,      // work on the legacy stream ran at once, during a capture of its thread
  kPageable,    // a copy node uses pageable host memory
  kAllocating,  // a launch failed: the memory of the launch before is not freed
  kRecaptured,  // the same nodes were captured again and again
  kLeaked,      // executables that newer ones of their stack have replaced
  kUnlaunched,  // executables that were never launched
};
inline constexpr std::size_t kFindingKinds = 10;

// Returns "freed", "reused", ...: the name in tables, JSON and --fail-on.
std::string_view name(FindingKind kind) noexcept;

inline bool is_fault(FindingKind kind) noexcept {
  return kind <= FindingKind::kAllocating;
}

struct Finding {
  FindingKind kind = FindingKind::kFreed;
  std::uint32_t graph = 0;       // by the order in which graphs were captured or instantiated
  std::uint32_t executable = 0;  // by the order of instantiation; 0: the finding is on the graph
  StackId captured = StackId::kNone;
  StackId instantiated = StackId::kNone;
  std::uint32_t node = 0;  // by the order of the graph; of a fault of memory
  std::string node_text;   // "kernel 'axpy'"
  std::string place;       // "parameter 2 (byte 8)", "the source"
  std::uintptr_t address = 0;
  std::string memory;               // "byte 16 of 4096 bytes of cuMemAlloc_v2"
  std::string call;                 // the call that freed, failed or ran at once; with its result
  StackId called = StackId::kNone;  // from where
  std::string again;                // kReused: the new allocation
  StackId allocated = StackId::kNone;
  std::size_t words = 0;       // of parameters that lie in the memory
  std::uint64_t launches = 0;  // since the memory was freed
  std::uint64_t count = 1;     // of findings that differ in the graph alone, or of executables
  std::size_t bytes = 0;       // of device memory that executables take, an estimate
  double per_second = 0;       // kRecaptured
};

}  // namespace cgtree::graph_check
