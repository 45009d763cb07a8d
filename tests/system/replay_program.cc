// A loop of replays, or of pairs of calls of a pool, whose instructions are counted: replay_program
// static|in_group|guard|guards|copied|copied_back|padded|outputs|recordings| one_size|random_sizes.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "allocator/pool/pool.h"
#include "cgtree/cgtree.h"
#include "extensions/guards/guard.h"
#include "extensions/ranks/group.h"
#include "tests/support/made_up_segment_source.h"
#include "tests/support/steps.h"

namespace cgtree::testing {

constexpr int kReplays = 64;

using Step = CompiledFunction<Tensor(std::span<const Tensor>)>;

// Callgrind counts inside this function, by its name; it must not be inlined.
[[gnu::noinline]] void counted_replays(const Step& step, std::span<const Tensor> inputs) {
  for (int i = 0; i < kReplays; ++i)
    (void)step(inputs);
}

// The same for calls with many outputs.
using ManyStep = CompiledFunction<std::vector<Tensor>(std::span<const Tensor>)>;
[[gnu::noinline]] void counted_replays(const ManyStep& step, std::span<const Tensor> inputs) {
  for (int i = 0; i < kReplays; ++i)
    (void)step(inputs);
}

// The same for calls with a new key each, which are already warmed up.
[[gnu::noinline]] void counted_recordings(const Step& step, std::span<const Tensor> inputs) {
  for (int i = 0; i < kReplays; ++i)
    (void)step.keyed({{"call", i}})(inputs);
}

struct Pair {
  std::size_t block;  // the block to free and allocate again
  std::size_t bytes;
};

// The same for pairs of free() and allocate().
[[gnu::noinline]] void counted_pairs(Pool& pool, std::span<void*> blocks,
                                     std::span<const Pair> pairs) {
  for (const Pair& pair : pairs) {
    pool.free(blocks[pair.block]);
    blocks[pair.block] = pool.allocate(pair.bytes);
  }
}

// The build mode, on which the counts depend.
constexpr const char* mode() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "sanitizer";
#elif !defined(__OPTIMIZE__)
  return "fastbuild";
#elif defined(NDEBUG)
  return "opt";
#else
  return "other";
#endif
}

int run_pairs(bool is_one_size) {
  MadeUpSegmentSource source;
  Pool pool(source);
  std::mt19937 random(1);
  const auto size = [&] {  // log-uniform, from 512 bytes to 64 MiB
    return is_one_size ? 4096 : static_cast<std::size_t>(std::exp2(9 + random() % 17000 / 1000.0));
  };
  std::vector<void*> blocks(1024);
  for (void*& block : blocks)
    block = pool.allocate(size());
  const auto draw = [&] {
    std::vector<Pair> pairs(1 << 14);
    for (Pair& pair : pairs)
      pair = {random() % blocks.size(), size()};
    return pairs;
  };
  for (const Pair& pair : draw()) {  // makes the pool as large as it gets
    pool.free(blocks[pair.block]);
    blocks[pair.block] = pool.allocate(pair.bytes);
  }
  const std::vector<Pair> pairs = draw();
  counted_pairs(pool, blocks, pairs);
  fmt::print("{} {}\n", mode(), pairs.size());
  for (void* const block : blocks)
    pool.free(block);
  return 0;
}

int run_outputs() {
  constexpr int kOutputs = 64;
  Context context(Device::host());
  const ManyStep step = compile(context, "step",
                                [](std::span<const Tensor> x) {
                                  std::vector<Tensor> outputs;
                                  for (int i = 0; i < kOutputs; ++i)
                                    outputs.push_back(affine(x[0], 1, 0));
                                  return outputs;
                                },
                                {.inputs = {{.is_static = true}}});
  const Tensor x = from_host<float>({1}, std::vector<float>{1}, Device::host());
  for (int call = 0; call < 4; ++call)  // warms up, records, settles
    (void)step({&x, 1});
  const std::uint64_t before = step.stats().replays;
  counted_replays(step, {&x, 1});
  fmt::print("{} {}\n", mode(), step.stats().replays - before);
  return 0;
}

int run_recordings() {
  Context context(Device::host());
  const Step step =
      compile(context, "step", [](std::span<const Tensor> x) { return affine(x[0], 1, 0); },
              {.inputs = {{.is_static = true}}});
  const Tensor x = from_host<float>({1}, std::vector<float>{1}, Device::host());
  for (int i = 0; i < kReplays; ++i)
    (void)step.keyed({{"call", i}})({&x, 1});
  counted_recordings(step, {&x, 1});
  fmt::print("{} {}\n", mode(), step.stats().recordings);
  return 0;
}

int run(std::string_view inputs) {
  if (inputs == "outputs") return run_outputs();
  if (inputs == "recordings") return run_recordings();
  if (inputs == "one_size" || inputs == "random_sizes") return run_pairs(inputs == "one_size");
  const bool is_in_group = inputs == "in_group";
  const int guards = inputs == "guard" ? 1 : inputs == "guards" ? 4 : 0;
  const bool is_static = inputs == "static" || is_in_group || guards > 0;
  const bool is_padded = inputs == "padded";
  InputOptions options{.is_static = is_static, .is_mutated = inputs == "copied_back"};
  if (is_padded) options.dynamic = {{0, "rows"}};
  const std::size_t count = is_static ? 1 : 16;
  ContextOptions context_options;
  if (is_in_group) context_options.group = std::move(make_thread_groups(1)[0]);
  Context context(Device::host(), context_options);
  CompileOptions compile_options{.inputs = std::vector<InputOptions>(count, options)};
  if (is_padded) {
    compile_options.buckets = {{"rows", {4}}};
    compile_options.outputs = {{.dynamic = {{0, "rows"}}}};
  }
  const auto answer = std::make_shared<int>(1);
  const Step step = compile(
      context, "step",
      [answer, guards](std::span<const Tensor> x) {
        for (int i = 0; i < guards; ++i)
          (void)decide("answer", [answer] { return *answer; });
        return affine(x[0], 1, 0);
      },
      compile_options);
  std::vector<Tensor> first, list;
  for (std::size_t i = 0; i < count; ++i) {
    first.push_back(from_host<float>({1}, std::vector<float>{1}, Device::host()));
    list.push_back(from_host<float>({1}, std::vector<float>{1}, Device::host()));
  }
  for (int call = 0; call < 5 && !is_static && !is_padded; ++call)  // their addresses change once
    (void)step(first);
  for (int call = 0; call < 4; ++call)  // warms up, records, settles
    (void)step(list);
  const std::uint64_t before = step.stats().replays;
  counted_replays(step, list);
  fmt::print("{} {}\n", mode(), step.stats().replays - before);
  return 0;
}

}  // namespace cgtree::testing

int main(int argc, char** argv) {
  return argc == 2 ? cgtree::testing::run(argv[1]) : 2;
}
