// Copies the arguments of work, and runs work.
#include "simulator/work.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/format.h"
#include "interop/device/graph_api.h"
#include "simulator/graph.h"
#include "simulator/memory.h"

namespace cgtree::host {
namespace {

constexpr std::size_t kLineBytes = 64;

// A type's size is a multiple of its alignment, so the largest power of two that divides the size
// is sufficient; the bound is a cache line.
std::size_t alignment_for(std::size_t bytes) {
  if (bytes == 0) return 1;
  return std::min(kLineBytes, std::size_t{1} << std::countr_zero(bytes));
}

std::size_t align_up(std::size_t offset, std::size_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

bool empty(const Dim3& dim) {
  return dim.x == 0 || dim.y == 0 || dim.z == 0;
}

}  // namespace

FrozenArguments::FrozenArguments(KernelArguments arguments) {
  assign(arguments);
  parameters_.reserve(arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto offset = static_cast<const std::byte*>(table_[i]) - bytes().data();
    parameters_.push_back({static_cast<std::size_t>(offset), arguments[i].bytes});
  }
}

FrozenArguments::FrozenArguments(const FrozenArguments& other)
    : bytes_(other.bytes_), table_(other.table_), parameters_(other.parameters_) {
  const auto* const from = reinterpret_cast<const std::byte*>(other.bytes_.data());
  const auto* const to = reinterpret_cast<const std::byte*>(bytes_.data());
  for (const void*& argument : table_)
    argument = to + (static_cast<const std::byte*>(argument) - from);
}

FrozenArguments& FrozenArguments::operator=(const FrozenArguments& other) {
  return *this = FrozenArguments(other);
}

void FrozenArguments::assign(KernelArguments arguments) {
  std::size_t end = 0;
  for (const KernelArgument& argument : arguments)
    end = align_up(end, alignment_for(argument.bytes)) + argument.bytes;
  table_.reserve(arguments.size());
  bytes_.resize(align_up(end, kLineBytes) / kLineBytes);
  table_.clear();
  auto* const base = reinterpret_cast<std::byte*>(bytes_.data());
  std::size_t offset = 0;
  for (const KernelArgument& argument : arguments) {
    offset = align_up(offset, alignment_for(argument.bytes));
    table_.push_back(base + offset);
    if (argument.bytes > 0) std::memcpy(base + offset, argument.data, argument.bytes);
    offset += argument.bytes;
  }
}

std::vector<FrozenArguments::Word> FrozenArguments::words() const {
  std::vector<Word> words;
  const auto* const end = reinterpret_cast<const std::byte*>(bytes_.data() + bytes_.size());
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const auto* const next =
        i + 1 < table_.size() ? static_cast<const std::byte*>(table_[i + 1]) : end;
    const auto* at = static_cast<const std::byte*>(table_[i]);
    // A pointer inside an argument is aligned; smaller arguments contain none.
    if (reinterpret_cast<std::uintptr_t>(at) % alignof(void*) != 0) continue;
    for (; at + sizeof(void*) <= next; at += sizeof(void*)) {
      const void* value = nullptr;
      std::memcpy(&value, at, sizeof(value));
      words.push_back({i, value});
    }
  }
  return words;
}

NodeType type_of(const Work& work) noexcept {
  constexpr std::array<NodeType, std::variant_size_v<Work>> kTypes = {
      NodeType::kKernel, NodeType::kMemcpy,     NodeType::kMemset, NodeType::kHost,
      NodeType::kOther,  NodeType::kAllocation, NodeType::kFree};
  return kTypes[work.index()];
}

std::string describe(const Work& work) {
  return std::visit(
      Overloaded{[](const KernelWork& kernel) {
                   const Dim3& grid = kernel.dims.grid;
                   const Dim3& block = kernel.dims.block;
                   return str_format("kernel {} [{} {} {}] x [{} {} {}]", kernel.function.name,
                                     grid.x, grid.y, grid.z, block.x, block.y, block.z);
                 },
                 [](const CopyWork& copy) {
                   return str_format("copy of {} bytes from {} to {}", copy.bytes, copy.source,
                                     copy.destination);
                 },
                 [](const MemsetWork& fill) {
                   return str_format("memset of {} bytes at {} to {}", fill.bytes, fill.destination,
                                     int{fill.value});
                 },
                 [](const HostWork&) { return std::string("host function"); },
                 [](const ConditionalWork& conditional) {
                   constexpr std::array kNames = {"if", "while", "switch"};
                   return str_format("{} of {} bodies",
                                     kNames[static_cast<std::size_t>(conditional.kind)],
                                     conditional.bodies.size());
                 },
                 [](const AllocationWork& made) {
                   return str_format("allocation of {} bytes at {}", made.memory->bytes,
                                     made.memory->data);
                 },
                 [](const FreeWork& freed) {
                   return str_format("free of the memory at {}", freed.memory->data);
                 }},
      work);
}

NodeContents contents_of(const Work& work) {
  NodeContents contents;
  contents.type = type_of(work);
  contents.is_decoded = true;
  const auto use = [&](const void* begin, std::size_t bytes, bool is_written) {
    contents.memory.push_back({reinterpret_cast<std::uintptr_t>(begin), bytes, is_written});
  };
  std::visit(
      Overloaded{[&](const KernelWork& kernel) {
                   const auto bytes = kernel.arguments.bytes();
                   contents.kernel = std::make_shared<KernelLayout>(
                       KernelLayout{kernel.function.name, kernel.arguments.parameters()});
                   contents.function = reinterpret_cast<const void*>(kernel.function.host);
                   contents.dims = kernel.dims;
                   contents.bytes.assign(bytes.begin(), bytes.end());
                 },
                 [&](const CopyWork& copy) {
                   use(copy.source, copy.bytes, /*is_written=*/false);
                   use(copy.destination, copy.bytes, /*is_written=*/true);
                 },
                 [&](const MemsetWork& fill) {
                   use(fill.destination, fill.bytes, /*is_written=*/true);
                   contents.bytes = {std::byte{fill.value}};
                 },
                 [&](const AllocationWork& made) {
                   use(made.memory->data, made.memory->bytes, /*is_written=*/false);
                 },
                 [&](const FreeWork& freed) { use(freed.memory->data, 0, /*is_written=*/false); },
                 [&](const auto&) {
                   contents.is_decoded = false;
                   contents.why = contents.type == NodeType::kHost
                                      ? "what a host function uses cannot be seen"
                                      : "nodes of this type are not read";
                 }},
      work);
  return contents;
}

bool is_patchable(const Work& work) noexcept {
  return std::holds_alternative<KernelWork>(work) || std::holds_alternative<CopyWork>(work) ||
         std::holds_alternative<MemsetWork>(work);
}

std::vector<std::byte> patchable_bytes(const Work& work) {
  NodeContents contents = contents_of(work);
  if (contents.type == NodeType::kKernel) return std::move(contents.bytes);
  std::vector<std::byte> bytes;
  for (const NodeMemory& memory : contents.memory) {
    const auto word = std::as_bytes(std::span(&memory.address, 1));
    bytes.insert(bytes.end(), word.begin(), word.end());
  }
  return bytes;
}

void patch(Work& work, const NodePatch& patch) {
  const auto address = [&](std::size_t i) {
    void* found = nullptr;
    std::memcpy(&found, patch.bytes.data() + i * sizeof(found), sizeof(found));
    return found;
  };
  std::visit(Overloaded{[&](KernelWork& kernel) {
                          kernel.dims = patch.dims;
                          std::ranges::copy(patch.bytes, kernel.arguments.bytes().begin());
                        },
                        [&](CopyWork& copy) {
                          copy.source = address(0);
                          copy.destination = address(1);
                        },
                        [&](MemsetWork& fill) { fill.destination = address(0); }, [](auto&) {}},
             work);
}

bool are_alike(const Work& a, const Work& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      Overloaded{[&](const KernelWork& kernel) {
                   const auto& other = std::get<KernelWork>(b);
                   return kernel.function == other.function &&
                          kernel.arguments.parameters() == other.arguments.parameters();
                 },
                 [&](const CopyWork& copy) {  // staged data lives as long as its graph
                   const auto& other = std::get<CopyWork>(b);
                   return copy.bytes == other.bytes && copy.staged == nullptr &&
                          other.staged == nullptr;
                 },
                 [&](const MemsetWork& fill) {
                   const auto& other = std::get<MemsetWork>(b);
                   return fill.value == other.value && fill.bytes == other.bytes;
                 },
                 [&](const HostWork& host) {
                   const auto& other = std::get<HostWork>(b);
                   return host.function == other.function && host.data == other.data;
                 },
                 [](const auto&) { return false; }},
      a);
}

