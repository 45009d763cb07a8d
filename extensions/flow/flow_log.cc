// The list of the open logs of each thread.
#include "extensions/flow/flow_log.h"

#include <utility>
#include <vector>

namespace cgtree {
namespace {

struct BodyStreams {
  std::vector<StreamRef> streams;  // of the open bodies, the innermost last
};

}  // namespace

FlowLog::FlowLog(Look look) noexcept
    : look_(std::move(look)), next_(std::exchange(frame().flow_log, this)) {
}

std::span<const StreamRef> FlowLog::streams() noexcept {
  return of_thread<BodyStreams>().streams;
}

FlowLog::BodyOn::BodyOn(StreamRef stream) {
  of_thread<BodyStreams>().streams.push_back(stream);
}

FlowLog::BodyOn::~BodyOn() {
  std::vector<StreamRef>& streams = of_thread<BodyStreams>().streams;
  for (FlowLog* log = frame().flow_log; log != nullptr; log = log->next_) {
    if (log->look_) log->look_(streams.back());
  }
  streams.pop_back();
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
