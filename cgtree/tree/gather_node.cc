// Uploads the table of a root node, and patches its arguments.
#include "cgtree/tree/gather_node.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <utility>

namespace cgtree {
namespace {

struct GatherArguments {
  const void* chunks;
  std::uint32_t count;

  std::array<KernelArgument, 3> list(const std::vector<const void*>& sources) const {
    return {{{sources.data(), sources.size() * sizeof(void*)},
             {&chunks, sizeof(chunks)},
             {&count, sizeof(count)}}};
  }
};

// A position, as it rides among the sources.
using DrawArguments = std::array<const void*, GatherNode::kArgumentsPerDraw>;

}  // namespace

GatherNode::GatherNode(LaneMemory& memory, const std::vector<Copy>& copies,
                       std::vector<RecordedDraw> draws)
    : kernel_(gather_kernel(copies.size() + kArgumentsPerDraw * draws.size())),
      draws_(std::move(draws)),
      sources_(kernel_.capacity, nullptr),
      must_patch_(!draws_.empty()) {
  std::vector<GatherChunk> chunks;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    inputs_.push_back(copies[i].input);
    sources_[i] = copies[i].source;
    append_chunks(chunks, static_cast<std::uint32_t>(i), copies[i].destination, copies[i].bytes);
  }
  for (std::size_t i = 0; i < draws_.size(); ++i) {
    chunks.push_back({reinterpret_cast<std::uintptr_t>(draws_[i].origin.data()), kGatherValues,
                      static_cast<std::uint32_t>(inputs_.size() + kArgumentsPerDraw * i),
                      sizeof(PhiloxPosition)});
  }
  chunk_count_ = static_cast<std::uint32_t>(chunks.size());
  upload(memory, chunks);
}

void GatherNode::upload(LaneMemory& memory, const std::vector<GatherChunk>& chunks) {
  const std::size_t bytes = chunks.size() * sizeof(GatherChunk);
  Table table(memory, bytes);
  const StreamRef stream = memory.stream();
  check(stream.api().copy(stream.handle(), table.data(), chunks.data(), bytes),
        "upload the table of copied inputs");
  // The host's table goes away when the constructor returns, so the copy must be done.
  check(stream.api().synchronize_stream(stream.handle()), "upload the table of copied inputs");
  chunks_ = std::move(table);
}

LaunchDims GatherNode::dims() const noexcept {
  return {.grid = {chunk_count_}, .block = {kGatherThreads}};
}

void GatherNode::add_to(Graph& graph) {
  const GatherArguments arguments{chunks_.data(), chunk_count_};
  node_ = graph.add_root(kernel_.function, dims(), arguments.list(sources_));
}

void GatherNode::draw() noexcept {
  for (std::size_t i = 0; i < draws_.size(); ++i) {
    const auto values = std::bit_cast<DrawArguments>(draws_[i].sequence->take(draws_[i].blocks));
    std::copy(values.begin(), values.end(), draw_arguments(i));
  }
}

void GatherNode::give_back_draws() noexcept {
  for (std::size_t i = 0; i < draws_.size(); ++i) {
    DrawArguments values;
    std::copy_n(draw_arguments(i), values.size(), values.begin());
    const auto first = std::bit_cast<PhiloxPosition>(values);
    draws_[i].sequence->give_back({first.seed, first.offset + draws_[i].blocks}, first);
  }
}

void GatherNode::patch(const GraphExec& exec) {
  must_patch_ = true;
  draw();
  const GatherArguments arguments{chunks_.data(), chunk_count_};
  const Code code = exec.api().set_kernel_node(exec.handle(), node_, kernel_.function, dims(),
                                               arguments.list(sources_));
  if (!ok(code)) [[unlikely]] {
    give_back_draws();
    throw_code(code, "patch the root node");
  }
  must_patch_ = !draws_.empty();
}

std::vector<GatherNode> make_roots(LaneMemory& memory, const std::vector<GatherNode::Copy>& copies,
                                   std::vector<RecordedDraw> draws) {
  std::vector<GatherNode> roots;
  auto copy = copies.begin();
  auto draw = draws.begin();
  while (copy != copies.end() || draw != draws.end()) {
    const auto copies_here = std::min<std::ptrdiff_t>(copies.end() - copy, kMaxGatherSources);
    const auto draws_here = std::min<std::ptrdiff_t>(
        draws.end() - draw, (kMaxGatherSources - copies_here) / GatherNode::kArgumentsPerDraw);
    roots.emplace_back(memory, std::vector<GatherNode::Copy>(copy, copy + copies_here),
                       std::vector<RecordedDraw>(std::make_move_iterator(draw),
                                                 std::make_move_iterator(draw + draws_here)));
    copy += copies_here;
    draw += draws_here;
  }
  return roots;
}

}  // namespace cgtree
