// Ledger: the memory, captures, executables and launches of a program, and the faults that follow
// from them.
//
// A word of a kernel's parameters is an address if it lies in memory that is allocated when the
// graph is instantiated; so is each range of a copy or memset. An allocation knows the executables
// that refer to it. Freeing it marks them; a launch of a marked executable is a finding. A launch
// of another one counts, and compares nothing.
//
// Example:
//
//   allocate 0x7000, 4096 bytes            allocation 1
//   instantiate k(0x7010) as executable 1  executable 1 refers to allocation 1
//   free 0x7000                            executable 1 is marked
//   launch executable 1                    finding: freed, parameter 0, byte 16 of 4096 bytes
//
// No CUDA is called here. Thread safety: none; callers hold a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check/finding.h"
#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"

namespace cgtree::graph_check {

// A stack is taken where a finding may need it, and not at each call.
using TakeStack = std::function<StackId()>;

// A capturing stream, as calls name it.
struct StreamKey {
  std::uintptr_t stream = 0;
  std::uint64_t thread = 0;  // of the stream of each thread; else 0

  auto operator<=>(const StreamKey&) const = default;
};

// Mappings come back where the program maps them again; the memory of a node belongs to its graph,
// and is there again at each launch.
enum class MemoryKind : std::uint8_t { kPlain, kMapping, kOfNode };

constexpr auto kInto = static_cast<GraphHandle>(-1);  // see Ledger::end_capture()

// A range of memory.
struct BlockRange {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
};

// The nodes of a graph, as far as they can be read.
struct GraphContents {
  std::vector<NodeContents> nodes;
  std::size_t bytes = 0;  // of device memory that an executable takes, an estimate
  std::uint64_t flags = 0;
  std::vector<BlockRange> older;      // allocations that no call has told, which the driver knows
  std::set<std::uintptr_t> pageable;  // addresses of copies: host memory, if in no allocation
};

// The flags of instantiation that matter. Source: CUgraphInstantiate_flags.
inline constexpr std::uint64_t kAutoFreeOnLaunch = 1;
inline constexpr std::uint64_t kDeviceLaunch = 4;

// One allocation or free of a caching allocator, inside of memory of the driver.
struct BlockEvent {
  Time time = 0;
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  bool is_free = false;
  std::string where;  // the source line, or ""
};

// Numbers for a report.
struct LedgerTotals {
  std::uint64_t graphs = 0;
  std::uint64_t instantiated = 0;
  std::uint64_t updates = 0;
  std::uint64_t alive = 0;
  std::size_t bytes_alive = 0;
  std::uint64_t launches = 0;
  std::uint64_t nodes = 0;
  std::uint64_t unread_nodes = 0;
  std::uint64_t forgotten_nodes = 0;
  std::uint64_t dangling = 0;  // executables alive with freed memory, not launched since
};

class Ledger {
 public:
  // `call` is the name of the function, which is a literal or outlives the ledger. A range that
  // overlaps others replaces them. Returns a number that no other allocation has.
  std::uint64_t allocate(std::uintptr_t address, std::size_t bytes, const char* call,
                         MemoryKind kind, const TakeStack& take);
  // Returns the number of the allocation that begins at the address, or 0. The range that the
  // driver tells may be larger than an allocation: a block of a pool.
  std::uint64_t number_at(std::uintptr_t address) const noexcept;
  // Frees the allocation that begins at the address, if it has that number still.
  void free(std::uintptr_t address, std::uint64_t number, const char* call, const TakeStack& take);
  // Unmaps all mappings in the range.
  void unmap(std::uintptr_t address, std::size_t bytes, const char* call, const TakeStack& take);

  // `into` is null, or a graph that is there.
  void begin_capture(StreamKey stream, std::uint64_t thread, StackId stack,
                     GraphHandle into = GraphHandle::kNull);
  // `graph` is null for a capture that failed, and kInto for the graph that it was to go into.
  void end_capture(StreamKey stream, GraphHandle graph);
  // The next two are of calls while captures are open. The capture is that of the stream, or of the
  // thread, or, of a call with a stream, the only one.
  void refuse(StreamKey stream, std::uint64_t thread, std::string call, const TakeStack& take);
  void use_legacy_stream(std::uint64_t thread, const char* call, const TakeStack& take);
  std::size_t open_captures() const noexcept { return captures_.size(); }

  void instantiate(GraphHandle graph, ExecHandle exec, GraphContents contents, StackId stack,
                   Time now);
  // The nodes of `exec` are those of `graph` from now on. The flags stay.
  void update(ExecHandle exec, GraphHandle graph, GraphContents contents, StackId stack, Time now);
  // A node of `exec` was given other parameters: it is not looked at any more.
  void forget_node(ExecHandle exec, NodeHandle node);
  void destroy_exec(ExecHandle exec);
  void destroy_graph(GraphHandle graph) { graphs_.erase(graph); }
  void launch(ExecHandle exec, Time now);
  void refuse_launch(ExecHandle exec, std::string call, const TakeStack& take);

  // Returns the words of nodes that may be addresses, and lie in no allocation.
  std::set<std::uintptr_t> unknown_words(std::span<const NodeContents> nodes) const;

  // From now on executables that end are kept for add_blocks().
  void expect_blocks() noexcept { expects_blocks_ = true; }
  // Compares the events of a caching allocator with the executables that are kept: a block that was
  // freed after an executable took its address and before its last launch is a finding. `source`
  // names the allocator. `events` are in the order of time.
  void add_blocks(std::string_view source, std::span<const BlockEvent> events,
                  std::span<const BlockRange> kept);

