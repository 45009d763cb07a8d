// The worker of TensorRT's server, with a network of test kernels: as in TensorRT, an execution's
// state for a shape is in device memory, and is written when the shape changes.
#include "integrations/tensorrt/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "base/error.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "tests/support/devices.h"
#include "tests/support/test_kernels.h"

namespace cgtree_tensorrt {
namespace {

using ::cgtree::Device;
using ::cgtree::StreamRef;
using ::cgtree::testing::arguments_of;
using ::cgtree::testing::DeviceUnderTest;
using ::cgtree::testing::dims_for;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kClasses = 4;
constexpr Shape kLargest{8, 32};
constexpr std::int64_t kMostScores = kLargest.batch * kClasses;

int profile_of(Shape shape) {
  return shape.batch > 2 ? 1 : 0;
}

// Returns the value that an execution writes into its memory for a shape.
float mark_of(Shape shape) {
  return static_cast<float>(100 * shape.batch + shape.length);
}

enum class Fault {
  kNone,
  kNoWork,     // enqueue() does nothing
  kNoCapture,  // during a capture, enqueue() stops halfway
};

// scores[i] = tokens[i] + (profile + 1) * mark of the shape
class FakeModel : public Model {
 public:
  explicit FakeModel(Device device) : device_(device) {}
  int classes() const override { return kClasses; }
  Shape largest() const override { return kLargest; }
  std::size_t scratch_bytes() const override { return kMostScores * sizeof(float); }
  int profile_of(Shape shape) const override { return cgtree_tensorrt::profile_of(shape); }
  std::unique_ptr<Execution> make_execution(int profile, const Buffers& buffers,
                                            StreamRef stream) override;
  std::map<const void*, std::size_t> memory() const override {
    const std::lock_guard lock(mutex_);
    return memory_;
  }

  float* allocate() {
    constexpr std::size_t kBytes = kMostScores * sizeof(float);
    void* const data = cgtree::allocate_device_memory(device_, kBytes);
    const std::lock_guard lock(mutex_);
    memory_[data] = kBytes;
    return static_cast<float*>(data);
  }
  void free(float* data) {
    const std::lock_guard lock(mutex_);
    memory_.erase(data);
    cgtree::free_device_memory(device_, data);
  }
  // Makes the model report all memory as freed.
  void hide_memory() {
    const std::lock_guard lock(mutex_);
    memory_.clear();
  }

  Fault fault = Fault::kNone;

 private:
  const Device device_;
  mutable std::mutex mutex_;
  std::map<const void*, std::size_t> memory_;
};

class FakeExecution : public Execution {
 public:
  FakeExecution(FakeModel& model, int profile, const Buffers& buffers)
      : model_(model), profile_(profile), buffers_(buffers), known_(model.allocate()) {}
  ~FakeExecution() override { model_.free(known_); }

  bool enqueue(Shape shape, StreamRef stream) override {
    if (model_.fault == Fault::kNoWork) return false;
    const std::int64_t count = std::int64_t{shape.batch} * kClasses;
    auto* const scratch = static_cast<float*>(buffers_.scratch);
    if (shape != shape_) {
      fill(stream, known_, mark_of(shape), kMostScores);
      if (!ok(stream.api().synchronize_stream(stream.handle()))) return false;
      shape_ = shape;
    }
    fill(stream, scratch, 0, count);
    axpy(stream, 1, reinterpret_cast<const float*>(buffers_.tokens), scratch, count);
    if (model_.fault == Fault::kNoCapture && stream.is_capturing()) return false;
    axpy(stream, static_cast<float>(profile_ + 1), known_, scratch, count);
    fill(stream, buffers_.scores, 0, count);
    axpy(stream, 1, scratch, buffers_.scores, count);
    return true;
  }

 private:
  static void fill(StreamRef stream, float* x, float value, std::int64_t count) {
    cgtree::check(stream.graphs().launch_kernel(stream.handle(), cgtree::testing::fill_kernel(),
                                                dims_for(count), arguments_of(x, value, count)),
                  "launch fill");
  }
  static void axpy(StreamRef stream, float a, const float* x, float* y, std::int64_t count) {
    cgtree::check(stream.graphs().launch_kernel(stream.handle(), cgtree::testing::axpy_kernel(),
                                                dims_for(count), arguments_of(a, x, y, count)),
                  "launch axpy");
  }

