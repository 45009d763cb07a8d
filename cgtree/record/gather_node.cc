// Writes the table of a root or tail node, and patches its arguments.
#include "cgtree/record/gather_node.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "interop/device/device_api.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

struct GatherArguments {
  const void* table;
  std::uint32_t chunks;

  std::array<KernelArgument, 3> list(const std::vector<std::uint64_t>& words) const {
    return {{{words.data(), words.size() * sizeof(std::uint64_t)},
             {&table, sizeof(table)},
             {&chunks, sizeof(chunks)}}};
  }
};

// DrawWords is a position as words.
using DrawWords = std::array<std::uint64_t, GatherNode::kWordsPerDraw>;

}  // namespace

GatherNode::GatherNode(ContextMemory& memory, Work work)
    : memory_(&memory),
      api_(&memory.stream().api()),
      device_(memory.device().id),
      draws_(std::move(work.draws)),
      must_patch_(!draws_.empty()) {
  GatherTable table;
  for (const Copy& copy : work.copies) {
    if (copy.row.is_padded) continue;
    table.add(copy.row);
    inputs_.push_back(copy.input);
  }
  for (const Copy& copy : work.copies) {
    if (copy.row.is_padded) padded_.push_back({copy.input, table.add(copy.row), copy.row});
  }
  for (const Value& value : work.values) {
    if (value.is_staged()) {
      const std::int64_t dims[] = {static_cast<std::int64_t>(value.bytes)}, strides[] = {1};
      const GatherRow row =
          strided_row(GatherDirection::kIn, value.address, dims, strides, strides, 1);
      staged_.push_back({value.input, table.add(row), {}});
    } else {
      values_.push_back({table.add_values(value.address, value.bytes), value});
    }
  }
  has_only_copies_ = padded_.empty() && work.values.empty();
  first_draw_ = table.words();
  for (const RecordedDraw& draw : draws_) {
    table.add_values(reinterpret_cast<std::uintptr_t>(draw.origin.data()), sizeof(PhiloxPosition));
  }
  kernel_ = gather_kernel(table.words());
  words_.resize(kernel_.capacity, 0);
  chunks_ = table.chunks();
  write_table(memory, table);
}

GatherNode::GatherNode(ContextMemory& memory, std::vector<std::uint32_t> inputs,
                       std::unique_ptr<Attachment> rebinding)
    : memory_(&memory),
      api_(&memory.stream().api()),
      device_(memory.device().id),
      inputs_(std::move(inputs)),
      words_(inputs_.size(), 0),
      rebinding_(std::move(rebinding)) {
}

// The table is passed as an argument of launches, which is copied now. A copy from host memory may
// be read only when the stream reaches it, so the call would have to wait.
void GatherNode::write_table(ContextMemory& memory, const GatherTable& table) {
  const std::vector<std::byte> bytes = table.bytes();
  table_ = Table(memory, bytes.size());
  write_values(memory.stream(), reinterpret_cast<std::uintptr_t>(table_.data()), bytes.data(),
               bytes.size());
}

LaunchDims GatherNode::dims() const noexcept {
  return {.grid = {chunks_}, .block = {kGatherThreads}};
}

void GatherNode::add_as_root(Graph& graph, InputList inputs) {
  (void)find(inputs);
  const GatherArguments arguments{table_.data(), chunks_};
  patched_ = node_ = graph.add_root(kernel_.function, dims(), arguments.list(words_));
}

void GatherNode::add_as_tail(Graph& graph, InputList inputs) {
  (void)find(inputs);
  const GatherArguments arguments{table_.data(), chunks_};
  patched_ = node_ = graph.add_leaf(kernel_.function, dims(), arguments.list(words_));
}

void GatherNode::note_copies(const InputRun& copies) noexcept {
  has_only_run_ = has_only_copies_ && rebinding_ == nullptr &&
                  std::ranges::all_of(inputs_, [&](auto input) { return copies.contains(input); });
}

bool GatherNode::find_value(const Argument& argument, InputList inputs) noexcept {
  const Value& value = argument.value;
  const Tensor& input = inputs[value.input];
  const std::int64_t size = value.axis == kWhole ? 0 : input.shape().dim(value.axis);
  const void* const found =
      value.axis == kWhole ? reinterpret_cast<const void*>(input.address()) : &size;
  void* const known = words_.data() + argument.word;
  if (std::memcmp(known, found, value.bytes) == 0) return false;
  std::memcpy(known, found, value.bytes);
  return true;
}

