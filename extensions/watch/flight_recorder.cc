// Keeps the recorders of all contexts, and the events in them.
#include "extensions/watch/flight_recorder.h"

namespace cgtree {

constinit std::atomic<FlightRecorder*> FlightRecorder::first_{nullptr};

FlightRecorder& FlightRecorder::take(Header header) {
  FlightRecorder* taken = nullptr;
  for_each([&](FlightRecorder& one) {
    bool is_taken = false;
    if (taken == nullptr && one.is_taken_.compare_exchange_strong(is_taken, true)) taken = &one;
  });
  const bool is_new = taken == nullptr;
  if (is_new) taken = new FlightRecorder;
  header.life = ++taken->life_;
  header.is_open = 1;
  taken->count_.store(0, std::memory_order_release);
  taken->clear_running();
  taken->header_.write(header);
  if (is_new) {
    taken->next_ = first_.load(std::memory_order_relaxed);
    while (!first_.compare_exchange_weak(taken->next_, taken, std::memory_order_release)) {
    }
  }
  return *taken;
}

void FlightRecorder::give_back() noexcept {
  header_.write({});
  is_taken_.store(false, std::memory_order_release);
}

void FlightRecorder::add(FlightEntry entry) noexcept {
  const std::uint64_t count = count_.load(std::memory_order_relaxed);
  entry.number = count;
  entry.life = life_;
  events_[count % kEvents].write(entry);
  count_.store(count + 1, std::memory_order_release);
}

void FlightRecorder::set_running(FlightEntry entry) noexcept {
  entry.life = life_;
  running_.write(entry);
}

void FlightRecorder::clear_running() noexcept {
  running_.write({});
}

bool FlightRecorder::header(Header& header) const noexcept {
  return header_.read(header) && header.is_open != 0;
}

}  // namespace cgtree
