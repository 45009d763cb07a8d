// What does a pool's allocation cost the host, and what a checkpoint?
//
// Segments have made-up addresses, so no driver call is in any number. Statistics are on, as they
// always are.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "allocator/made_up_segment_source.h"
#include "allocator/pool.h"
#include "benchmarks/support/allocation_count.h"
#include "benchmarks/support/program.h"

namespace cgtree::benchmarks {
namespace {

constexpr std::int64_t kWarmUp = 32;  // rounds
constexpr int kPairs = 4096;  // per sample: reading the clock costs tens of ns, as a pair does

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The samples of one row, of one thread.
class Samples {
 public:
  explicit Samples(benchmark::State& state) : state_(state) {
    samples_.reserve(static_cast<std::size_t>(state.max_iterations));
  }

  // `seconds` for `operations` of them.
  void add(double seconds, int operations) {
    samples_.push_back(seconds / operations);
    state_.SetIterationTime(seconds / operations);
  }

  // Counters in ns per operation; with several threads, the mean of what each saw.
  void report() {
    std::sort(samples_.begin(), samples_.end());
    const auto at = [&](std::size_t percent) {
      const std::size_t place = std::min(samples_.size() * percent / 100, samples_.size() - 1);
      return benchmark::Counter(samples_[place] * 1e9, benchmark::Counter::kAvgThreads);
    };
    state_.counters["min_ns"] = at(0);
    state_.counters["median_ns"] = at(50);
    state_.counters["p99_ns"] = at(99);
  }

 private:
  benchmark::State& state_;
  std::vector<double> samples_;
};

struct Sizes {
  std::size_t live;  // blocks, per thread
  std::size_t least;
  std::size_t most;  // log-uniform between the two
};

// Live blocks of one thread, each replaced in turn by another. Sizes and places are drawn
// beforehand.
class Workload {
 public:
  // After `rounds` of 4096 pairs: with 32, the pool is fragmented and grows no more.
  Workload(Pool& pool, const Sizes& sizes, unsigned seed, std::int64_t rounds) : pool_(pool) {
    std::mt19937 random(seed);
    const double octaves = std::log2(static_cast<double>(sizes.most) / sizes.least);
    std::uniform_real_distribution<double> exponent(0, octaves);
    const auto size = [&] {
      return static_cast<std::size_t>(sizes.least * std::exp2(exponent(random)));
    };
    for (std::size_t i = 0; i < sizes.live; ++i)
      blocks_.push_back(pool_.allocate(size()));
    for (int i = 0; i < kRounds * kPairs; ++i)
      steps_.push_back({size(), static_cast<std::uint32_t>(random() % sizes.live)});
    for (std::int64_t i = 0; i < rounds; ++i)
      run();
  }

  ~Workload() {
    for (void* const block : blocks_)
      pool_.free(block);
  }

  void run() {
    const Step* const first = &steps_[static_cast<std::size_t>(round_) * kPairs];
    for (const Step* step = first; step != first + kPairs; ++step) {
      void*& block = blocks_[step->victim];
      pool_.free(block);
      block = pool_.allocate(step->bytes);
    }
    round_ = (round_ + 1) % kRounds;
  }

 private:
  static constexpr int kRounds = 16;  // then the same steps again
  struct Step {
    std::size_t bytes;
    std::uint32_t victim;
  };

  Pool& pool_;
  std::vector<Step> steps_;
  std::vector<void*> blocks_;
  int round_ = 0;
};

struct PoolOnNothing {
  MadeUpSegmentSource source;
  Pool pool{source};
};

struct PairRow {
  Sizes sizes;
  std::int64_t warm_up;
  std::shared_ptr<PoolOnNothing> shared = std::make_shared<PoolOnNothing>();  // by the threads

  void operator()(benchmark::State& state) const {
    Workload workload(shared->pool, sizes, 1 + static_cast<unsigned>(state.thread_index()),
                      warm_up);
    Samples samples(state);
    std::uint64_t allocations = 0;
    for (auto _ : state) {
      const std::uint64_t allocated = allocation_count();
      const auto begin = std::chrono::steady_clock::now();
      workload.run();
      const double seconds = seconds_since(begin);
      allocations += allocation_count() - allocated;
      samples.add(seconds, kPairs);
    }
    samples.report();
    state.counters["allocations"] = benchmark::Counter(
        static_cast<double>(allocations) / kPairs / static_cast<double>(state.iterations()),
        benchmark::Counter::kAvgThreads);
  }
};

template <typename Row>
benchmark::internal::Benchmark* add_row(const std::string& name, std::int64_t samples, Row row) {
  return benchmark::RegisterBenchmark(name.c_str(), [row](benchmark::State& state) { row(state); })
      ->Iterations(samples)
      ->UseManualTime()
      ->Unit(benchmark::kNanosecond);
}

void add_pairs(const Options& options) {
  const std::size_t mib = std::size_t{1} << 20;
  const auto add = [&](const std::string& name, const Sizes& sizes) {
    for (const int threads : {1, 2, 4, 8, 16}) {
      const std::int64_t samples = std::max<std::int64_t>(options.samples / threads, 1);
      add_row(name, samples, PairRow{sizes, std::min(options.samples, kWarmUp)})->Threads(threads);
    }
  };
  add("BM_Pair/one_size:4096/live:500", {500, 4096, 4096});
  for (const std::size_t live : {64, 1024, 8192})
    add(fmt::format("BM_Pair/random_sizes/live:{}", live), {live, 512, 64 * mib});
}

// A pool of 100 live blocks, as a graph's is, beside 10,000 live ones in an eager pool.
class CheckpointRow {
 public:
  enum class Timed { kCheckpoint, kRestore };
  explicit CheckpointRow(Timed timed) : timed_(timed) {}

  void operator()(benchmark::State& state) const {
    MadeUpSegmentSource source;
    Pool eager(source), graph(source);
    const Sizes sizes{.live = 100, .least = 512, .most = std::size_t{1} << 20};
    const Workload others(eager, {10'000, sizes.least, sizes.most}, 1, 1);
    Workload workload(graph, sizes, 2, 1);
    const PoolCheckpoint before = graph.checkpoint();
    Samples samples(state);
    for (auto _ : state) {
      std::vector<void*> some;  // every segment changes
      for (std::size_t i = 0; i < graph.segments().size(); ++i)
        some.push_back(graph.allocate(512 << (i % 11)));
      auto begin = std::chrono::steady_clock::now();
      const PoolCheckpoint after = graph.checkpoint();
      double seconds = seconds_since(begin);
      begin = std::chrono::steady_clock::now();
      const PoolDelta delta = graph.restore(before, some);
      if (timed_ == Timed::kRestore) seconds = seconds_since(begin);
      benchmark::DoNotOptimize(delta.died.size());
      samples.add(seconds, 1);
    }
    samples.report();
    state.counters["segments"] = static_cast<double>(graph.segments().size());
  }

 private:
  Timed timed_;
};

void add_rows(const Options& options) {
  add_pairs(options);
  using Timed = CheckpointRow::Timed;
  add_row("BM_Checkpoint/blocks:100/eager:10000", options.samples,
          CheckpointRow(Timed::kCheckpoint));
  add_row("BM_Restore/blocks:100/eager:10000", options.samples, CheckpointRow(Timed::kRestore));
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv, "What does a pool's allocation cost the host, and what a checkpoint?",
      &cgtree::benchmarks::add_rows);
}
