// Uploads the table of a root node, and patches its sources.
#include "cgtree/tree/gather_node.h"

#include <array>
#include <utility>

namespace cgtree {
namespace {

std::array<KernelArgument, 3> arguments(const std::vector<const void*>& sources,
                                        void* const& chunks, const std::uint32_t& count) {
  return {{{sources.data(), sources.size() * sizeof(void*)},
           {&chunks, sizeof(chunks)},
           {&count, sizeof(count)}}};
}

}  // namespace

GatherNode::GatherNode(LaneMemory& memory, const std::vector<Copy>& copies)
    : memory_(&memory), kernel_(gather_kernel(copies.size())), sources_(kernel_.capacity, nullptr) {
  std::vector<GatherChunk> chunks;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    inputs_.push_back(copies[i].input);
    sources_[i] = copies[i].source;
    append_chunks(chunks, static_cast<std::uint32_t>(i), copies[i].destination, copies[i].bytes);
  }
  chunk_count_ = static_cast<std::uint32_t>(chunks.size());
  const std::size_t bytes = chunks.size() * sizeof(GatherChunk);
  void* const table = memory.allocate_table(bytes);
  const StreamRef stream = memory.stream();
  Code code = stream.api().copy(stream.handle(), table, chunks.data(), bytes);
  // The host's table goes away when this returns, so the copy must be done.
  if (ok(code)) code = stream.api().synchronize_stream(stream.handle());
  if (!ok(code)) {
    memory.free_table(table);
    throw_code(code, "upload the table of copied inputs");
  }
  chunks_ = table;
}

GatherNode::~GatherNode() {
  if (memory_ != nullptr) memory_->free_table(chunks_);
}

GatherNode::GatherNode(GatherNode&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      kernel_(other.kernel_),
      inputs_(std::move(other.inputs_)),
      sources_(std::move(other.sources_)),
      chunks_(other.chunks_),
      chunk_count_(other.chunk_count_),
      node_(other.node_),
      stale_(other.stale_) {
}

LaunchDims GatherNode::dims() const noexcept {
  return {.grid = {chunk_count_}, .block = {kGatherThreads}};
}

void GatherNode::launch(StreamRef stream) const {
  const auto list = arguments(sources_, chunks_, chunk_count_);
  check(stream.graphs().launch_kernel(stream.handle(), kernel_.function, dims(), list),
        "launch the root node");
}

void GatherNode::patch(const GraphExec& exec) {
  stale_ = true;
  const auto list = arguments(sources_, chunks_, chunk_count_);
  check(exec.api().set_kernel_node(exec.handle(), node_, kernel_.function, dims(), list),
        "patch the root node");
  stale_ = false;
}

}  // namespace cgtree