void GatherNode::stage(Staged& staged, InputList inputs) {
  const Tensor& input = inputs[staged.input];
  staged.slot = memory_->empty_pinned(input.shape(), input.dtype());
  words_[staged.word] = staged.slot.address();
  std::memcpy(reinterpret_cast<void*>(staged.slot.address()),
              reinterpret_cast<const void*>(input.address()), input.bytes());
}

void GatherNode::let_go_of_slots(StreamRef stream) {
  for (Staged& staged : staged_) {
    try {
      staged.slot.storage()->owner().used(*staged.slot.storage(), stream);
    } catch (const std::bad_alloc&) {  // the use cannot be noted, so wait for its end
      stream.synchronize();
    }
    staged.slot = Tensor();
  }
}

bool GatherNode::find_rest(const InputList& inputs) {
  bool moved = !staged_.empty();
  for (Staged& staged : staged_)
    stage(staged, inputs);
  for (const Argument& value : values_)
    moved = find_value(value, inputs) || moved;
  for (const Padded& padded : padded_) {
    const Tensor& input = inputs[padded.input];
    const std::span<std::uint64_t> known(words_.data() + padded.word, padded.row.words());
    std::array<std::uint64_t, kMaxRowWords> words;
    const std::span<std::uint64_t> found(words.data(), known.size());
    write_words(padded.row, input.address(), input.shape().dims(), input.shape().strides(), found);
    moved = moved || !std::equal(found.begin(), found.end(), known.begin());
    std::copy(found.begin(), found.end(), known.begin());
  }
  return moved;
}

void GatherNode::draw() noexcept {
  for (std::size_t i = 0; i < draws_.size(); ++i) {
    const auto words = std::bit_cast<DrawWords>(draws_[i].sequence->take(draws_[i].blocks));
    std::copy(words.begin(), words.end(), draw_words(i));
  }
}

// Returns the start of draws_[i].
PhiloxPosition GatherNode::drawn(std::size_t i) const noexcept {
  DrawWords words;
  std::copy_n(words_.data() + first_draw_ + kWordsPerDraw * i, words.size(), words.begin());
  return std::bit_cast<PhiloxPosition>(words);
}

void GatherNode::give_back_draws() noexcept {
  for (std::size_t i = 0; i < draws_.size(); ++i) {
    const PhiloxPosition first = drawn(i);
    draws_[i].sequence->give_back({first.seed, first.offset + draws_[i].blocks}, first);
  }
}

Code GatherNode::set(const GraphExec& exec) {
  if (rebinding_ != nullptr) return rebinding_->bind(exec, words_);
  const GatherArguments arguments{table_.data(), chunks_};
  return exec.api().set_kernel_node(exec.handle(), patched_, kernel_.function, dims(),
                                    arguments.list(words_));
}

void GatherNode::patch(const GraphExec& exec) {
  must_patch_ = true;
  const DeviceScope current(*api_, device_);
  draw();
  const Code code = set(exec);
  if (!ok(code)) [[unlikely]] {
    give_back_draws();
    throw_code(code, rebinding_ != nullptr ? "tell a node where an input is"
                                           : "patch the root or tail node");
  }
  must_patch_ = !draws_.empty();
}

std::vector<GatherNode> make_gather_nodes(ContextMemory& memory, GatherNode::Work work) {
  std::erase_if(work.copies, [](const auto& copy) { return copy.row.bytes() == 0; });
  std::vector<GatherNode> nodes;
  auto copy = work.copies.begin();
  auto value = work.values.begin();
  auto draw = work.draws.begin();
  while (copy != work.copies.end() || value != work.values.end() || draw != work.draws.end()) {
    std::size_t room = kMaxGatherWords;
    GatherNode::Work here;
    for (; copy != work.copies.end() && copy->row.words() <= room; ++copy) {
      room -= copy->row.words();
      here.copies.push_back(*copy);
    }
    for (; value != work.values.end() && value->words() <= room; ++value) {
      room -= value->words();
      here.values.push_back(*value);
    }
    for (; draw != work.draws.end() && GatherNode::kWordsPerDraw <= room; ++draw) {
      room -= GatherNode::kWordsPerDraw;
      here.draws.push_back(std::move(*draw));
    }
    nodes.emplace_back(memory, std::move(here));
  }
  return nodes;
}

}  // namespace cgtree
