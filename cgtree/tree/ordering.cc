// Waits for readers and neighbours, and notes the memory that calls use.
#include "cgtree/tree/ordering.h"

#include "cgtree/record/recording.h"
#include "cgtree/record/step.h"

namespace cgtree {
namespace {

// Returns the memory of input `i`, of any owner. Requires: the input is defined.
PlainUse use_of(const FunctionState& function, const InputList& inputs, std::size_t i) {
  const Tensor& input = inputs[i];
  const auto bytes = extent_bytes(input);
  return {{input.address(), bytes}, inputs.is_buffer(i) || function.input_options(i).is_mutated};
}

// Returns the memory that input `i` uses as plain memory, or no bytes. Memory of another library is
// ordered with the library's stream. Memory of a context is ordered with the context's stream,
// except for other writers: to its owner, `own`, each use is a read of their writes. A nested call
// has its memory from the outer call, which is ordered.
PlainUse plain_use_of(const FunctionState& function, const InputList& inputs, std::size_t i,
                      const ContextMemory& own) {
  const Tensor& input = inputs[i];
  if (!input.defined() || input.device().type != own.device().type) return {};
  const Storage& storage = *input.storage();
  const bool is_own = storage.domain() == &own;
  if (storage.producer() || (is_own && StepScope::active())) return {};
  PlainUse use = use_of(function, inputs, i);
  use.is_written &= !is_own;
  return use;
}

}  // namespace

void wait_for_readers(Engine& engine, const FunctionState& function, const InputList& inputs,
                      StreamRef instead) {
  ContextMemory& memory = *engine.memory;
  for_each_written(function, inputs, [&](const Storage& storage) {
    if (storage.domain() == &memory && !instead) {
      memory.streams().wait_for_readers(storage);
    } else if (ContextMemory* const other = ContextMemory::of(storage)) {
      other->streams().order_readers_before(storage, instead ? instead : memory.stream());
    }
  });
}

void append_plain_uses(const FunctionState& function, const InputList& inputs,
                       const ContextMemory& own, std::vector<PlainUse>& uses) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const PlainUse use = plain_use_of(function, inputs, i, own);
    if (use.range.bytes > 0) uses.push_back(use);
  }
}

void wait_for_neighbours(Engine& engine, const FunctionState& function, const InputList& inputs,
                         const Recording* recording) {
  ContextMemory& memory = *engine.memory;
  std::vector<PlainUse> uses;
  append_plain_uses(function, inputs, memory, uses);
  if (recording != nullptr) {
    uses.insert(uses.end(), recording->plain_uses.begin(), recording->plain_uses.end());
  } else {  // the work may read declared memory by its address
    for (const auto& [name, range] : memory.declared()->list())
      uses.push_back({range});
  }
  if (memory.plain().begin(uses, memory.stream())) engine.gate.note_shared_use(memory.plain());
}

void note_captured_uses(Engine& engine, const FunctionState& function, const InputList& inputs) {
  std::vector<PlainUse> uses;
  append_plain_uses(function, inputs, *engine.memory, uses);
  PlainMemoryUser& plain = engine.memory->plain();
  (void)plain.begin(uses, StreamRef());
  plain.end(/*in_graph=*/true);
}

bool order_behind_neighbours(Engine& engine, const FunctionState& function, const InputList& inputs,
                             StreamRef stream, StreamRef captured) {
  std::vector<PlainUse> uses;
  append_plain_uses(function, inputs, *engine.memory, uses);
  return engine.memory->plain().begin(uses, stream, captured);
}

[[gnu::noinline]] void note_moved_inputs(Engine& engine, Node& node, const InputList& inputs) {
  PlainMemoryUser& plain = engine.memory->plain();
  TakenDraws draws(node.recording);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!may_move(node.recording.inputs[i].treatment) || !inputs[i].defined()) continue;
    if (plain.is_recent(use_of(*node.function, inputs, i))) continue;
    plain.note(plain_use_of(*node.function, inputs, i, *engine.memory));
  }
  draws.keep();
}

void note_declared_uses(Recording& recording, const ContextMemory& memory) {
  const Attachment* const findings = recording.findings.get();
  for (const auto& [name, range] : memory.declared()->list()) {
    if (findings != nullptr && !findings->refers_to(range)) continue;
    recording.plain_uses.push_back({range});
  }
}

}  // namespace cgtree
