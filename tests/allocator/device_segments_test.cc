// Segments of a device: plain, pinned and virtual memory keep the same promises on every device.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "allocator/segments/device_sources.h"
#include "base/error.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream_identity.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class DeviceSegmentsTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    bench_ = std::make_unique<DeviceBench>(GetParam());
    stream_ = id(StreamHandle::kLegacy);
    random_.seed(seed_);
    RecordProperty("seed", std::to_string(seed_));
  }

  std::vector<std::uint32_t> random_words(std::size_t bytes) {
    std::vector<std::uint32_t> words(bytes / sizeof(std::uint32_t));
    for (std::uint32_t& word : words)
      word = static_cast<std::uint32_t>(random_());
    return words;
  }
  void write(void* data, const std::vector<std::uint32_t>& words) {
    check(bench_->api.copy(StreamHandle::kLegacy, data, words.data(), words.size() * 4), "write");
    check(bench_->api.synchronize_stream(StreamHandle::kLegacy), "wait");
  }
  std::vector<std::uint32_t> read(const void* data, std::size_t bytes) {
    std::vector<std::uint32_t> words(bytes / 4, 0xdeadbeef);
    check(bench_->api.copy(StreamHandle::kLegacy, words.data(), data, bytes), "read");
    check(bench_->api.synchronize_stream(StreamHandle::kLegacy), "wait");
    return words;
  }
  // Runs `body` while this thread captures on a stream.
  template <typename Body>
  void while_capturing(Body body) {
    const StreamHandle stream = bench_->stream();
    check(bench_->graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin");
    body(stream);
    EXPECT_EQ(bench_->info(stream).status, CaptureStatus::kActive);
    static_cast<void>(bench_->end(stream));
  }

  Device device() { return GetParam().device; }
  StreamId id(StreamHandle stream) {
    return static_cast<StreamId>(identity_of(StreamRef(device(), stream)));
  }

  StreamId stream_ = kIdle;  // the legacy stream
  const unsigned seed_ = std::random_device{}();
  std::mt19937 random_;
  std::unique_ptr<DeviceBench> bench_;
};

TEST_P(DeviceSegmentsTest, SegmentsHoldWhatIsWritten) {
  DeviceSegmentSource plain(device());
  PinnedSegmentSource pinned(device());
  VirtualSegmentSource mapped(device(), 64 * kMiB);
  SegmentSource* const sources[] = {&plain, &pinned, &mapped};
  for (SegmentSource* const source : sources) {
    void* const segment = source->allocate(4 * kMiB, stream_);
    const std::vector<std::uint32_t> words = random_words(4 * kMiB);

    write(segment, words);

    EXPECT_EQ(read(segment, 4 * kMiB), words);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment) % 512, 0u);
    source->free(segment, 4 * kMiB, stream_);
  }
}

TEST_P(DeviceSegmentsTest, SegmentsComeAndGoWhileThisThreadCaptures) {
  DeviceSegmentSource plain(device());
  PinnedSegmentSource pinned(device());
  VirtualSegmentSource mapped(device(), 64 * kMiB);
  SegmentSource* const sources[] = {&plain, &pinned, &mapped};
  for (SegmentSource* const source : sources) {
    while_capturing([&](StreamHandle) {
      source->free(source->allocate(2 * kMiB, stream_), 2 * kMiB, stream_);
    });
  }
}

TEST_P(DeviceSegmentsTest, AnAbsurdSizeIsOutOfMemory) {
  DeviceSegmentSource plain(device());
  PinnedSegmentSource pinned(device());
  VirtualSegmentSource mapped(device(), 64 * kMiB);
  SegmentSource* const sources[] = {&plain, &pinned, &mapped};
  for (SegmentSource* const source : sources)
    EXPECT_THROW((void)source->allocate(std::size_t{1} << 46, stream_), OutOfMemory);
  EXPECT_EQ(mapped.mapped_bytes(), 0u);
}

