// Compares two runs of a body, and notes them.
#include "extensions/flow/body_run.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/format.h"
#include "cgtree/record/step.h"
#include "interop/device/code.h"
#include "interop/device/graph_api.h"

namespace cgtree {
namespace {

// Returns the upper halves of the addresses of this process's memory, as ranges.
std::vector<std::pair<std::uint64_t, std::uint64_t>> upper_halves() {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx", &begin, &end) != 2) continue;
    const std::pair<std::uint64_t, std::uint64_t> range(begin >> 32, (end - 1) >> 32);
    if (ranges.empty() || ranges.back() != range) ranges.push_back(range);
  }
  return ranges;
}

class Comparison {
 public:
  std::string compare(const BodyRun& first, const BodyRun& second) {
    around_.emplace_back(&first, &second);
    std::string found = difference_of_results(first, second);
    if (found.empty()) found = compare_results(first, second);
    if (found.empty()) found = compare_nodes(first, second);
    if (found.empty()) found = compare_bodies(first, second);
    around_.pop_back();
    return found;
  }

 private:
  // Returns whether two words at this offset differ only in a gap of a struct that is passed by
  // value. The four bytes of padding after a float come from the stack, and are most often half an
  // address, which is never a number of a program.
  bool is_gap(const NodeContents& kernel, std::size_t at, std::uint64_t one, std::uint64_t other) {
    const bool is_in_struct = std::ranges::any_of(kernel.parameters(), [&](const auto& parameter) {
      return at - parameter.offset < parameter.bytes && parameter.bytes > sizeof(one);
    });
    return is_in_struct && static_cast<std::uint32_t>(one) == static_cast<std::uint32_t>(other) &&
           (is_half(one >> 32) || is_half(other >> 32));
  }
  bool is_half(std::uint64_t word) {
    if (halves_.empty()) halves_ = upper_halves();
    return word != 0 && std::ranges::any_of(halves_, [&](const auto& range) {
             return word >= range.first && word <= range.second;
           });
  }
  std::string compare_results(const BodyRun& first, const BodyRun& second) const {
    for (std::size_t i = 0; i < second.results.size(); ++i) {
      if (is_same(first.results[i].address, second.results[i].address)) continue;
      return str_format("result {} lies elsewhere", i);
    }
    return "";
  }
  std::string compare_nodes(const BodyRun& first, const BodyRun& second) {
    if (first.nodes.size() != second.nodes.size())
      return str_format("{} nodes, and then {}", first.nodes.size(), second.nodes.size());
    for (std::size_t i = 0; i < second.nodes.size(); ++i) {
      std::string found = compare_node(first.nodes[i], second.nodes[i]);
      if (!found.empty()) return str_format("node {}{}", i, found);
    }
    return "";
  }
  std::string compare_node(const NodeContents& first, const NodeContents& second) {
    const std::string name = second.name().empty() ? "" : " '" + demangled(second.name()) + "'";
    // Other parameters of a collective belong to the communicator, and may differ between captures.
    if (is_collective(second.name()) && first.name() == second.name()) return "";
    if (!are_of_one_form(first, second))
      return str_format("{} is another, or has other dimensions", name);
    for (std::size_t i = 0; i < second.memory.size(); ++i) {
      if (!is_same(first.memory[i].address, second.memory[i].address))
        return str_format("{} uses memory at {:#x}, and then at {:#x}", name,
                          first.memory[i].address, second.memory[i].address);
    }
    for (std::size_t at = 0; at < second.bytes.size(); at += sizeof(std::uint64_t)) {
      const std::size_t bytes = std::min(sizeof(std::uint64_t), second.bytes.size() - at);
      std::uint64_t one = 0;
      std::uint64_t other = 0;
      std::memcpy(&one, first.bytes.data() + at, bytes);
      std::memcpy(&other, second.bytes.data() + at, bytes);
      if (is_same(one, other) || is_gap(second, at, one, other)) continue;
      return str_format("{} has other parameters, at byte {}: {:#x}, and then {:#x}", name, at, one,
                        other);
    }
    return "";
  }
  std::string compare_bodies(const BodyRun& first, const BodyRun& second) {
    const auto is_same_place = [](const BodyRun& a, const BodyRun& b) {
      return a.at == b.at && a.name == b.name;
    };
    if (!std::ranges::equal(first.bodies, second.bodies, is_same_place))
      return "it has other branches and loops";
    for (std::size_t i = 0; i < second.bodies.size(); ++i) {
      const std::string found = compare(first.bodies[i], second.bodies[i]);
      if (!found.empty()) return str_format("in {} {}", second.bodies[i].name, found);
    }
    return "";
  }
  // Returns whether two words are the same number, or the same byte of memory that both runs made.
  // Code may pass the end of a piece of memory, where another one may begin. A number that lies in
  // memory of one run is the address of that memory.
  bool is_same(std::uint64_t one, std::uint64_t other) const {
    bool is_inside = false;
    for (const auto& [first, second] : around_) {
      const std::size_t count = std::min(first->made.size(), second->made.size());
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t offset = one - first->made[i].address;
        if (offset <= first->made[i].bytes && offset == other - second->made[i].address)
          return true;
      }
      const auto lies_in = [](const std::vector<Range>& made, std::uint64_t word) {
        return std::ranges::any_of(
            made, [&](const Range& range) { return word - range.address < range.bytes; });
      };
      is_inside = is_inside || lies_in(first->made, one) || lies_in(second->made, other);
    }
    return one == other && !is_inside;
  }

