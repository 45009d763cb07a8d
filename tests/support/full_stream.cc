// Blocks calls until it is drained.
#include "tests/support/full_stream.h"

#include <string_view>

#include "simulator/host_device.h"
#include "tests/support/host_slot.h"

namespace cgtree::testing {
namespace {

using namespace std::chrono_literals;

// While the driver waits for room on some stream.
bool needs_driver(const DeviceCall& call) {
  const std::string_view name = call.function;
  return call.kind == CallKind::kAllocate || call.kind == CallKind::kFree ||
         name == "create_event" || name == "destroy_event" || name == "create_stream" ||
         name == "destroy_stream";
}

}  // namespace

FullStream::FullStream() : device_(host_device_api(), *this) {
  HostSlot::instance().put(device_);
}

FullStream::~FullStream() {
  drain();
  HostSlot::instance().put(host_device_api());
}

Device FullStream::device() const noexcept {
  return HostSlot::instance().device();
}

void FullStream::fill(StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  full_ = stream;
}

void FullStream::stall() {
  const std::lock_guard lock(mutex_);
  is_stalled_ = true;
}

void FullStream::drain() {
  const std::lock_guard lock(mutex_);
  full_.reset();
  is_stalled_ = false;
  changed_.notify_all();
}

bool FullStream::wait_until_blocked() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, 5s, [&] { return blocked_ > 0; });
}

bool FullStream::must_block(const DeviceCall& call) const {
  if (is_stalled_ && call.kind == CallKind::kSynchronize) return true;
  if (!full_) return false;
  const bool names_it = call.stream == *full_ &&
                        (call.kind == CallKind::kWork || call.kind == CallKind::kSynchronize ||
                         std::string_view(call.function) == "query_stream");
  return names_it || (blocked_ > 0 && needs_driver(call));
}

Code FullStream::around(const DeviceCall& call, Forward forward) {
  {
    std::unique_lock lock(mutex_);
    if (must_block(call)) {
      ++blocked_;
      changed_.notify_all();
      changed_.wait_for(lock, kMost, [&] { return !full_ && !is_stalled_; });
      --blocked_;
    }
  }
  return forward();
}

bool ends_soon(std::future<void>& thread, std::function<void()> function) {
  thread = std::async(std::launch::async, std::move(function));
  return thread.wait_for(5s) == std::future_status::ready;
}

}  // namespace cgtree::testing
