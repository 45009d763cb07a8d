// Hands out made-up addresses, and ends made-up work on demand.
#include "tests/allocator/fake_device.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace cgtree {

FakeDevice::~FakeDevice() {
  EXPECT_TRUE(held_.empty()) << held_.size() << " segments were never given back";
  EXPECT_TRUE(events_.empty()) << events_.size() << " events were never given back";
}

void FakeDevice::forbid_in_capture() const {
  CGTREE_CHECK(captures_ == 0);
}

void FakeDevice::refuse_if_told(std::size_t bytes) {
  ++calls_;
  const bool injected = calls_ >= fail_first_ && calls_ <= fail_last_;
  if (injected || bytes > capacity_ - bytes_) {
    throw OutOfMemory(fmt::format("the fake device refuses {} bytes", bytes));
  }
}

void* FakeDevice::allocate(std::size_t bytes, StreamId stream) {
  if (while_allocating) std::exchange(while_allocating, nullptr)();
  const std::lock_guard lock(mutex_);
  CGTREE_CHECK(!destroyed_.contains(stream));
  asked_.push_back(bytes);
  refuse_if_told(bytes);
  std::uintptr_t address = std::uintptr_t{1} << 40;
  for (const auto& [start, size] : held_) {
    if (start - address >= bytes) break;
    address = start + size;
  }
  held_.emplace(address, bytes);
  bytes_ += bytes;
  return reinterpret_cast<void*>(address);
}

void FakeDevice::free(void* segment, std::size_t bytes, StreamId stream) noexcept {
  forbid_in_capture();
  if (while_freeing) while_freeing();
  const std::lock_guard lock(mutex_);
  CGTREE_CHECK(!destroyed_.contains(stream));
  const auto found = held_.find(reinterpret_cast<std::uintptr_t>(segment));
  CGTREE_CHECK(found != held_.end() && found->second == bytes);
  held_.erase(found);
  bytes_ -= bytes;
  if (!frees_synchronize_) return;
  for (auto& [stream, work] : work_)
    work.done = work.submitted;
}

bool FakeDevice::grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) {
  const std::lock_guard lock(mutex_);
  CGTREE_CHECK(!destroyed_.contains(stream));
  const auto found = held_.find(reinterpret_cast<std::uintptr_t>(segment));
  CGTREE_CHECK(found != held_.end() && found->second == bytes && grown > bytes);
  refuse_if_told(grown - bytes);
  const auto next = std::next(found);
  if (next != held_.end() && next->first < found->first + grown) return false;
  found->second = grown;
  bytes_ += grown - bytes;
  return true;
}

std::size_t FakeDevice::shrink(void* segment, std::size_t bytes, std::size_t least,
                               StreamId stream) noexcept {
  forbid_in_capture();
  const std::lock_guard lock(mutex_);
  CGTREE_CHECK(!destroyed_.contains(stream));
  const auto found = held_.find(reinterpret_cast<std::uintptr_t>(segment));
  CGTREE_CHECK(found != held_.end() && found->second == bytes && least <= bytes);
  found->second = least;
  bytes_ -= bytes - least;
  return least;
}

std::optional<EventId> FakeDevice::record(StreamId stream) {
  const std::lock_guard lock(mutex_);
  if (destroyed_.contains(stream)) {
    ++records_refused_[stream];
    throw DeviceError(400, "there is no such stream");
  }
  if (capturing_.contains(stream)) return std::nullopt;
  ++recorded_;
  events_.emplace(++last_event_, Event{stream, work_[stream].submitted});
  return last_event_;
}

std::size_t FakeDevice::records_refused(StreamId stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = records_refused_.find(stream);
  return found == records_refused_.end() ? 0 : found->second;
}

bool FakeDevice::is_complete(EventId event) {
  forbid_in_capture();
  ++queried_;
  const std::lock_guard lock(mutex_);
  const Event& recorded = events_.at(event);
  return work_[recorded.stream].done >= recorded.after;
}

void FakeDevice::wait(EventId event) {
  forbid_in_capture();
  if (while_waiting) std::exchange(while_waiting, nullptr)();
  ++waited_;
  const std::lock_guard lock(mutex_);
  const Event& recorded = events_.at(event);
  Work& work = work_[recorded.stream];
  work.done = std::max(work.done, recorded.after);
}

void FakeDevice::give_back(EventId event) noexcept {
  const std::lock_guard lock(mutex_);
  CGTREE_CHECK(events_.erase(event) == 1);
}

void FakeDevice::begin_foreign_capture(StreamId stream) {
  const std::lock_guard lock(mutex_);
  capturing_.insert(stream);
}

void FakeDevice::end_foreign_capture(StreamId stream) {
  const std::lock_guard lock(mutex_);
  capturing_.erase(stream);
}

void FakeDevice::destroy_stream(StreamId stream) {
  const std::lock_guard lock(mutex_);
  destroyed_.insert(stream);
}

bool FakeDevice::exists(StreamId stream) const noexcept {
  const std::lock_guard lock(mutex_);
  return !destroyed_.contains(stream);
}

std::uint64_t FakeDevice::submit(StreamId stream) {
  const std::lock_guard lock(mutex_);
  return ++work_[stream].submitted;
}

void FakeDevice::finish_one(StreamId stream) {
  const std::lock_guard lock(mutex_);
  Work& work = work_[stream];
  work.done = std::min(work.done + 1, work.submitted);
}

void FakeDevice::finish(StreamId stream) {
  const std::lock_guard lock(mutex_);
  work_[stream].done = work_[stream].submitted;
}

bool FakeDevice::is_done(StreamId stream, std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = work_.find(stream);
  return number == 0 || (found != work_.end() && found->second.done >= number);
}

void FakeDevice::fail_at(std::size_t k) {
  const std::lock_guard lock(mutex_);
  fail_first_ = fail_last_ = calls_ + k;
}

void FakeDevice::fail_from(std::size_t k) {
  const std::lock_guard lock(mutex_);
  fail_first_ = calls_ + k;
  fail_last_ = SIZE_MAX;
}

void FakeDevice::fail_no_more() {
  const std::lock_guard lock(mutex_);
  fail_first_ = fail_last_ = 0;
}

std::vector<std::size_t> FakeDevice::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

std::vector<Range> FakeDevice::held() const {
  const std::lock_guard lock(mutex_);
  std::vector<Range> ranges;
  for (const auto& [address, bytes] : held_)
    ranges.push_back({address, bytes});
  return ranges;
}

std::size_t FakeDevice::bytes_held() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace cgtree
