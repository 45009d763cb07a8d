// predict_memory() against the memory of precapture(), for random step functions, without side
// effects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <random>
#include <tuple>
#include <vector>

#include "allocator/segments/device_sources.h"
#include "cgtree/record/graph_bytes.h"
#include "extensions/flow/control_flow.h"
#include "extensions/sizes/precapture.h"
#include "interop/tensor/empty.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A piece that the step function allocates: its size in terms of the rows, and its lifetime.
struct Piece {
  std::int64_t constant;
  std::int64_t per_row;
  std::int64_t per_square;
  int lasts;
  bool is_output;
};

class PredictMemoryTest : public TreeTest {
 protected:
  using Function = CompiledFunction<std::vector<Tensor>(std::span<const Tensor>)>;

  std::vector<Piece> random_pieces() {
    std::vector<Piece> pieces(1 + random_() % 12);
    for (Piece& piece : pieces) {
      const auto upto = [&](unsigned most) { return static_cast<std::int64_t>(random_() % most); };
      piece = {upto(3) == 0 ? upto(1'000'000) : 1, upto(2) * upto(20'000),
               upto(4) == 0 ? upto(500) : 0, static_cast<int>(upto(5)), upto(5) == 0};
    }
    return pieces;
  }
  Function make(const std::vector<Piece>& pieces, CompileOptions options = {}) {
    options.inputs = {{.dynamic = {{0, "rows"}}}};
    options.buckets = {{"rows", {1, 2, 5, 16, 24, 32}}};
    options.outputs = {{.dynamic = {{0, "rows"}}}};
    return compile(
        context(), "f",
        [pieces](std::span<const Tensor> inputs) {
          const std::int64_t rows = inputs[0].dim(0);
          std::vector<Tensor> outputs = {affine(inputs[0], 2, 1)};
          std::vector<std::pair<Tensor, int>> alive;
          for (const Piece& piece : pieces) {
            std::erase_if(alive, [](auto& each) { return each.second-- == 0; });
            const Tensor made =
                empty({piece.constant + piece.per_row * rows + piece.per_square * rows * rows},
                      DType::kFloat32);
            update(made, 0, 1);
            if (piece.is_output) outputs.push_back(made);
            alive.emplace_back(made, piece.lasts);
          }
          return outputs;
        },
        std::move(options));
  }
  MakeInputs make_inputs() {
    return [this](const CallSizes& sizes) {
      return std::vector<Tensor>{random_tensor({sizes["rows"], 1000})};
    };
  }
};
CGTREE_ON_ALL_DEVICES(PredictMemoryTest);

TEST_P(PredictMemoryTest, PoolsAndGraphsTakeWhatWasPredictedWhateverTheSizesDependOn) {
  for (int program = 0; program < 12; ++program) {
    const std::vector<Piece> pieces = random_pieces();
    const PrecaptureOptions options = {.held_outputs = random_() % 3};
    make_context({});
    const Function f = make(pieces);
    const PrecaptureReport predicted = predict_memory(f, options, make_inputs());
    EXPECT_EQ(predicted.count(Precaptured::Outcome::kPredicted), 6u) << to_string(predicted);
    EXPECT_EQ(f.stats().recordings, 0u);
    EXPECT_EQ(stats().graph_bytes, 0u);
    EXPECT_EQ(stats().live_outputs, 0u);
    EXPECT_EQ(stats().pool_reserved_bytes, 0u);
    validate();
    const PrecaptureReport actual = precapture(f, options, make_inputs());
    ASSERT_EQ(actual.count(Precaptured::Outcome::kRecorded), 6u) << to_string(actual);
    EXPECT_EQ(actual.bytes, stats().pool_reserved_bytes);
    EXPECT_EQ(predicted.bytes, actual.bytes) << to_string(predicted) << "\n" << to_string(actual);
    EXPECT_EQ(predicted.graph_bytes, stats().graph_bytes);
    EXPECT_EQ(actual.graph_bytes, stats().graph_bytes);
  }
}

TEST_P(PredictMemoryTest, CallsGoOnAsIfNothingHadBeenPredicted) {
  const Function f = make(random_pieces());
  const auto call = [&](std::int64_t rows) {
    const std::vector<float> x = random_floats(rows * 1000);
    const Tensor input = tensor({rows, 1000}, x);
    EXPECT_EQ(values(f({&input, 1})[0]), affine_of(x, 2, 1));
    return f.last_outcome()->outcome;
  };
  (void)call(7);
  (void)call(7);
  const std::size_t before = stats().pool_reserved_bytes;
  const PrecaptureReport predicted = predict_memory(f, {.held_outputs = 0}, make_inputs());
  EXPECT_EQ(predicted.count(Precaptured::Outcome::kAlreadyThere), 1u) << to_string(predicted);
  EXPECT_EQ(predicted.count(Precaptured::Outcome::kPredicted), 5u) << to_string(predicted);
  if (!pools_grow_in_place()) {
    EXPECT_LE(stats().pool_reserved_bytes, before);
  }
  EXPECT_EQ(call(8), Outcome::kReplay);
  EXPECT_EQ(call(20), Outcome::kRecord);  // is warmed up
  EXPECT_EQ(call(20), Outcome::kReplay);
  EXPECT_EQ(call(8), Outcome::kReplay);
}

// Outputs and scratch of random sizes, most of them never written.
TEST_P(PredictMemoryTest, RecordingsAndHeldOutputsThatAreThereChangeNothingOfThat) {
  using Outputs = std::tuple<Tensor, Tensor, Tensor>;
  const auto upto = [&](unsigned most) { return static_cast<std::int64_t>(random_() % most); };
  const auto make_light = [&](const char* name) {
    const std::int64_t constant = 1 + upto(100'000), scratch = upto(60'000);
    const std::int64_t per_row = 512 * (1 + upto(600));
    const auto step = [=](Tensor x) {
      const std::int64_t rows = x.dim(0);
      (void)empty({1 + scratch * rows}, DType::kUInt8);
      return Outputs(empty({rows, per_row}, DType::kUInt8), empty({constant}, DType::kUInt8),
                     affine(x, 2, 0));
    };
    return compile(context(), name, step,
                   {.inputs = {{.dynamic = {{0, "rows"}}}},
                    .buckets = {{"rows", {1, 2, 5, 16, 24, 32}}},
                    .outputs = {{.dynamic = {{0, "rows"}}}, {}, {.dynamic = {{0, "rows"}}}}});
  };
  for (int program = 0; program < 60; ++program) {
    const PrecaptureOptions options = {.held_outputs = random_() % 3};
    make_context({});
    const auto f = make_light("f");
    const auto g = make_light("g");
    const MakeInputs inputs = [&](const CallSizes& sizes) {
      return std::vector<Tensor>{random_tensor({sizes["rows"], 4})};
    };
    std::vector<Outputs> held;
    for (std::int64_t calls = upto(40); calls > 0; --calls) {
      held.push_back((upto(3) == 0 ? g : f)(random_tensor({1 + upto(32), 4})));
      if (upto(10) == 0) context().mark_step();
      while (upto(2) == 0 && !held.empty())
        held.erase(held.begin() + upto(static_cast<unsigned>(held.size())));
    }
    if (upto(4) == 0) (void)context().trim();
    const std::size_t graph_bytes = stats().graph_bytes;

    const PrecaptureReport predicted = predict_memory(f, options, inputs);
    ASSERT_EQ(stats().graph_bytes, graph_bytes);
    validate();
    const PrecaptureReport actual = precapture(f, options, inputs);

    EXPECT_EQ(predicted.graph_bytes, actual.graph_bytes) << to_string(predicted) << "\n"
                                                         << to_string(actual);
    EXPECT_EQ(predicted.count(Precaptured::Outcome::kAlreadyThere),
              actual.count(Precaptured::Outcome::kAlreadyThere));
    if (!pools_grow_in_place()) {  // memory that predict_memory() mapped stays mapped there
      EXPECT_EQ(predicted.bytes, actual.bytes) << to_string(predicted) << to_string(actual);
    }
  }
}

TEST_P(PredictMemoryTest, SizesThatWouldNotBeRecordedAreLeftOutWithAReason) {
  const CompiledFunction f = compile(context(), "f",
                                     [](Tensor x) {
                                       if (x.dim(0) == 4) current_stream().synchronize();
                                       return affine(x, 2, 1);
                                     },
                                     {.inputs = {{.dynamic = {{0, "rows"}}}},
                                      .buckets = {{"rows", {2, 4}}},
                                      .outputs = {{.dynamic = {{0, "rows"}}}}});
  const PrecaptureReport predicted = predict_memory(f, {}, make_inputs());
  EXPECT_EQ(predicted.entries[0].outcome, Precaptured::Outcome::kLeftOut);
  EXPECT_THAT(predicted.entries[0].why, HasSubstr("apture"));
  EXPECT_EQ(predicted.entries[1].outcome, Precaptured::Outcome::kPredicted);
  f.freeze();
  EXPECT_THAT([&] { (void)predict_memory(f, {}, make_inputs()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("frozen")));
}

TEST_P(PredictMemoryTest, BodiesOfBranchesAndLoopsCount) {
  const std::int32_t one = 1;
  const Tensor on = from_host(Shape(), std::span<const std::int32_t>(&one, 1), device());
  const CompiledFunction f = compile(context(), "f",
                                     [&](Tensor x) {
                                       const Tensor y = affine(x, 1, 0);
                                       branch(on, [&] {
                                         for (int i = 0; i < 50; ++i)
                                           update(y, 1, 1);
                                         (void)loop(2, [&] {
                                           for (int i = 0; i < 50; ++i)
                                             update(y, 1, 1);
                                           return on;
                                         });
                                       });
                                       return y;
                                     },
                                     {.inputs = {{.dynamic = {{0, "rows"}}}},
                                      .buckets = {{"rows", {4, 8}}},
                                      .outputs = {{.dynamic = {{0, "rows"}}}}});
  const PrecaptureReport predicted = predict_memory(f, {}, make_inputs());
  const PrecaptureReport actual = precapture(f, {}, make_inputs());
  EXPECT_GT(actual.graph_bytes, 4 * 100 * kGraphBytesPerNode);
  EXPECT_EQ(predicted.graph_bytes, actual.graph_bytes) << to_string(predicted) << to_string(actual);
  EXPECT_EQ(actual.graph_bytes, stats().graph_bytes);
}

// Hands out freed segments in a random order, so that memory of one pool soon belongs to another.
class ShufflingSource final : public SegmentSource {
 public:
  ShufflingSource(Device device, std::mt19937& random) : source_(device), random_(random) {}
  ~ShufflingSource() override {
    for (auto& [bytes, list] : free_)
      for (void* const segment : list)
        source_.free(segment, bytes, kIdle);
  }
  void* allocate(std::size_t bytes, StreamId stream) override {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& list = free_[bytes];
    if (list.empty()) return source_.allocate(bytes, stream);
    std::swap(list[random_() % list.size()], list.back());
    void* const segment = list.back();
    list.pop_back();
    return segment;
  }
  void free(void* segment, std::size_t bytes, StreamId) noexcept override {
    const std::lock_guard lock(mutex_);
    free_[bytes].push_back(segment);
  }

 private:
  DeviceSegmentSource source_;
  std::mutex mutex_;
  std::mt19937& random_;
  std::map<std::size_t, std::vector<void*>> free_;
};

TEST_P(PredictMemoryTest, ACallbackMayGiveTheMemoryOfTheContextBack) {
  for (int program = 0; program < 60; ++program) {
    ShufflingSource source(device(), random_);
    Context context(device(), {.segments = &source});
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 2, 0); },
                                       {.inputs = {{.dynamic = {{0, "rows"}}}},
                                        .buckets = {{"rows", {8, 16, 32}}},
                                        .outputs = {{.dynamic = {{0, "rows"}}}}});
    const MakeInputs gives_back = [&](const CallSizes& sizes) {
      (void)context.release_memory();
      return std::vector<Tensor>{random_tensor({sizes["rows"]})};
    };
    EXPECT_NO_THROW((void)predict_memory(f, {}, gives_back)) << program;
    for (int call = 0; call < 4; ++call) {
      const std::vector<float> x = random_floats(8);
      EXPECT_EQ(values(f(tensor({8}, x))), affine_of(x, 2, 0)) << program;
    }
  }
}

TEST_P(PredictMemoryTest, WithoutTheMemoryItThrowsAndHoldsNothing) {
  make_context({.max_bytes = std::size_t{24} << 20});
  const Function f = make({{2'000'000, 0, 0, 0, false}, {1, 300'000, 0, 0, true}});
  EXPECT_THROW((void)predict_memory(f, {}, make_inputs()), OutOfMemory);
  EXPECT_EQ(stats().live_outputs, 0u);
  EXPECT_EQ(stats().kept_recordings, 0u);
  EXPECT_EQ(context().trim(), 0u);
}

}  // namespace
}  // namespace cgtree::testing