TEST_P(DeviceSegmentsTest, AVirtualSegmentGrowsWhereItIsAndKeepsItsContents) {
  VirtualSegmentSource source(device(), 64 * kMiB);
  void* const segment = source.allocate(2 * kMiB, stream_);
  const std::vector<std::uint32_t> first = random_words(2 * kMiB);
  write(segment, first);

  ASSERT_TRUE(source.grow(segment, 2 * kMiB, 40 * kMiB, stream_));

  const std::vector<std::uint32_t> rest = random_words(38 * kMiB);
  write(static_cast<char*>(segment) + 2 * kMiB, rest);
  EXPECT_EQ(read(segment, 2 * kMiB), first);
  EXPECT_EQ(read(static_cast<char*>(segment) + 2 * kMiB, 38 * kMiB), rest);
  EXPECT_EQ(source.mapped_bytes(), 40 * kMiB);
  source.free(segment, 40 * kMiB, stream_);
  EXPECT_EQ(source.mapped_bytes(), 0u);
}

TEST_P(DeviceSegmentsTest, AVirtualSegmentDoesNotGrowBeyondItsAddresses) {
  VirtualSegmentSource source(device(), 8 * kMiB);
  void* const segment = source.allocate(2 * kMiB, stream_);

  EXPECT_FALSE(source.grow(segment, 2 * kMiB, 10 * kMiB, stream_));

  EXPECT_EQ(source.mapped_bytes(), 2 * kMiB);
  source.free(segment, 2 * kMiB, stream_);
}

TEST_P(DeviceSegmentsTest, AVirtualSegmentThatCannotGrowIsAsBefore) {
  VirtualSegmentSource source(device(), std::size_t{1} << 42);
  void* const segment = source.allocate(2 * kMiB, stream_);
  const std::vector<std::uint32_t> words = random_words(2 * kMiB);
  write(segment, words);

  EXPECT_THROW((void)source.grow(segment, 2 * kMiB, std::size_t{1} << 41, stream_), OutOfMemory);

  EXPECT_EQ(source.mapped_bytes(), 2 * kMiB);
  EXPECT_EQ(read(segment, 2 * kMiB), words);
  source.free(segment, 2 * kMiB, stream_);
}

TEST_P(DeviceSegmentsTest, AVirtualSegmentShrinksByWholePiecesAndGrowsAgain) {
  VirtualSegmentSource source(device(), 64 * kMiB);
  void* const segment = source.allocate(2 * kMiB, stream_);
  ASSERT_TRUE(source.grow(segment, 2 * kMiB, 12 * kMiB, stream_));
  ASSERT_TRUE(source.grow(segment, 12 * kMiB, 16 * kMiB, stream_));
  const std::vector<std::uint32_t> words = random_words(2 * kMiB);
  write(segment, words);

  EXPECT_EQ(source.shrink(segment, 16 * kMiB, 13 * kMiB, stream_), 16 * kMiB);
  EXPECT_EQ(source.shrink(segment, 16 * kMiB, 3 * kMiB, stream_), 12 * kMiB);
  EXPECT_EQ(source.shrink(segment, 12 * kMiB, 1, stream_), 2 * kMiB);

  EXPECT_EQ(source.mapped_bytes(), 2 * kMiB);
  EXPECT_EQ(read(segment, 2 * kMiB), words);
  EXPECT_TRUE(source.grow(segment, 2 * kMiB, 4 * kMiB, stream_));
  source.free(segment, 4 * kMiB, stream_);
}

TEST_P(DeviceSegmentsTest, AVirtualSegmentWhoseStreamCapturesIsGivenBackAfterTheCapture) {
  VirtualSegmentSource source(device(), 64 * kMiB);
  void* const segment = source.allocate(4 * kMiB, stream_);
  while_capturing([&](StreamHandle stream) {
    source.free(segment, 4 * kMiB, id(stream));
    EXPECT_EQ(source.mapped_bytes(), 4 * kMiB);
  });

  void* const other = source.allocate(2 * kMiB, stream_);

  EXPECT_EQ(source.mapped_bytes(), 2 * kMiB);
  source.free(other, 2 * kMiB, stream_);
}

TEST(VirtualSegmentSourceDeathTest, AForeignSegmentIsABug) {
  VirtualSegmentSource source(Device::host(), 8 * kMiB);
  EXPECT_DEATH(source.free(&source, 2 * kMiB, kIdle), "check failed");
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceSegmentsTest, ::testing::ValuesIn(devices_under_test()),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace cgtree::testing