Code check_launch(const KernelFunction& kernel, const LaunchDims& dims, KernelArguments arguments) {
  if (kernel.host == nullptr) return Code::kInvalidDeviceFunction;
  if (empty(dims.grid) || empty(dims.block)) return Code::kInvalidValue;
  return arguments.size() <= kMaxKernelArguments ? Code::kSuccess : Code::kInvalidValue;
}

bool may_wait(const Work& work) noexcept {
  if (const auto* const kernel = std::get_if<KernelWork>(&work)) return kernel->function.waits;
  const auto* const conditional = std::get_if<ConditionalWork>(&work);
  if (conditional == nullptr) return false;
  return std::ranges::any_of(conditional->bodies, [](const auto& body) {
    return std::ranges::any_of(body->nodes(), [](const Node& node) { return may_wait(node.work); });
  });
}

std::size_t next_body(const ConditionalWork& conditional) noexcept {
  const std::size_t value = conditional.condition->value.load();
  if (conditional.kind == ConditionalKind::kSwitch) return value;
  return value != 0 ? 0 : 1;
}

namespace {

constexpr int kJustAllocated = 0xa5;  // value of each byte of memory that a launch has allocated

// Words are written at once, as on a GPU: a host thread may read them meanwhile.
void run_memset(const MemsetWork& fill) {
  constexpr std::size_t kLargestMark = 16 << 10;  // bytes
  std::uint64_t word = 0;
  const auto address = reinterpret_cast<std::uintptr_t>(fill.destination);
  if ((address | fill.bytes) % sizeof(word) != 0 || fill.bytes > kLargestMark) {
    std::memset(fill.destination, fill.value, fill.bytes);
    return;
  }
  std::memset(&word, fill.value, sizeof(word));
  auto* const words = static_cast<std::uint64_t*>(fill.destination);
  for (std::size_t i = 0; i < fill.bytes / sizeof(word); ++i)
    std::atomic_ref(words[i]).store(word, std::memory_order_release);
}

}  // namespace

Code run(const Work& work) noexcept try {
  if (const auto* const conditional = std::get_if<ConditionalWork>(&work)) {
    return run_bodies(*conditional, [](const auto& body) { return body->run(); });
  }
  std::visit(
      Overloaded{
          [](const KernelWork& kernel) {
            kernel.function.host(kernel.dims, kernel.arguments.table());
          },
          [](const CopyWork& copy) { std::memmove(copy.destination, copy.source, copy.bytes); },
          [](const MemsetWork& fill) { run_memset(fill); },
          [](const HostWork& host) { host.function(host.data); }, [](const ConditionalWork&) {},
          [](const AllocationWork& made) {
            std::memset(made.memory->data, kJustAllocated, made.memory->bytes);
          },
          [](const FreeWork&) {}},
      work);
  return Code::kSuccess;
} catch (...) {
  return Code::kLaunchFailure;
}

Code run_kernel(const KernelFunction& kernel, const LaunchDims& dims,
                const void* const* arguments) noexcept try {
  kernel.host(dims, arguments);
  return Code::kSuccess;
} catch (...) {
  return Code::kLaunchFailure;
}

}  // namespace cgtree::host