  // The findings so far, in the order in which they were made. Each stays at its index; counts and
  // kinds may change.
  const std::deque<Finding>& findings() const noexcept { return findings_; }
  // The remarks that are known at the end alone.
  std::vector<Finding> remarks() const;

  LedgerTotals totals() const;

 private:
  struct Word {
    std::uintptr_t address;
    std::size_t bytes;
    std::uint32_t node;
    std::uint16_t parameter;
    std::uint16_t offset;  // into the parameter; of a copy or memset 0

    bool overlaps(std::uintptr_t begin, std::size_t size) const noexcept {
      return address < begin + size && begin < address + bytes;
    }
  };
  struct Node {
    NodeHandle handle;
    NodeType type;
    std::shared_ptr<const KernelLayout> kernel;
    bool writes_first;  // of a copy or memset: NodeMemory::is_written of memory 0
  };
  struct Allocation {
    std::size_t bytes = 0;
    std::uint64_t number = 0;
    const char* call = "";
    MemoryKind kind = MemoryKind::kPlain;
    mutable std::vector<std::uint32_t> users;  // numbers of executables; some may be gone
  };
  // Memory that executables refer to, and that is gone.
  struct Gone {
    std::uintptr_t address = 0;
    Allocation memory;
    std::string call;
    StackId called = StackId::kNone;
    std::string again;  // allocated again, as this
    StackId allocated = StackId::kNone;
  };
  struct Stale {
    std::shared_ptr<const Gone> gone;
    std::size_t finding;     // findings_[finding], or kNone
    std::uint64_t from = 0;  // launches of the executable when it was freed
  };
  struct Event {
    std::string call;
    StackId called;
  };
  struct Graph {
    std::uint32_t number = 0;
    StackId captured = StackId::kNone;
    std::vector<Event> refused;
    std::vector<Event> legacy;
  };
  struct Capture {
    std::uint64_t thread;
    GraphHandle into;
    Graph graph;
  };
  // The executables and updates of the captures of one stack with nodes of one form.
  struct Form {
    std::uint64_t made = 0;
    std::uint64_t launches = 0;
    Time first = 0;
    Time last = 0;
    std::uint32_t graph = 0;
  };
  // The executables that were instantiated for one stack.
  struct Site {
    StackId stack = StackId::kNone;
    std::uint64_t made = 0;
    std::uint64_t destroyed_unlaunched = 0;
  };
  struct Exec {
    std::uint32_t number = 0;
    std::uint32_t graph = 0;
    StackId captured = StackId::kNone;
    StackId made = StackId::kNone;
    std::uint64_t flags = 0;
    std::size_t bytes = 0;
    std::vector<Node> nodes;
    std::vector<Word> words;  // by address
    std::vector<Stale> stale;
    Form* form = nullptr;  // null if the graph was not captured
    Site* site = nullptr;
    Time made_at = 0;
    Time launched_at = 0;
    std::uint64_t launches = 0;
    std::uint64_t made_before = 0;  // executables of the site at the last launch
    std::uint64_t unfreed = 0;      // allocation nodes without a node that frees
  };
  static constexpr std::size_t kNone = SIZE_MAX;
  using Allocations = std::map<std::uintptr_t, Allocation>;
  using Captures = std::map<StreamKey, Capture>;

  Captures::iterator capture_of(std::uint64_t thread);
  Graph& graph_of(GraphHandle handle);
  Exec* find(ExecHandle handle) const noexcept;
  Allocations::const_iterator allocation_of(std::uintptr_t address) const noexcept;
  void take_away(Allocations::const_iterator allocation, const char* call, const TakeStack& take);
  void note_again(std::uintptr_t address, const Allocation& by, const TakeStack& take);
  std::vector<const Word*> lost(const Exec& exec, const Gone& gone) const;
  void read(Exec& exec, const Graph& graph, GraphContents contents, Time now);
  void read_kernel(Exec& exec, std::uint32_t node, const NodeContents& contents);
  void read_memory(Exec& exec, std::uint32_t node, const NodeContents& contents,
                   const GraphContents& all);
  void refer(Exec& exec, const Word& word, const Allocation& memory);
  void tell_stale(Exec& exec);
  Finding finding_of(const Exec& exec, FindingKind kind) const;
  void describe(const Exec& exec, const Word& word, Finding& finding) const;
  void tell_events(const Graph& graph, const Exec& exec);
  // The host does not launch executables that are made for launches by the device.
  static bool is_unlaunched(const Exec& exec) noexcept {
    return exec.launches == 0 && (exec.flags & kDeviceLaunch) == 0;
  }
  std::size_t add(Finding finding);

  Allocations allocations_;
  std::vector<std::shared_ptr<Gone>> gone_;  // those that executables have, and some more
  Captures captures_;
  std::unordered_map<GraphHandle, Graph> graphs_;
  std::unordered_map<ExecHandle, std::unique_ptr<Exec>> execs_;
  std::unordered_map<std::uint32_t, Exec*> by_number_;
  std::deque<std::unique_ptr<Exec>> ended_;  // if blocks are expected; the newest
  bool expects_blocks_ = false;
  std::map<std::pair<StackId, std::uint64_t>, Form> forms_;
  std::map<StackId, Site> sites_;
  std::deque<Finding> findings_;
  // Findings by kind, stacks, node and place: equal ones are one.
  std::map<std::tuple<FindingKind, StackId, StackId, std::string, std::string>, std::size_t> told_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> told_blocks_;  // executable, word
  std::uint64_t next_allocation_ = 1;
  LedgerTotals totals_;
};

}  // namespace cgtree::graph_check
