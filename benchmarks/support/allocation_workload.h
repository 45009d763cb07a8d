// The requests of allocator benchmarks, the same for every allocator.
//
// This uses the standard library only, so that a program built against PyTorch can include it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace cgtree::benchmarks {

constexpr int kPairs = 4096;  // per sample: reading the clock costs tens of ns, as a pair does

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Sizes {
  std::size_t live;  // blocks, per thread
  std::size_t least;
  std::size_t most;  // log-uniform between the two
};

// A Workload holds live blocks of one thread and replaces them one after the other. Sizes and the
// order are drawn beforehand. `Memory` has allocate(bytes) and free(address).
template <typename Memory>
class Workload {
 public:
  // Runs `rounds` rounds of 4096 pairs. After 32 rounds, memory is fragmented and does not grow any
  // more.
  Workload(Memory& memory, const Sizes& sizes, unsigned seed, std::int64_t rounds)
      : memory_(memory) {
    std::mt19937 random(seed);
    const double octaves = std::log2(static_cast<double>(sizes.most) / sizes.least);
    std::uniform_real_distribution<double> exponent(0, octaves);
    const auto size = [&] {
      return static_cast<std::size_t>(sizes.least * std::exp2(exponent(random)));
    };
    for (std::size_t i = 0; i < sizes.live; ++i)
      blocks_.push_back(memory_.allocate(size()));
    for (int i = 0; i < kRounds * kPairs; ++i)
      steps_.push_back({size(), static_cast<std::uint32_t>(random() % sizes.live)});
    for (std::int64_t i = 0; i < rounds; ++i)
      run();
  }
  ~Workload() {
    for (void* const block : blocks_)
      memory_.free(block);
  }
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  void run() {
    const Step* const first = &steps_[static_cast<std::size_t>(round_) * kPairs];
    for (const Step* step = first; step != first + kPairs; ++step) {
      void*& block = blocks_[step->victim];
      memory_.free(block);
      block = memory_.allocate(step->bytes);
    }
    round_ = (round_ + 1) % kRounds;
  }

 private:
  static constexpr int kRounds = 16;  // then the steps repeat
  struct Step {
    std::size_t bytes;
    std::uint32_t victim;
  };

  Memory& memory_;
  std::vector<Step> steps_;
  std::vector<void*> blocks_;
  int round_ = 0;
};

// A step of a trace, which goes from an empty pool to an empty pool.
struct TracedStep {
  std::uint32_t slot;
  std::size_t bytes;  // 0: frees
};

template <typename Memory>
void run_trace(Memory& memory, const std::vector<TracedStep>& steps, std::vector<void*>& blocks) {
  for (const TracedStep& step : steps) {
    void*& block = blocks[step.slot];
    if (step.bytes > 0) {
      block = memory.allocate(step.bytes);
    } else {
      memory.free(block);
      block = nullptr;
    }
  }
}

// Adds frees of the blocks that the trace leaves live, in the order of the slots.
inline void add_missing_frees(std::vector<TracedStep>& steps, std::size_t slots) {
  std::vector<bool> live(slots, false);
  for (const TracedStep& step : steps)
    live[step.slot] = step.bytes > 0;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    if (live[slot]) steps.push_back({static_cast<std::uint32_t>(slot), 0});
  }
}

// Sorts the samples and returns one of them. `part` is from 0 to 1.
inline double quantile(std::vector<double>& samples, double part) {
  std::sort(samples.begin(), samples.end());
  const auto place = static_cast<std::size_t>(static_cast<double>(samples.size()) * part);
  return samples[std::min(place, samples.size() - 1)];
}

}  // namespace cgtree::benchmarks
