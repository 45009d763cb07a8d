// A captured graph made of numbers, and pools for it.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "caching/captures/capture_order.h"
#include "caching/captures/capture_session.h"

namespace cgtree {

// Nodes are numbered from 1; the dependencies of each are those of CUDA's rules.
class FakeDag final : public CaptureDag {
 public:
  explicit FakeDag(StreamId origin) { terminals_[origin]; }

  // One more node on the stream.
  NodeId run(StreamId stream) {
    std::vector<NodeId>& at = terminals_.at(stream);
    dependencies_.push_back(at);
    at = {dependencies_.size()};
    return dependencies_.size();
  }

  // `stream` waits for `other`, and is part of the capture from then on.
  void wait(StreamId stream, StreamId other) {
    std::vector<NodeId>& at = terminals_[stream];
    for (const NodeId node : terminals_.at(other))
      if (std::find(at.begin(), at.end(), node) == at.end()) at.push_back(node);
  }

  void move_to(StreamId stream, std::vector<NodeId> nodes) { terminals_[stream] = nodes; }

  std::optional<std::vector<NodeId>> terminals(StreamId stream) override {
    const auto found = terminals_.find(stream);
    if (found == terminals_.end()) return std::nullopt;
    return found->second;
  }

  std::vector<NodeId> dependencies(NodeId node) override {
    ++visits_;
    return dependencies_.at(node - 1);
  }

  // The plain answer, by a walk of its own.
  std::set<NodeId> all_before(StreamId stream) const {
    std::set<NodeId> reached;
    std::vector<NodeId> to_visit = terminals_.at(stream);
    while (!to_visit.empty()) {
      const NodeId node = to_visit.back();
      to_visit.pop_back();
      if (!reached.insert(node).second) continue;
      for (const NodeId before : dependencies_.at(node - 1))
        to_visit.push_back(before);
    }
    return reached;
  }

  std::size_t visits() const { return visits_; }
  std::size_t nodes() const { return dependencies_.size(); }

 private:
  std::vector<std::vector<NodeId>> dependencies_;  // by node - 1
  std::map<StreamId, std::vector<NodeId>> terminals_;
  std::size_t visits_ = 0;
};

// Pools without work outside the capture.
class FakeCapturePools final : public CapturePools {
 public:
  explicit FakeCapturePools(SegmentSource& source) : source_(source) {}

  std::size_t count() const override { return pools_.size(); }
  Pool& pool(std::size_t number) override {
    if (const auto next = std::exchange(when_asked, nullptr)) next();
    return pools_[number];
  }
  bool try_take(std::size_t, StreamId) override { return true; }
  void hand_back(std::size_t, StreamId) noexcept override { ++handed_back; }
  std::size_t add(StreamId stream) override {
    pools_.emplace_back(source_, PoolOptions{.stream = stream});
    return pools_.size() - 1;
  }
  void expect_live(std::size_t number, void* address) override {
    pools_[number].expect_live(address);
  }
  void use_outside(std::size_t, void* address, StreamId stream) override {
    outside.emplace_back(address, stream);
  }
  void free_outside(std::size_t number, void* address) noexcept override {
    pools_[number].free(address);
  }

  std::size_t live_blocks() const {
    std::size_t blocks = 0;
    for (const Pool& pool : pools_)
      blocks += pool.live().size();
    return blocks;
  }
  std::size_t number_of(void* address) const {
    for (std::size_t i = 0; i < pools_.size(); ++i)
      if (pools_[i].owns(address)) return i;
    return SIZE_MAX;
  }

  // Is called, once, when the session next asks for a pool.
  std::function<void()> when_asked;
  std::size_t handed_back = 0;
  std::vector<std::pair<void*, StreamId>> outside;

 private:
  SegmentSource& source_;
  std::deque<Pool> pools_;
};

}  // namespace cgtree