  FakeModel& model_;
  const int profile_;
  const Buffers buffers_;
  float* const known_;
  Shape shape_;
};

std::unique_ptr<Execution> FakeModel::make_execution(int profile, const Buffers& buffers,
                                                     StreamRef) {
  return std::make_unique<FakeExecution>(*this, profile, buffers);
}

class TensorRtWorkerTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    model_ = std::make_unique<FakeModel>(GetParam().device);
    const char* const given = std::getenv("CGTREE_SEED");
    const unsigned seed = given == nullptr ? std::random_device()() : std::stoul(given);
    RecordProperty("seed", std::to_string(seed));
    seed_ = "CGTREE_SEED=" + std::to_string(seed);
    random_.seed(seed);
  }

  std::unique_ptr<Worker> make_worker(Mode mode, const WorkerOptions& options = {}) {
    return std::make_unique<Worker>(*model_, GetParam().device, mode, options);
  }

  // Small integers, so that all sums are exact.
  Request make_request(Shape shape) {
    Request request{shape, {}};
    for (int i = 0; i < shape.batch * shape.length; ++i)
      request.tokens.push_back(std::bit_cast<std::int32_t>(static_cast<float>(random_() % 64)));
    return request;
  }

  void serve_and_check(Worker& worker, Shape shape) {
    serve_request_and_check(worker, make_request(shape));
  }
  void serve_request_and_check(Worker& worker, const Request& request) {
    const Shape shape = request.shape;
    std::vector<float> scores(static_cast<std::size_t>(shape.batch) * kClasses, NAN);
    worker.serve(request, scores, /*is_poisoned=*/true);
    for (std::size_t i = 0; i < scores.size(); ++i)
      ASSERT_EQ(scores[i], std::bit_cast<float>(request.tokens[i]) +
                               static_cast<float>(profile_of(shape) + 1) * mark_of(shape))
          << "score " << i << " of " << shape.batch << " x " << shape.length << "; " << seed_;
  }

  std::unique_ptr<FakeModel> model_;
  std::mt19937 random_;
  std::string seed_;
};

TEST_P(TensorRtWorkerTest, EachModeGivesTheScoresOfItsOwnRequests) {
  for (const Mode mode : {Mode::kBare, Mode::kGraphs, Mode::kCgtree}) {
    const auto worker = make_worker(mode, {.max_recordings = 5});
    for (int i = 0; i < 200; ++i) {
      const Shape shape{1 + static_cast<int>(random_() % 4),
                        4 * (1 + static_cast<int>(random_() % 3))};
      ASSERT_NO_FATAL_FAILURE(serve_and_check(*worker, shape)) << to_string(mode);
    }
    const Counts counts = worker->counts();
    EXPECT_EQ(counts.replays > 0, mode != Mode::kBare);
    if (mode == Mode::kCgtree) {
      EXPECT_EQ(counts.kept, 5U) << "of 12 shapes; " << seed_;
      EXPECT_EQ(counts.recordings, counts.kept + counts.evictions);
    }
  }
}

TEST_P(TensorRtWorkerTest, WorkersOnThreadsOfTheirOwnGiveTheScoresOfTheirOwnRequests) {
  for (const Mode mode : {Mode::kBare, Mode::kGraphs, Mode::kCgtree}) {
    std::vector<std::vector<Request>> requests(4);
    for (std::vector<Request>& of_thread : requests)
      for (int i = 0; i < 50; ++i)
        of_thread.push_back(make_request({1 + static_cast<int>(random_() % 4), 8}));
    std::vector<std::thread> threads;
    for (const std::vector<Request>& of_thread : requests) {
      threads.emplace_back([&, worker = std::shared_ptr<Worker>(make_worker(mode))] {
        for (const Request& request : of_thread)
          serve_request_and_check(*worker, request);
        EXPECT_EQ(worker->counts().replays > 0, mode != Mode::kBare);
      });
    }
    for (std::thread& thread : threads)
      thread.join();
  }
}

