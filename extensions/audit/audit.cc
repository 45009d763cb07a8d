// Attributes each address in the nodes of a recording to the memory in which it lies.
#include "extensions/audit/audit.h"

#include <algorithm>
#include <iterator>
#include <queue>
#include <utility>

#include "base/format.h"
#include "cgtree/record/recording.h"
#include "extensions/audit/node_words.h"
#include "extensions/audit/program_image.h"
#include "interop/device/device_api.h"

namespace cgtree {
namespace {

// Source: CUtensorMap, which kernels take by value.
constexpr std::size_t kTensorMapBytes = 128;
constexpr std::size_t kTensorMapAlignment = 64;

std::string_view text_of(PointerKind kind) noexcept {
  switch (kind) {
    case PointerKind::kDevice:
      return "device";
    case PointerKind::kPinned:
      return "pinned host";
    case PointerKind::kManaged:
      return "managed";
    case PointerKind::kUnknown:
      break;
  }
  return "pageable host";
}

}  // namespace

std::string_view text_of(NodeType type) noexcept {
  switch (type) {
    case NodeType::kKernel:
      return "a kernel";
    case NodeType::kMemcpy:
      return "a copy";
    case NodeType::kMemset:
      return "a memset";
    case NodeType::kHost:
      return "a host function";
    case NodeType::kEmpty:
      return "an empty node";
    case NodeType::kChildGraph:
      return "a child graph";
    default:
      return "a node";
  }
}

std::string_view name(MemoryOwner owner) noexcept {
  switch (owner) {
    case MemoryOwner::kCopySource:
      return "copy_source";
    case MemoryOwner::kInput:
      return "input";
    case MemoryOwner::kOutput:
      return "output";
    case MemoryOwner::kKept:
      return "kept";
    case MemoryOwner::kWorkspace:
      return "workspace";
    case MemoryOwner::kScratch:
      return "scratch";
    case MemoryOwner::kLiveOutput:
      return "live_output";
    case MemoryOwner::kDeclared:
      return "declared";
    case MemoryOwner::kModule:
      return "module";
    case MemoryOwner::kForeign:
      break;
  }
  return "foreign";
}

bool Audit::refers_to(Range range) const noexcept {
  return std::ranges::any_of(uses, [&](const MemoryUse& use) { return use.range.overlaps(range); });
}

std::shared_ptr<const void> Audit::forget_input(std::uint32_t input) noexcept {
  std::erase_if(uses, [&](const MemoryUse& use) {
    const UsedMemory& used = memory[use.memory];
    return used.owner == MemoryOwner::kInput && used.number == input;
  });
  return std::exchange(marked, nullptr);
}

const Audit* find_audit(const Recording& recording) noexcept {
  return dynamic_cast<const Audit*>(recording.findings.get());
}

const Audit& audit_of(const Recording& recording) noexcept {
  static const Audit none;
  const Audit* const audit = find_audit(recording);
  return audit == nullptr ? none : *audit;
}

std::string to_string(const ForeignPointer& pointer, const Audit& audit) {
  const UsedMemory& memory = audit.memory[pointer.memory];
  std::string where = str_format("{:#x}, {}", pointer.address, memory.text);
  if (memory.range.bytes > 0) {
    where = str_format("{:#x}, byte {} of {} bytes of {}", pointer.address,
                       pointer.address - memory.range.address, memory.range.bytes, memory.text);
  }
  if (memory.owner == MemoryOwner::kCopySource) {
    return str_format(
        "{} of {} is {}, which is copied: replays would read what the recorded call had there, and "
        "not what theirs have; use step.address({}) (in C cgt_step_address()), or do not declare "
        "the binding copied",
        pointer.place, pointer.kernel, where, memory.number);
  }
  return str_format(
      "{} of {} is {}: no input or output, and not declared, so that nothing says that it lives as "
      "long as the recording; pass it as an input, ask the tensor for its address inside the step "
      "function, or declare() it{}",
      pointer.place, pointer.kernel, where,
      pointer.nodes > 1 ? str_format(" ({} nodes)", pointer.nodes) : "");
}

std::string to_string(const HostMemoryUse& use) {
  return str_format(
      "node {} of the graph copies {} bytes {} {:#x}, pageable host memory that belongs to no "
      "tensor: each replay {} what lies there then, which may be gone; pass the value by scalar() "
      "or step_block(), copy {} a pinned tensor, or declare() memory that stays",
      use.node, use.range.bytes, use.is_written ? "to" : "from", use.range.address,
      use.is_written ? "overwrites" : "reads", use.is_written ? "to" : "from");
}

std::vector<std::string> suspects(const Audit& audit) {
  std::vector<std::string> texts;
  for (const ForeignPointer& pointer : audit.foreign)
    texts.push_back(to_string(pointer, audit));
  for (const UnseenNodes& unseen : audit.unseen)
    texts.push_back(str_format("not seen: {} ({} nodes)", unseen.what, unseen.nodes));
  return texts;
}

void KnownMemory::add_declared(Range range, std::string name) {
  add(MemoryOwner::kDeclared, static_cast<std::uint32_t>(names_.size()), range,
      Neighbours::kUnknown);
  names_.push_back(std::move(name));
}

// Sweeps over the places where ranges begin or end; at each place a piece begins, which belongs to
// the first owner of the ranges that contain the place.
void KnownMemory::sort() {
  std::ranges::sort(list_, {}, [](const Known& known) { return known.range.address; });
  std::vector<std::uintptr_t> places;
  for (const Known& known : list_) {
    places.push_back(known.range.address);
    places.push_back(known.range.end());
  }
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  const auto is_behind = [&](std::size_t a, std::size_t b) {
    return std::pair(list_[a].owner, a) > std::pair(list_[b].owner, b);
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(is_behind)> open(is_behind);
  std::size_t next = 0;
  pieces_.clear();
  for (const std::uintptr_t place : places) {
    for (; next < list_.size() && list_[next].range.address == place; ++next)
      open.push(next);
    while (!open.empty() && list_[open.top()].range.end() <= place)
      open.pop();
    pieces_.push_back({place, open.empty() ? kNone : open.top()});
  }
}

const KnownMemory::Piece* KnownMemory::piece_of(std::uintptr_t address) const noexcept {
  const auto after = std::ranges::upper_bound(pieces_, address, {}, &Piece::address);
  return after == pieces_.begin() ? nullptr : &*std::prev(after);
}

std::size_t KnownMemory::find(std::uintptr_t address) const noexcept {
  const Piece* const piece = piece_of(address);
  if (piece == nullptr) return kNone;
  if (piece->known != kNone || piece->address != address) return piece->known;
  // An empty piece does not follow a piece with an owner.
  const std::size_t ended = std::prev(piece)->known;
  const bool may_begin = list_[ended].neighbours == Neighbours::kUnknown;
  return may_begin && address % kAlignment == 0 ? kNone : ended;
}

UsedMemory KnownMemory::operator[](std::size_t i) const {
  const auto& [range, owner, number, neighbours] = list_[i];
  return {owner, number, range, owner == MemoryOwner::kDeclared ? names_[number] : std::string()};
}

const DeviceAllocation* DeviceMemoryCache::find(std::uintptr_t address) {
  const auto after = std::ranges::upper_bound(found_, address, {}, &DeviceAllocation::address);
  if (after != found_.begin()) {
    const DeviceAllocation& before = *std::prev(after);
    if (address - before.address < before.bytes) return &before;
  }
  if (unknown_.contains(address)) return nullptr;
  DeviceAllocation found;
  const Code code = api_.allocation_of(reinterpret_cast<const void*>(address), &found);
  can_tell_ = can_tell_ && code != Code::kNotSupported;
  if (!ok(code) || found.attributes.kind == PointerKind::kUnknown) {
    unknown_.insert(address);
    return nullptr;
  }
  // The device knows the address but not the range.
  if (address < found.address || address - found.address >= found.bytes) {
    found.address = address;
    found.bytes = 1;
  }
  return &*found_.insert(after, found);
}

void Auditor::note_unseen(std::string what) {
  const auto same = std::ranges::find(audit_.unseen, what, &UnseenNodes::what);
  if (same != audit_.unseen.end()) {
    ++same->nodes;
  } else {
    audit_.unseen.push_back({std::move(what), 1});
  }
}

void Auditor::read(NodeContents contents) {
  const auto node = static_cast<std::uint32_t>(nodes_.size());
  if (!contents.is_decoded) {
    note_unseen(str_format("{}{}: {}", text_of(contents.type),
                           contents.name().empty() ? "" : " '" + demangled(contents.name()) + "'",
                           contents.why));
  }
  if (contents.type == NodeType::kAllocation) {
    for (const NodeMemory& memory : contents.memory)
      allocated_.push_back({memory.address, memory.bytes});
  } else if (contents.type == NodeType::kKernel) {
    read_kernel(contents, node);
  } else {
    for (std::uint32_t i = 0; i < contents.memory.size(); ++i) {
      const NodeMemory& memory = contents.memory[i];
      words_.push_back({{node, i, {memory.address, memory.bytes}}, i, /*is_certain=*/true});
    }
  }
  contents.bytes = {};
  nodes_.push_back(std::move(contents));
}

void Auditor::read_kernel(const NodeContents& kernel, std::uint32_t node) {
  for (std::uint32_t i = 0; i < kernel.parameters().size(); ++i) {
    const auto [begin, bytes] = kernel.parameters()[i];
    if (bytes == kTensorMapBytes && begin % kTensorMapAlignment == 0) maps_.emplace_back(node, i);
  }
  for_each_word(kernel, [&](std::uint32_t i, std::uint32_t at, std::uintptr_t address) {
    words_.push_back({{node, at, {address, 1}}, i, /*is_certain=*/false});
  });
}

Audit Auditor::finish() {
  audit_.uses.reserve(words_.size());
  for (Word& word : words_) {
    word.use.memory = attribute(word);
    if (word.use.memory == kNew) continue;
    audit_.uses.push_back(word.use);
    std::erase(maps_, std::pair(word.use.node, word.parameter));
    const MemoryOwner owner = audit_.memory[word.use.memory].owner;
    if (owner == MemoryOwner::kForeign || owner == MemoryOwner::kCopySource) note_foreign(word);
    if (owner == MemoryOwner::kForeign && !audit_.host_memory) note_host_memory(word);
  }
  for (const auto& [node, parameter] : maps_) {
    note_unseen(
        str_format("parameter {} of '{}', 128 bytes without an address, which may be a "
                   "tensor map",
                   parameter, demangled(nodes_[node].name())));
  }
  return std::move(audit_);
}

std::uint32_t Auditor::attribute(const Word& word) {
  const auto next = static_cast<std::uint32_t>(audit_.memory.size());
  const std::uintptr_t address = word.use.range.address;
  if (const std::size_t known = known_.find(address); known != KnownMemory::kNone) {
    if (numbers_[known] == kNew) {
      numbers_[known] = next;
      audit_.memory.push_back(known_[known]);
    }
    return numbers_[known];
  }
  const bool is_own = std::ranges::any_of(allocated_, [&](const Range& range) {
    return range.overlaps({address, 1});
  });
  if (!is_own) return attribute_by_device(word);
  if (own_ == kNew) {
    own_ = next;
    audit_.memory.push_back({MemoryOwner::kScratch, 0, allocated_.front(), {}});
  }
  return own_;
}

std::uint32_t Auditor::attribute_by_device(const Word& word) {
  const DeviceAllocation* const found = devices_.find(word.use.range.address);
  if (found == nullptr && !word.is_certain) return kNew;
  const std::uintptr_t key = found != nullptr ? found->address : word.use.range.address;
  const auto next = static_cast<std::uint32_t>(audit_.memory.size());
  const auto [number, is_new] = others_.try_emplace(key, next);
  if (is_new) {
    UsedMemory memory;
    memory.text = "pageable host memory, which each replay reads or writes";
    if (found != nullptr) {
      if (found->is_static) memory.owner = MemoryOwner::kModule;
      memory.range = {found->address, found->bytes};
      memory.text = str_format("{} memory", text_of(found->attributes.kind));
    }
    audit_.memory.push_back(std::move(memory));
  }
  return number->second;
}

// Memory that a device knows has a range.
void Auditor::note_host_memory(const Word& word) {
  const NodeContents& node = nodes_[word.use.node];
  if (node.type != NodeType::kMemcpy || audit_.memory[word.use.memory].range.bytes > 0) return;
  if (!devices_.can_tell() || is_in_program_image(word.use.range.address)) return;
  audit_.host_memory = {word.use.node, word.use.range, node.memory[word.parameter].is_written};
}

// Text is made once for each parameter of each kernel: all memory of an engine may be foreign.
void Auditor::note_foreign(const Word& word) {
  const NodeContents& node = nodes_[word.use.node];
  const bool is_kernel = node.type == NodeType::kKernel;
  const std::size_t offset =
      is_kernel ? word.use.offset - node.parameters()[word.parameter].offset : 0;
  const auto [found, is_new] = foreign_uses_.try_emplace(
      {node.type, node.name(), word.parameter, offset}, audit_.foreign.size());
  if (!is_new) {
    ++audit_.foreign[found->second].nodes;
    return;
  }
  std::string kernel =
      is_kernel ? str_format("'{}'", demangled(node.name())) : std::string(text_of(node.type));
  std::string place;
  if (is_kernel) {
    place = str_format("parameter {}", word.parameter);
    if (offset > 0) place += str_format(" (byte {})", offset);
  } else {
    place = node.memory[word.parameter].is_written ? "the destination" : "the source";
  }
  audit_.foreign.push_back(
      {std::move(kernel), std::move(place), word.use.range.address, word.use.memory, 1});
}

}  // namespace cgtree
