// Calls first, then records the result.
#include "tests/support/call_trace.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "interop/device/code.h"

namespace cgtree::testing {
namespace {

template <typename Predicate>
std::vector<TracedCall> those(const std::vector<TracedCall>& calls, Predicate predicate) {
  std::vector<TracedCall> found;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(found), predicate);
  return found;
}

bool ends_a_capture(const DeviceCall& call, Code code) {
  // An unmatched end leaves the capture open, and one without a capture ends none.
  return std::string_view(call.function) == "end_capture" &&
         code != Code::kStreamCaptureUnmatched && code != Code::kIllegalState &&
         code != Code::kStreamCaptureImplicit;
}

}  // namespace

std::string to_string(const TracedCall& call) {
  char text[128];
  std::snprintf(text, sizeof(text), "%s on stream %#lx: %d%s", call.function,
                static_cast<unsigned long>(call.stream), static_cast<int>(call.code),
                call.is_captured ? ", during a capture" : "");
  return text;
}

Code CallTrace::around(const DeviceCall& call, Forward forward) {
  const Code code = forward();
  const std::lock_guard lock(mutex_);
  calls_.push_back({std::this_thread::get_id(), call.function, call.kind, call.stream, code,
                    open_captures_ > 0});
  if (std::string_view(call.function) == "begin_capture" && ok(code)) ++open_captures_;
  if (ends_a_capture(call, code)) --open_captures_;
  return code;
}

std::vector<TracedCall> CallTrace::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void CallTrace::clear() {
  const std::lock_guard lock(mutex_);
  calls_.clear();
}

std::vector<TracedCall> CallTrace::calls_of(CallKind kind) const {
  return those(calls(), [kind](const TracedCall& call) { return call.kind == kind; });
}

std::size_t CallTrace::count(std::string_view function) const {
  return those(calls(), [function](const TracedCall& call) { return call.function == function; })
      .size();
}

std::vector<TracedCall> CallTrace::memory_calls_under_capture() const {
  return those(calls(), [](const TracedCall& call) {
    return call.is_captured && (call.kind == CallKind::kAllocate || call.kind == CallKind::kFree);
  });
}

}  // namespace cgtree::testing
