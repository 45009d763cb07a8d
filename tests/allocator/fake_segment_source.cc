// Hands out made-up addresses.
#include "tests/allocator/fake_segment_source.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "allocator/pool/segment_source.h"
#include "base/check.h"
#include "base/error.h"

namespace cgtree {

FakeSegmentSource::~FakeSegmentSource() {
  EXPECT_TRUE(held_.empty()) << held_.size() << " segments were never given back";
  EXPECT_TRUE(users_.empty()) << users_.size() << " users never detached";
}

bool FakeSegmentSource::refuses(std::size_t bytes) const {
  return bytes > largest_ || bytes > capacity_ - bytes_;
}

void FakeSegmentSource::expect_room(std::size_t bytes) {
  asked_.push_back(bytes);
  const bool injected = asked_.size() >= fail_first_ && asked_.size() <= fail_last_;
  if (!injected && !refuses(bytes)) return;
  const std::string message = fmt::format("the fake device refuses {} bytes", bytes);
  if (!asks_users_) throw OutOfMemory(message);
  throw OutOfMemory(message, MemoryReport{.requested = bytes});
}

// Asks the users without holding the lock, as sources must.
void FakeSegmentSource::make_room(std::size_t bytes, std::unique_lock<std::mutex>& lock) {
  if (!asks_users_ || !refuses(bytes)) return;
  const std::vector<SegmentUser*> users = users_;
  ++asking_;
  lock.unlock();
  for (SegmentUser* const user : users)
    user->give_back_unused();
  lock.lock();
  --asking_;
}

void* FakeSegmentSource::allocate(std::size_t bytes, StreamId) {
  std::unique_lock lock(mutex_);
  make_room(bytes, lock);
  expect_room(bytes);
  std::uintptr_t address = std::uintptr_t{1} << 40;
  for (const auto& [start, size] : held_) {
    if (start - address >= std::max(bytes, spacing_)) break;
    address = start + std::max(size, spacing_);
  }
  held_.emplace(address, bytes);
  bytes_ += bytes;
  ++given_;
  return reinterpret_cast<void*>(address);
}

void FakeSegmentSource::free(void* segment, std::size_t bytes, StreamId) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(reinterpret_cast<std::uintptr_t>(segment));
  CGTREE_CHECK(found != held_.end() && found->second == bytes);
  held_.erase(found);
  bytes_ -= bytes;
  ++given_back_;
}

bool FakeSegmentSource::grow(void* segment, std::size_t bytes, std::size_t grown, StreamId) {
  std::unique_lock lock(mutex_);
  const auto found = held_.find(reinterpret_cast<std::uintptr_t>(segment));
  CGTREE_CHECK(found != held_.end() && found->second == bytes && grown > bytes);
  if (grown > spacing_) return false;
  make_room(grown - bytes, lock);
  CGTREE_CHECK(found->second == bytes);  // a segment must not shrink while it grows
  expect_room(grown - bytes);
  found->second = grown;
  bytes_ += grown - bytes;
  ++given_;
  return true;
}

std::size_t FakeSegmentSource::shrink(void* segment, std::size_t bytes, std::size_t least,
                                      StreamId) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(reinterpret_cast<std::uintptr_t>(segment));
  CGTREE_CHECK(found != held_.end() && found->second == bytes && least > 0 && least < bytes);
  const std::size_t stays =
      spacing_ == 0 ? bytes
                    : std::min(bytes, (least + granularity_ - 1) / granularity_ * granularity_);
  found->second = stays;
  bytes_ -= bytes - stays;
  if (stays < bytes) ++given_back_;
  return stays;
}

void FakeSegmentSource::attach(SegmentUser& user) {
  const std::lock_guard lock(mutex_);
  users_.push_back(&user);
}

void FakeSegmentSource::detach(SegmentUser& user) noexcept {
  std::unique_lock lock(mutex_);
  const auto found = std::find(users_.begin(), users_.end(), &user);
  CGTREE_CHECK(found != users_.end());
  users_.erase(found);
  while (asking_ > 0) {  // it may be among the users that are being asked
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

std::vector<std::size_t> FakeSegmentSource::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

std::vector<Range> FakeSegmentSource::held() const {
  const std::lock_guard lock(mutex_);
  std::vector<Range> ranges;
  for (const auto& [address, bytes] : held_)
    ranges.push_back({address, bytes});
  return ranges;
}

std::vector<SegmentUser*> FakeSegmentSource::users() const {
  const std::lock_guard lock(mutex_);
  return users_;
}

std::size_t FakeSegmentSource::given() const {
  const std::lock_guard lock(mutex_);
  return given_;
}

std::size_t FakeSegmentSource::given_back() const {
  const std::lock_guard lock(mutex_);
  return given_back_;
}

}  // namespace cgtree