TEST_P(TensorRtWorkerTest, OnCgtreeAShapeIsCapturedWhenItComesAgain) {
  const auto worker = make_worker(Mode::kCgtree);
  const Shape shapes[] = {{1, 8}, {1, 16}, {4, 8}};
  for (std::uint64_t round = 0; round < 4; ++round) {
    for (const Shape shape : shapes)
      serve_and_check(*worker, shape);
    const Counts counts = worker->counts();
    EXPECT_EQ(counts.recordings, round == 0 ? 0U : 3U);
    EXPECT_EQ(counts.replays, round < 2 ? 0U : 3 * (round - 1));
    EXPECT_EQ(counts.executions, 3U);
  }
}

TEST_P(TensorRtWorkerTest, WithGraphsOfItsOwnAShapeIsCapturedAtOnce) {
  const auto worker = make_worker(Mode::kGraphs);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    serve_and_check(*worker, {1, 8});
    serve_and_check(*worker, {4, 8});
    EXPECT_EQ(worker->counts().recordings, 2U);
    EXPECT_EQ(worker->counts().replays, 2 * round);
  }
}

TEST_P(TensorRtWorkerTest, ReplaysAreVerified) {
  const auto worker = make_worker(Mode::kCgtree, {.verify_every = 1});
  for (int i = 0; i < 5; ++i)
    serve_and_check(*worker, {2, 8});
  EXPECT_EQ(worker->counts().replays, 3U);
}

TEST_P(TensorRtWorkerTest, WorkThatCannotBeCapturedRunsWithoutAGraph) {
  for (const Mode mode : {Mode::kGraphs, Mode::kCgtree}) {
    model_->fault = Fault::kNoCapture;
    const auto worker = make_worker(mode);
    for (int i = 0; i < 4; ++i)
      serve_and_check(*worker, {2, 8});
    EXPECT_EQ(worker->counts().recordings, 0U) << to_string(mode);
    EXPECT_EQ(worker->counts().replays, 0U) << to_string(mode);
    model_->fault = Fault::kNone;
    for (int i = 0; i < 3; ++i)
      serve_and_check(*worker, {1, 8});
    EXPECT_EQ(worker->counts().recordings, 1U) << "of another shape, " << to_string(mode);
  }
}

TEST_P(TensorRtWorkerTest, WorkThatIsNotEnqueuedIsAnErrorThatNamesTheShape) {
  for (const Mode mode : {Mode::kBare, Mode::kGraphs, Mode::kCgtree}) {
    model_->fault = Fault::kNoWork;
    const auto worker = make_worker(mode);
    std::vector<float> scores(2 * kClasses);
    EXPECT_THAT(
        [&] {
          worker->serve(make_request({2, 8}), scores);
        },
        ThrowsMessage<cgtree::Error>(HasSubstr("batch of 2 with 8 tokens")))
        << to_string(mode);
    model_->fault = Fault::kNone;
    serve_and_check(*worker, {2, 8});
  }
}

TEST_P(TensorRtWorkerTest, MemoryThatTheModelHasFreedTakesRecordingsAlong) {
  const auto worker = make_worker(Mode::kCgtree);
  for (int i = 0; i < 3; ++i)
    serve_and_check(*worker, {2, 8});
  ASSERT_EQ(worker->counts().replays, 1U);
  model_->hide_memory();
  serve_and_check(*worker, {4, 8});  // makes an execution, which checks the model's memory
  serve_and_check(*worker, {2, 8});
  EXPECT_EQ(worker->counts().recordings, 2U);
  EXPECT_EQ(worker->counts().replays, 1U);
}

TEST_P(TensorRtWorkerTest, RequestsOfOtherSizesThanTheModelsAreRefused) {
  const auto worker = make_worker(Mode::kBare);
  std::vector<float> scores(9 * kClasses);
  EXPECT_THAT(
      [&] {
        worker->serve(make_request({9, 8}), scores);
      },
      ThrowsMessage<cgtree::InvalidArgument>(
          AllOf(HasSubstr("9 x 8"), HasSubstr("at most 8 x 32"))));
  EXPECT_THAT(
      [&] {
        worker->serve(make_request({2, 8}), scores);
      },
      ThrowsMessage<cgtree::InvalidArgument>(HasSubstr("room for 36 scores")));
}

INSTANTIATE_TEST_SUITE_P(Devices, TensorRtWorkerTest,
                         ::testing::ValuesIn(cgtree::testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree_tensorrt
