// The list of the logs that are open on each thread.
#include "cgtree/flow/flow_log.h"

#include <utility>

namespace cgtree {
namespace {

constinit thread_local FlowLog* t_first = nullptr;
thread_local std::vector<StreamRef> t_streams;

}  // namespace

FlowLog::FlowLog(Look look) noexcept : look_(std::move(look)), next_(std::exchange(t_first, this)) {
}

std::span<const StreamRef> FlowLog::streams() noexcept {
  return t_streams;
}

FlowLog::BodyOn::BodyOn(StreamRef stream) {
  t_streams.push_back(stream);
}

FlowLog::BodyOn::~BodyOn() {
  for (FlowLog* log = t_first; log != nullptr; log = log->next_) {
    if (log->look_) log->look_(t_streams.back());
  }
  t_streams.pop_back();
}

void FlowLog::close() noexcept {
  if (!std::exchange(is_open_, false)) return;
  FlowLog** place = &t_first;
  while (*place != nullptr && *place != this)
    place = &(*place)->next_;
  if (*place != nullptr) *place = next_;
}

std::span<const GraphHandle> FlowLog::bodies_of(NodeHandle node) const noexcept {
  const auto found = bodies_.find(node);
  return found == bodies_.end() ? std::span<const GraphHandle>() : std::span(found->second);
}

void FlowLog::note(NodeHandle node, const std::vector<GraphHandle>& bodies) {
  for (FlowLog* log = t_first; log != nullptr; log = log->next_)
    log->bodies_.insert_or_assign(node, bodies);
}

void FlowLog::note_rows() noexcept {
  for (FlowLog* log = t_first; log != nullptr; log = log->next_)
    log->hands_out_rows_ = true;
}

bool FlowLog::note_failure() noexcept {
  for (FlowLog* log = t_first; log != nullptr; log = log->next_)
    log->has_failed_ = true;
  return t_first != nullptr;
}

}  // namespace cgtree
