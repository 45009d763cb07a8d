// Gathers the memory to which a recording may refer, and acts on the result of its audit.
#include "extensions/audit/recording_audit.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/memory/declared_memory.h"
#include "cgtree/record/step.h"
#include "interop/device/code.h"

namespace cgtree {

// Notes the footprint except scratch memory, which grows until the recording is complete.
void RecordingAudit::begin(CapturedStep& step, bool hands_out_rows) {
  step_ = &step;
  hands_out_rows_ = hands_out_rows;
  const Call& call = step.call;
  ContextMemory& memory = step.memory;
  live_ = memory.live_storages();
  for (std::uint32_t i = 0; i < call.inputs().step_size(); ++i) {
    const InputRecord& input = step.recording.inputs[i];
    const auto extent = static_cast<std::size_t>(input.shape.extent()) * size_of(input.dtype);
    const bool is_own = memory.owns(reinterpret_cast<const void*>(input.address));
    if (call.function().is_callers_work && is_copied(input.treatment)) {
      const Tensor& callers = call.inputs()[i];
      known_.add(MemoryOwner::kCopySource, i, {callers.address(), callers.bytes()},
                 KnownMemory::Neighbours::kUnknown);
      has_copy_sources_ = true;
    }
    known_.add(MemoryOwner::kInput, i, {input.address, extent},
               is_own ? KnownMemory::Neighbours::kKnown : KnownMemory::Neighbours::kUnknown);
  }
  for_each_new_storage(memory, step.outputs, [&](Storage& storage, std::uint32_t i) {
    known_.add(MemoryOwner::kOutput, i, {storage.address(), storage.bytes()});
  });
  for (const StorageRef& storage : step.allocations.kept)
    known_.add(MemoryOwner::kKept, 0, {storage->address(), storage->bytes()});
  for (const StorageRef& storage : memory.workspaces())
    known_.add(MemoryOwner::kWorkspace, 0, {storage->address(), storage->bytes()});
  for (const GatherNode::Value& value : step.root.values) {
    if (value.axis != GatherNode::kWhole)
      known_.add(MemoryOwner::kScratch, 0, {value.address, value.bytes});
  }
  for (const RecordedDraw& draw : step.root.draws) {
    const auto origin = reinterpret_cast<std::uintptr_t>(draw.origin.data());
    known_.add(MemoryOwner::kScratch, 0, {origin, sizeof(PhiloxPosition)});
  }
  for (std::uint32_t i = 0; i < live_.size(); ++i)
    known_.add(MemoryOwner::kLiveOutput, i, {live_[i]->address(), live_[i]->bytes()});
  for (auto& [name, range] : memory.declared()->list())
    known_.add_declared(range, std::move(name));
}

std::size_t RecordingAudit::prepare() {
  auto nothing = std::make_unique<Audit>();
  nothing->unseen = {{"all: the host's memory was short", step_->recording.costs.nodes}};
  nothing->hands_out_rows = hands_out_rows_;
  step_->recording.findings = std::move(nothing);
  return live_.size();
}

bool RecordingAudit::may_refuse() const noexcept {
  return has_copy_sources_ || on_foreign_pointer_ == OnForeignPointer::kThrow;
}

void RecordingAudit::read(NodeContents contents) {
  if (auditor_ == nullptr) {
    for (const Range& range : step_->recording.footprint.ranges())
      known_.add(MemoryOwner::kScratch, 0, range);
    known_.sort();
    auditor_ = std::make_unique<Auditor>(step_->memory.stream().api(), known_);
  }
  auditor_->read(std::move(contents));
}

void RecordingAudit::finish(NodeScopes scopes) {
  auto audit = std::make_unique<Audit>();
  if (auditor_ != nullptr) *audit = auditor_->finish();
  audit->scopes = std::move(scopes);
  audit->hands_out_rows = hands_out_rows_;
  audit->warns_of_foreign = on_foreign_pointer_ == OnForeignPointer::kWarn;
  for (UsedMemory& memory : audit->memory)
    describe(memory);
  refuse_copy_sources(*audit);
  refuse_foreign(*audit);
  step_->recording.findings = std::move(audit);
}

// An output whose address the step function knew without asking lives as long as the recording, as
// if it had asked.
void RecordingAudit::describe(UsedMemory& used) const {
  const ContextMemory& memory = step_->memory;
  const bool is_own = used.owner == MemoryOwner::kForeign &&
                      memory.owns(reinterpret_cast<const void*>(used.range.address));
  if (is_own) used.text = "a pool of this context, in none of whose tensors it lies";
  if (used.owner == MemoryOwner::kCopySource) used.text = step_->call.describe(used.number);
  if (used.owner != MemoryOwner::kLiveOutput) return;
  const StorageRef& storage = live_[used.number];
  used.text = str_format("{} of '{}'", text_of_output(storage->tag.position, {}),
                         memory.function_name(storage->tag.function));
  keep_live(storage);
}

// Keeps all memory to which the graphs may refer.
void RecordingAudit::give_up() noexcept {
  for (const StorageRef& storage : live_)
    keep_live(storage);
}

// Keeps an output of an earlier call for replays, once. Requires: it is one of live_.
void RecordingAudit::keep_live(const StorageRef& storage) const noexcept {
  KeptStorages& kept = step_->recording.kept;
  const std::vector<StorageRef>& known = kept.storages();
  const bool is_known = std::ranges::find(known, storage) != known.end();
  if (!is_known && !step_->call.checks_address_of(storage)) kept.add(storage);
}

// Work that uses the caller's address of a copied binding reads the same bytes at each replay, and
// the copy back overwrites its writes.
void RecordingAudit::refuse_copy_sources(const Audit& audit) const {
  for (const ForeignPointer& pointer : audit.foreign) {
    if (audit.memory[pointer.memory].owner != MemoryOwner::kCopySource) continue;
    throw InvalidArgument(
        str_format("work of '{}': {}", step_->call.function().name, to_string(pointer, audit)));
  }
}

void RecordingAudit::refuse_foreign(const Audit& audit) const {
  if (on_foreign_pointer_ != OnForeignPointer::kThrow || audit.foreign.empty()) return;
  throw CaptureError(
      static_cast<int>(Code::kStreamCaptureUnsupported),
      str_format("the recording of '{}' refers to foreign memory: {}", step_->call.function().name,
                 to_string(audit.foreign.front(), audit)));
}

}  // namespace cgtree
