// Audit: the memory to which a recording refers, as far as its graph shows it.
//
// A kernel gets addresses as words of its parameters. Each word at a multiple of eight bytes that
// points into memory of a device, or into host memory that a device knows, counts as an address; so
// do both sides of copies, and the range that a memset writes. An address is attributed to the
// first of these that contains it: memory of the recording itself, memory that it keeps alive,
// declared memory. All other memory is foreign: it is not known to live as long as the recording.
//
// Example: f launches k(x, y, table) with x an input, y its output and `table` a static of a
// library.
//
//   node 0, byte 0    x        input 0
//   node 0, byte 8    y        output 0
//   node 0, byte 16   table    foreign, until Context::declare("library's table", table, bytes)
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "allocator/pool/block.h"
#include "cgtree/record/attachment.h"
#include "extensions/scopes/node_scopes.h"
#include "interop/device/device_api.h"
#include "interop/device/node_contents.h"

namespace cgtree {

class MarkedRecording;  // extensions/progress/marked_recording.h
struct Recording;

// Returns the name of a type of nodes, with its article: "a copy".
std::string_view text_of(NodeType type) noexcept;

// The owner of the memory at an address. The first one that applies is used.
enum class MemoryOwner : std::uint8_t {
  kCopySource,  // a copied binding of Steps at the caller's address, and not its copy
  kInput,       // an input: itself, or its copy in the pool
  kOutput,      // an output of the recording
  kWorkspace,   // memory that a step function of the context kept since its warm-up
  kKept,        // a tensor whose address was asked for, or memory that the graph allocates and
                // leaves
  kScratch,     // other memory that the recording, or its graph, allocated
  kLiveOutput,  // an output of an earlier call, whose address the step function knew without asking
  kDeclared,    // see Context::declare()
  kModule,      // a variable of loaded code, as far as the device can tell
  kForeign,
};
// Returns the name in snapshots and events: "input", "foreign", ...
std::string_view name(MemoryOwner owner) noexcept;

// One piece of memory that a recording refers to.
struct UsedMemory {
  MemoryOwner owner = MemoryOwner::kForeign;
  std::uint32_t number = 0;  // of the input, output or slot
  Range range;               // of foreign memory: the allocation; empty if no device knows it
  std::string text;          // name of declared memory; the device's text for foreign memory
};

// One address in the graph.
struct MemoryUse {
  std::uint32_t node = 0;    // in the order of GraphAPI::graph_nodes(), over all graphs
  std::uint32_t offset = 0;  // bytes into the parameters of a kernel; else NodeContents::memory[i]
  Range range;               // of a copy or memset; for a kernel, one byte at the address
  std::uint32_t memory = 0;  // index in Audit::memory
};

// Uses of foreign memory, or of the source of a copy, by the same parameter of the same kernel.
struct ForeignPointer {
  std::string kernel;          // its name in quotes, or "a copy", "a memset"
  std::string place;           // "parameter 2 (byte 16)", or "the source"
  std::uintptr_t address = 0;  // of the first use
  std::uint32_t memory = 0;    // as MemoryUse::memory
  std::size_t nodes = 0;
};

// A copy from or to pageable host memory that belongs to no tensor, is not declared, and is outside
// the program's image: it may be freed before a replay uses it.
struct HostMemoryUse {
  std::uint32_t node = 0;  // as MemoryUse::node
  Range range;
  bool is_written = false;
};

// Nodes that the audit could not read.
struct UnseenNodes {
  std::string what;
  std::size_t nodes = 0;
};

// All addresses that the graphs of a recording refer to.
struct Audit final : Attachment {
  std::vector<MemoryUse> uses;  // in the order of nodes
  std::vector<UsedMemory> memory;
  std::vector<ForeignPointer> foreign;
  std::vector<UnseenNodes> unseen;
  std::optional<HostMemoryUse> host_memory;  // the first use
  NodeScopes scopes;
  bool hands_out_rows = false;    // by a loop (loop_stream.h)
  bool warns_of_foreign = false;  // OnForeignPointer::kWarn
  // The next two are used by the thread that is inside the context: its graphs with marks, if they
  // were wanted, or the reason why they could not be made.
  mutable std::shared_ptr<MarkedRecording> marked;
  mutable std::string why_unmarked;

  // Returns whether a word of a kernel, or the range of a copy or memset, lies in the range.
  bool refers_to(Range range) const noexcept override;
  // Drops its graphs with marks, because they have the old addresses.
  std::shared_ptr<const void> forget_input(std::uint32_t input) noexcept override;
};

// Returns the audit of a recording, or null: another extension may have examined it.
const Audit* find_audit(const Recording& recording) noexcept;
// Returns the audit of a recording; an empty one if there is none.
const Audit& audit_of(const Recording& recording) noexcept;

// Returns "parameter 2 of 'axpy' is 0x..., byte 16 of ...", with the remedy.
std::string to_string(const ForeignPointer& pointer, const Audit& audit);

// Returns "node 3 of the graph copies 8 bytes from 0x..., ...", with the remedy.
std::string to_string(const HostMemoryUse& use);

// Returns possible reasons why replays differ from eager calls, one sentence each: foreign memory,
// and nodes that could not be read.
std::vector<std::string> suspects(const Audit& audit);

// A KnownMemory holds the ranges that a recording may refer to.
class KnownMemory {
 public:
  // The result of find() for an address in no range.
  static constexpr std::size_t kNone = SIZE_MAX;

