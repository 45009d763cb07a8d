// Writes a snapshot of two pools, and awkward values, as JSON and as pickle, into a folder.
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "caching/reports/pickle.h"
#include "caching/reports/snapshot.h"
#include "tests/support/made_up_segment_source.h"

namespace cgtree {
namespace {

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

MemorySnapshot sample() {
  MadeUpSegmentSource source;
  Pool small(source, {.name = "small"});
  Pool limited(source, {.name = "limited", .max_bytes = std::size_t{40} << 20, .stream = 77});
  MemoryTrace trace(100);
  MemoryTraceObserver small_observer(trace, {3, 0}, 0);
  MemoryTraceObserver limited_observer(trace, {4, 1}, 77);
  small.set_observer(&small_observer);
  limited.set_observer(&limited_observer);

  void* const first = small.allocate(700);
  small.allocate(1000);
  small.free(first);
  limited.allocate(std::size_t{24} << 20);
  try {
    limited.allocate(std::size_t{30} << 20);
  } catch (const OutOfMemory&) {
  }
  const PoolToSnapshot pools[] = {{&small, {3, 0}}, {&limited, {4, 1}, true}};
  MemorySnapshot snapshot = take_snapshot(pools, &trace);
  small.restore_live({});
  limited.restore_live({});
  return snapshot;
}

int run(const std::string& folder, const std::string& values) {
  const MemorySnapshot snapshot = sample();
  write(folder + "/snapshot.json", to_json(snapshot));
  write(folder + "/snapshot.pickle", to_pickle(snapshot));
  constexpr std::string_view kTuples[] = {"tuple"};
  std::ifstream in(values);
  write(folder + "/values.pickle", to_pickle(nlohmann::ordered_json::parse(in), kTuples));
  return 0;
}

}  // namespace
}  // namespace cgtree

int main(int argc, char** argv) {
  return argc == 3 ? cgtree::run(argv[1], argv[2]) : 2;
}
