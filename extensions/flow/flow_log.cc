// The list of the logs that are open on each thread.
#include "extensions/flow/flow_log.h"

#include <utility>
#include <vector>

namespace cgtree {
namespace {

thread_local std::vector<StreamRef> t_streams;

}  // namespace

FlowLog::FlowLog(Look look) noexcept
    : look_(std::move(look)), next_(std::exchange(frame().flow_log, this)) {
}

std::span<const StreamRef> FlowLog::streams() noexcept {
  return t_streams;
}

FlowLog::BodyOn::BodyOn(StreamRef stream) {
  t_streams.push_back(stream);
}

FlowLog::BodyOn::~BodyOn() {
  for (FlowLog* log = frame().flow_log; log != nullptr; log = log->next_) {
    if (log->look_) log->look_(t_streams.back());
  }
  t_streams.pop_back();
}

void FlowLog::close() noexcept {
  FlowLog** place = &frame().flow_log;
  while (*place != nullptr && *place != this)
    place = &(*place)->next_;
  if (*place != nullptr) *place = next_;
}

void FlowLog::note_rows() noexcept {
  for (FlowLog* log = frame().flow_log; log != nullptr; log = log->next_)
    log->hands_out_rows_ = true;
}

}  // namespace cgtree
