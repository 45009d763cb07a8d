// Writes event files for the tests of trace_events, by running small programs on the host device:
//   events FOLDER SEED
// Prints the counters of each context, one JSON object per line.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cgtree/cgtree.h"
#include "extensions/ranks/group.h"
#include "extensions/watch/watch.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

Tensor filled(std::int64_t count) {
  return from_host<float>({count}, std::vector<float>(static_cast<std::size_t>(count), 1.0f),
                          Device::host());
}

void print(const std::string& file, const std::string& name, const Context& context) {
  const ContextStats stats = context.stats();
  fmt::print(
      "{{\"file\":\"{}\",\"context\":\"{}\",\"warm_up\":{},\"record\":{},\"replay\":{},\"skip\":{},"
      "\"evict\":{},\"failure\":{},\"recordings\":{},\"pool_bytes\":{},\"live_outputs\":{}}}\n",
      file, name, stats.warm_ups, stats.recordings, stats.replays, stats.skipped(), stats.evictions,
      stats.failures, stats.kept_recordings, stats.pool_reserved_bytes, stats.live_outputs);
}

// Two contexts that share a file, with every outcome: padded sizes, held outputs, evicted
// recordings, eager calls, and calls that throw.
void all_outcomes(const std::string& folder, std::uint32_t seed) {
  const std::string path = folder + "/calls.jsonl";
  std::mt19937 random(seed);
  Context first(Device::host(),
                {.name = "first",
                 .extensions = {watch({.event_file = path, .event_file_has_replays = true})}});
  Context second(Device::host(),
                 {.name = "second \"quoted\" \xff",  // not UTF-8
                  .extensions = {watch({.event_file = path, .event_file_has_replays = true})}});
  const auto padded = compile(first, "padded", [](Tensor x) { return affine(x, 2, 1); },
                              {.inputs = {{.dynamic = {{0, "n"}}}},
                               .buckets = {{"n", {4, 8}}},
                               .outputs = {{.dynamic = {{0, "n"}}}}});
  const auto evicts = compile(second, "evicts", [](Tensor x) { return affine(x, 2, 1); },
                              {.max_recordings = 2, .at_limit = AtLimit::kEvict});
  const auto fails =
      compile(second, "fails", [](Tensor) -> Tensor { throw std::runtime_error("not today"); });
  std::vector<Tensor> held;
  for (int step = 0; step < 60; ++step) {
    if (random() % 4 == 0) held.clear();
    if (random() % 5 == 0) first.mark_step();
    const Tensor y = padded(filled(1 + random() % 9));
    if (random() % 2 == 0) held.push_back(y);
    (void)evicts(filled(1 + random() % 3));
    if (step % 20 == 7) {
      try {
        (void)fails(filled(1));
      } catch (const std::runtime_error&) {  // the file has this event
      }
    }
  }
  (void)padded(filled(9));  // above the largest bucket, so that the counters are written last
  print("calls.jsonl", "first", first);
  (void)evicts(filled(99));
  print("calls.jsonl", "second", second);
}

// Two ranks of a group, with a file each.
void ranks(const std::string& folder) {
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Context context(
          Device::host(),
          {.name = fmt::format("decode of rank {}", rank),
           .group = std::move(groups[static_cast<std::size_t>(rank)]),
           .extensions = {watch({.event_file = fmt::format("{}/rank{}.jsonl", folder, rank),
                                 .event_file_has_replays = true})}});
      const auto f = compile(context, "f", [](Tensor x) { return affine(x, 2, 1); });
      for (const std::int64_t size : {2, 2, 2, 3, 3, 3, 4, 4, 4})
        (void)f(filled(size));
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

}  // namespace
}  // namespace cgtree::testing

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  cgtree::testing::all_outcomes(argv[1], static_cast<std::uint32_t>(std::atoi(argv[2])));
  cgtree::testing::ranks(argv[1]);
}