  // kUnknown: memory that the recording does not know may begin directly after a range.
  enum class Neighbours : std::uint8_t { kKnown, kUnknown };

  // Empty ranges are ignored. `number`: of the input, output or slot.
  void add(MemoryOwner owner, std::uint32_t number, Range range,
           Neighbours neighbours = Neighbours::kKnown) {
    if (range.bytes > 0) list_.push_back({range, owner, number, neighbours});
  }
  // As add(), for memory of Context::declare(). Its neighbours are unknown.
  void add_declared(Range range, std::string name);
  // Must be called after the last add().
  void sort();
  // Returns the index of the memory that contains the address; if several do, that of the first
  // owner. An address directly after a range, which code passes as its end, belongs to the range if
  // no other memory contains it or can begin there: allocators align allocations, so that the end
  // of a range with unknown neighbours counts as a beginning at multiples of kAlignment. Returns
  // kNone for other addresses.
  std::size_t find(std::uintptr_t address) const noexcept;
  // The next two access the ranges, by address after sort().
  std::size_t size() const noexcept { return list_.size(); }
  UsedMemory operator[](std::size_t i) const;

  // The alignment of allocations. Source: the CUDA C++ Programming Guide, "Device Memory Accesses".
  static constexpr std::uintptr_t kAlignment = 256;

 private:
  struct Known {
    Range range;
    MemoryOwner owner;
    std::uint32_t number;
    Neighbours neighbours;
  };
  // From here to the next piece, the addresses belong to list_[known]; kNone: to no memory.
  struct Piece {
    std::uintptr_t address;
    std::size_t known;
  };
  const Piece* piece_of(std::uintptr_t address) const noexcept;

  std::vector<Known> list_;         // by address
  std::vector<Piece> pieces_;       // by address; the last one belongs to no memory
  std::vector<std::string> names_;  // names of declared memory, by number
};

// A DeviceMemoryCache asks a device for the allocation at an address, once for each allocation and
// each number that is not an address. It lives for one audit: memory may be freed later.
class DeviceMemoryCache {
 public:
  // Borrows the device.
  explicit DeviceMemoryCache(DeviceAPI& api) noexcept : api_(api) {}
  // Returns null if no device knows the address.
  const DeviceAllocation* find(std::uintptr_t address);
  // Returns false after the device could not tell.
  bool can_tell() const noexcept { return can_tell_; }

 private:
  DeviceAPI& api_;
  bool can_tell_ = true;
  std::vector<DeviceAllocation> found_;  // by address
  std::unordered_set<std::uintptr_t> unknown_;
};

// An Auditor reads the nodes of a recording, one by one, and then attributes the addresses in them.
class Auditor {
 public:
  // Both are borrowed.
  Auditor(DeviceAPI& api, const KnownMemory& known)
      : known_(known), devices_(api), numbers_(known.size(), kNew) {}

  // Reads the next node, in the order of GraphAPI::graph_nodes(), over all graphs.
  void read(NodeContents contents);
  // Attributes all addresses and returns the audit. Must be called once, after the last read().
  Audit finish();

 private:
  static constexpr std::uint32_t kNew = UINT32_MAX;
  struct Word {
    MemoryUse use;
    std::uint32_t parameter;
    bool is_certain;  // is an address, even if no device knows it
  };

  void read_kernel(const NodeContents& kernel, std::uint32_t node);
  void note_unseen(std::string what);
  // Returns the index in Audit::memory, or kNew if the word is not an address.
  std::uint32_t attribute(const Word& word);
  std::uint32_t attribute_by_device(const Word& word);
  void note_foreign(const Word& word);
  void note_host_memory(const Word& word);

  const KnownMemory& known_;
  DeviceMemoryCache devices_;
  std::vector<Word> words_;
  std::vector<Range> allocated_;                               // by allocation nodes
  std::vector<NodeContents> nodes_;                            // nodes that messages name
  std::vector<std::pair<std::uint32_t, std::uint32_t>> maps_;  // node and parameter
  std::vector<std::uint32_t> numbers_;  // in audit_.memory, by the index in known_
  std::uint32_t own_ = kNew;            // index of the memory of allocation nodes
  std::unordered_map<std::uintptr_t, std::uint32_t> others_;  // the same, by address
  // Index in audit_.foreign, by type and name of the node, parameter, and byte in it.
  std::map<std::tuple<NodeType, std::string_view, std::uint32_t, std::size_t>, std::size_t>
      foreign_uses_;
  Audit audit_;
};

}  // namespace cgtree