  std::vector<std::pair<const BodyRun*, const BodyRun*>> around_;  // the outermost first
  std::vector<std::pair<std::uint64_t, std::uint64_t>> halves_;    // empty until it is needed
};

}  // namespace

std::string difference_of_results(const BodyRun& first, const BodyRun& second) {
  if (first.results.size() != second.results.size())
    return str_format("{} results, and then {}", first.results.size(), second.results.size());
  for (std::size_t i = 0; i < second.results.size(); ++i) {
    if (first.results[i].text == second.results[i].text) continue;
    return str_format("result {} is {}, and then {}", i, first.results[i].text,
                      second.results[i].text);
  }
  return "";
}

std::string difference(const BodyRun& first, const BodyRun& second) {
  return Comparison().compare(first, second);
}

RunLog::Made RunLog::made() noexcept {
  const StepAllocations& step = StepScope::current()->allocations();
  return {step.ranges.size(), step.elsewhere.size()};
}

RunLog::RunLog(BodyRun& run, StreamRef stream)
    : run_(run), stream_(stream), outer_(frame().body_log) {
  if (outer_ != nullptr) outer_->note_made();
  frame().body_log = this;
}

RunLog::~RunLog() {
  frame().body_log = outer_;
  if (outer_ != nullptr) outer_->noted_ = made();
}

RunLog* RunLog::current() noexcept {
  return frame().body_log;
}

// Source: cudaStreamGetCaptureInfo about its graph: while the capture is open, all operations on it
// are allowed except destroying it and removing nodes.
std::vector<NodeHandle> RunLog::list() const {
  CaptureInfo info;
  std::vector<NodeHandle> nodes;
  check(stream_.graphs().capture_info(stream_.handle(), &info), "ask what a body captures");
  if (info.status == CaptureStatus::kActive)
    check(stream_.graphs().graph_nodes(info.graph, &nodes), "list the nodes of a body");
  return nodes;
}

std::size_t RunLog::nodes() const {
  return list().size() - left_out_.size();
}

void RunLog::note_made() {
  const StepAllocations& step = StepScope::current()->allocations();
  const Made now = made();
  for (; noted_.in_pools < now.in_pools; ++noted_.in_pools)
    run_.made.push_back(step.ranges[noted_.in_pools]);
  for (; noted_.elsewhere < now.elsewhere; ++noted_.elsewhere) {
    const Storage& storage = *step.elsewhere[noted_.elsewhere];
    run_.made.push_back({storage.address(), storage.bytes()});
  }
}

void RunLog::add(std::size_t at, std::vector<BodyRun> runs) {
  for (BodyRun& run : runs) {
    run.at = at;
    run_.bodies.push_back(std::move(run));
  }
}

void RunLog::end(std::span<const Tensor> results) {
  note_made();
  for (const Tensor& result : results)
    run_.results.push_back({result.defined() ? result.address() : 0, describe(result)});
  own_ = list();
  std::erase_if(own_, [&](NodeHandle node) { return std::ranges::count(left_out_, node) != 0; });
  std::ranges::sort(own_);
}

// If the device does not describe nodes, their types are compared.
void RunLog::read(GraphHandle graph) {
  GraphAPI& graphs = stream_.graphs();
  if (!ok(graphs.read_nodes(graph, &run_.nodes))) {
    std::vector<NodeHandle> nodes;
    check(graphs.graph_nodes(graph, &nodes), "list the nodes of a body");
    run_.nodes.clear();
    for (const NodeHandle node : nodes) {
      NodeContents& contents = run_.nodes.emplace_back();
      contents.node = node;
      check(graphs.node_type(node, &contents.type), "look at a node of a body");
    }
  }
  std::erase_if(run_.nodes, [&](const NodeContents& contents) {
    return !std::ranges::binary_search(own_, contents.node);
  });
}

}  // namespace cgtree
