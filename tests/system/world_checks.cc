// World: compares device and model, and counts.
#include "tests/system/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "extensions/watch/monitor.h"
#include "tests/support/inside.h"
#include "tests/system/world_model.h"

namespace cgtree::testing {
namespace {

constexpr long kMostEvents = 160;  // about 50 for each of three contexts

}  // namespace

// Requires: no work is in flight.
void World::expect(const Tensor& tensor, const ModelTensor& model, const std::string& name) {
  const Storage& storage = *tensor.storage();
  if (storage.state() == Storage::State::kStale) throw Difference(name + " is stale");
  if (!same_dims(tensor.shape(), model.shape)) throw Difference(name + " has another shape");
  const Tensor whole(tensor.storage(), 0,
                     Shape{static_cast<std::int64_t>(storage.bytes() / sizeof(float))},
                     DType::kFloat32);
  const std::vector<float> values = whole.to_vector<float>();
  const ModelTensor given{std::make_shared<ModelTensor::Buffer>(ModelTensor::Buffer{values}),
                          static_cast<std::int64_t>(tensor.byte_offset() / sizeof(float)),
                          tensor.shape()};
  for (std::int64_t i = 0; i < model.shape.elements(); ++i) {
    if (given[i] == model[i]) continue;
    throw Difference(fmt::format("element {} of {} is {}, not {}", i, name, given[i], model[i]));
  }
}

void World::check() {
  settle();
  for (int i = 0; i < kVariables; ++i) {
    const Variable& variable = variables_[static_cast<std::size_t>(i)];
    if (variable.tensor.defined()) {
      expect(variable.tensor, variable.model, fmt::format("variable {}", i));
    }
  }
  for (const Variable& one : elsewhere_)
    expect(one.tensor, one.model, "an output of another device");
  for (const Variable& one : hoard_)
    expect(one.tensor, one.model, "a result that is kept");
  check_leased();
  for (const auto& inputs : many_) {
    for (const Variable& input : inputs) {
      if (input.tensor.defined() && !is_stale(input.tensor)) {
        expect(input.tensor, input.model, "one of many inputs");
      }
    }
  }
  for (const auto& context : contexts_) {
    if (context == nullptr) continue;
    for (const auto& [tensor, number] : context->made_in_hooks()) {
      if (!tensor.defined()) continue;
      if (tensor.to_vector<float>() != std::vector<float>(6, number)) {
        throw Difference("what before_first_launch has made is overwritten");
      }
      ++totals_.done[context->rebinds() ? "before_first_launch allocates, and inputs are rebound"
                                        : "before_first_launch allocates"];
    }
  }
  if (events_ != nullptr) {
    totals_.most_events = std::max(totals_.most_events, events_->load());
    // A held output keeps the memory of an ended context, and the events of its last readers: up to
    // ten of read_beside(), since no later reader replaces them.
    const auto held =
        std::ranges::count_if(captured_, [](const Captured& c) { return !c.has_graph(); });
    if (*events_ > kMostEvents + 10 * held) {
      throw Difference(
          fmt::format("{} events are there while nothing is under way", events_->load()));
    }
  }
  for (const Captured& captured : captured_)
    expect(captured.y.tensor, captured.y.model, "what a caller's graph or copy has written");
  std::erase_if(captured_, [](const Captured& captured) { return !captured.has_graph(); });
  graveyard_.clear();
  stock_.clear();
  taken_ = 0;
  for (int i = 0; i < 12; ++i) {
    Variable whole;
    whole.model = ModelTensor::make(Shape{80}, kNobodys);
    for (float& value : whole.model.buffer->values)
      value = next_value();
    whole.tensor = from_host({80}, std::span<const float>(whole.model.buffer->values), device_);
    stock_.push_back(std::move(whole));
  }
}

void World::finish() {
  for (Variable& variable : variables_)
    variable = {};
  captured_.clear();
  many_.clear();
  stale_.clear();
  elsewhere_.clear();
  leased_.clear();
  hoard_.clear();
  for (const auto& context : contexts_) {
    count(context->context());
    cgtree::testing::validate(context->context());
  }
}

void World::count(const Context& context) {
  const ContextStats stats = context.stats();
  totals_.recordings += stats.recordings;
  totals_.replays += stats.replays;
  totals_.evictions += stats.evictions;
  if (program_.operations.size() % 4 != 0) return;  // snapshots take most of the test's time
  const nlohmann::json snapshot = nlohmann::json::parse(snapshot_json(context));
  for (const auto& function : snapshot["functions"]) {
    if (function.contains("verification")) {
      totals_.verified += function["verification"]["verified"].get<std::uint64_t>();
    }
  }
  for (const auto& node : snapshot["nodes"]) {
    const auto& inputs = node["inputs"];
    const auto signature = node["signature"].get<std::string>();
    const bool has_buffer = signature.find("into ") != std::string::npos;  // one, and the last
    bool is_rebound = false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]["treatment"] != "rebound") continue;
      is_rebound = true;
      const bool is_buffer = has_buffer && i + 1 == inputs.size();
      ++(is_buffer ? totals_.rebound_buffers : totals_.rebound_inputs);
    }
    if (is_rebound) totals_.rebound_replays += node["replays"].get<std::uint64_t>();
    totals_.foreign += !node["audit"]["foreign"].empty();
    totals_.declared += std::ranges::any_of(
        node["audit"]["memory"], [](const auto& memory) { return memory["owner"] == "declared"; });
  }
}

}  // namespace cgtree::testing
