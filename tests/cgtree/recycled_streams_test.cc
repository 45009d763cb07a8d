// Streams that get the handle of a destroyed stream, whose work still runs.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "allocator/device/device_memory.h"
#include "allocator/device/pinned_memory.h"
#include "caching/device_allocator.h"
#include "cgtree/memory/context_pools.h"
#include "cgtree/memory/context_stream.h"
#include "interop/device/device_api.h"
#include "interop/device/stream_identity.h"
#include "interop/exchange/foreign_array.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "tests/support/captured_log.h"
#include "tests/support/gate.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class RecycledStreamsTest : public TreeTest {
 protected:
  static constexpr std::int64_t kCount = 1000;

  // Destroys the stream, and makes streams until one gets its handle.
  StreamRef recycle(std::optional<Stream>& stream) {
    const StreamHandle handle = stream->ref().handle();
    const StreamIdentity identity = identity_of(*stream);
    stream.reset();
    for (int i = 0; i < 64; ++i) {
      const StreamRef made = made_.emplace_back(device());
      if (made.handle() != handle) continue;
      EXPECT_NE(identity_of(made), identity);
      return made;
    }
    ADD_FAILURE() << "no later stream has the handle";
    return made_.back();
  }
  void fill(StreamRef stream, const Tensor& tensor, std::uint8_t byte) {
    check(stream.graphs().memset(stream.handle(), tensor.data(), byte, tensor.bytes()), "fill");
  }
  // Imports memory of another library, which works on `producer`.
  Tensor import(const Tensor& memory, StreamRef producer, StreamRef consumer) {
    ForeignArray array = array_of(memory);
    array.owner = std::make_shared<Tensor>(memory);
    return wrap_array(std::move(array), producer, consumer);
  }
  Tensor zeros() { return tensor({kCount}, std::vector<float>(kCount)); }

  std::list<Stream> made_;
};
INSTANTIATE_TEST_SUITE_P(Devices, RecycledStreamsTest,
                         ::testing::ValuesIn(devices_that_work_later()), device_name);

TEST_P(RecycledStreamsTest, ALaterStreamGetsNoMemoryThatTheDestroyedOneStillWrites) {
  constexpr std::size_t kBytes = 4096;
  DeviceMemory memory(device());
  DeviceAllocator own(memory);
  CachingAllocator& allocator = own.allocator();
  std::vector<std::uint8_t> host(kBytes, 0xee);
  for (const bool is_whole_segment : {false, true}) {
    const std::size_t bytes = is_whole_segment ? std::size_t{16} << 20 : kBytes;
    std::optional<Stream> old(device());
    void* const block = allocator.allocate(bytes, stream_id(*old));
    {  // Cached memory for the later stream: the driver may wait for the old one.
      const Stream brief(device());
      void* const other = allocator.allocate(bytes, stream_id(brief));
      allocator.free(other);
    }
    check(old->ref().api().synchronize_device(device().id), "wait");
    Gate gate(*old);
    check(old->ref().graphs().memset(old->ref().handle(), block, 7, bytes), "write");
    allocator.free(block);

    const StreamRef later = recycle(old);
    void* const given = allocator.allocate(bytes, stream_id(later));
    check(later.graphs().memset(later.handle(), given, 1, bytes), "write");
    later.synchronize();
    EXPECT_TRUE(gate.is_closed());
    gate.open();
    check(later.api().synchronize_device(device().id), "wait");

    EXPECT_NE(given, block);
    check(later.api().copy(later.handle(), host.data(), given, kBytes), "read");
    later.synchronize();
    EXPECT_EQ(host, std::vector<std::uint8_t>(kBytes, 1));
    allocator.free(given);
    made_.clear();
  }
}

TEST_P(RecycledStreamsTest, AReaderThatHasEndedIsWaitedForThoughALaterStreamReadsToo) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 0); });
  const std::vector<float> first = random_floats(kCount);
  const std::vector<float> second = random_floats(kCount);
  const Tensor one = tensor({kCount}, first);
  const Tensor two = tensor({kCount}, second);
  const Tensor read = zeros();
  const Tensor read_later = zeros();
  for (int call = 0; call < 3; ++call)
    (void)f(one);
  Tensor y = f(one);
  context().synchronize();
  const std::uintptr_t address = y.address();
  std::optional<Stream> reader(device());
  Gate gate(*reader);
  copy(read, y, *reader);
  const StreamRef later = recycle(reader);
  copy(read_later, y, later);
  y = Tensor();

  y = f(two);

  EXPECT_EQ(y.address(), address);
  EXPECT_TRUE(gate.is_closed());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time for the call to overwrite y
  gate.open();
  check(later.api().synchronize_device(device().id), "wait");
  EXPECT_EQ(values(read), first);
  EXPECT_EQ(values(read_later), first);
  EXPECT_EQ(values(y), second);
}

TEST_P(RecycledStreamsTest, TheProducerOfAnImportWaitsForAUserThatHasEnded) {
  const std::vector<float> written = random_floats(kCount);
  const Tensor memory = tensor({kCount}, written);
  const Tensor read = zeros();
  const Stream producer(device());
  CapturedLog log;
  for (const bool is_consumer : {false, true}) {
    std::optional<Stream> user(device());
    Tensor x = import(memory, producer, is_consumer ? *user : producer);
    check(producer.ref().api().synchronize_device(device().id), "wait");
    Gate gate(*user);
    copy(read, x, *user);
    (void)recycle(user);

    x = Tensor();
    fill(producer, memory, 0);

    EXPECT_TRUE(gate.is_closed());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
    check(producer.ref().api().synchronize_device(device().id), "wait");
    EXPECT_EQ(values(read), written);
    copy(memory, read, producer);
    producer.synchronize();
  }
  EXPECT_TRUE(log.lines().empty()) << log.lines().front();
}

TEST_P(RecycledStreamsTest, AnImportOutlivesTheStreamOfItsProducer) {
  const std::vector<float> written = random_floats(kCount);
  const Tensor memory = zeros();
  const Tensor source = tensor({kCount}, written);
  std::optional<Stream> producer(device());
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  Tensor x = import(memory, *producer, context().stream());
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(x)), std::vector<float>(kCount));
  std::optional<Gate> gate(std::in_place, *producer);
  copy(memory, source, *producer);
  std::future<void> opening = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate->open();
  });

  (void)recycle(producer);  // waits for the producer's work

  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(x)), affine_of(written, 2, 0));
}

// Only the stream of the import orders the writes to its memory.
TEST_P(RecycledStreamsTest, AnImportIsReadBehindTheWorkOfTheStreamItCameInOn) {
  const std::vector<float> written = random_floats(kCount);
  const Tensor memory = zeros();
  const Tensor source = tensor({kCount}, written);
  std::optional<Stream> consumer(device());
  const Tensor x = import(memory, StreamRef(), *consumer);
  EXPECT_EQ(x.storage()->stream(), consumer->ref());
  std::optional<Gate> gate(std::in_place, *consumer);
  copy(memory, source, *consumer);
  std::future<void> opening = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate->open();
  });

  const StreamRef later = recycle(consumer);

  EXPECT_EQ(x.to_vector<float>(), written);
  EXPECT_NE(x.storage()->stream(), later);
}

// A cached check of many weights includes the streams of their producers.
TEST_P(RecycledStreamsTest, WeightsOutliveTheStreamOfTheirProducer) {
  std::optional<Stream> producer(device());
  const std::vector<float> written = random_floats(1);
  std::vector<Tensor> weights;
  for (int i = 0; i < 10; ++i)
    weights.push_back(import(tensor({1}, written), *producer, context().stream()));
  CompiledFunction f = compile(
      context(), "f", [](std::span<const Tensor> inputs) { return affine(inputs[9], 2, 0); },
      {.inputs = std::vector<InputOptions>(10, {.is_static = true})});
  for (int call = 0; call < 6; ++call)
    EXPECT_EQ(values(f(weights)), affine_of(written, 2, 0));

  (void)recycle(producer);

  for (int call = 0; call < 6; ++call)
    EXPECT_EQ(values(f(weights)), affine_of(written, 2, 0));
}

TEST_P(RecycledStreamsTest, PinnedMemoryWaitsForAStreamOfAnotherDevice) {
  const Device other{device().type, 1};
  if (!find_device_api(other.type)->has_device(1)) GTEST_SKIP() << "there is one device";
  CapturedLog log;
  PinnedMemory pinned(device());
  const std::vector<float> written = random_floats(kCount);
  const Tensor to = from_host<float>({kCount}, std::vector<float>(kCount), other);
  std::optional<Stream> stream(std::in_place, other);
  std::optional<Gate> gate(std::in_place, *stream);
  {
    const Tensor staging = pinned.from<float>({kCount}, written);
    copy(to, staging, *stream);
  }
  EXPECT_EQ(pinned.trim(), 0u);
  EXPECT_EQ(pinned.pending_blocks(), 1u);
  stream.reset();
  gate.reset();
  check(device_api(other).synchronize_device(1), "wait");

  EXPECT_GT(pinned.trim(), 0u);
  EXPECT_EQ(pinned.pending_blocks(), 0u);
  EXPECT_EQ(values(to), written);
  EXPECT_TRUE(log.lines().empty()) << log.lines().front();
}

TEST_P(RecycledStreamsTest, MemoryThatAContextHasFreedWaitsForTheWorkOfItsStreamThatEnds) {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  std::optional<Stream> old(device());
  const Stream later(device());
  ContextPools pools(device(), {}, *old);
  ContextPools others(device(), {}, later);
  Pool& pool = pools[Region::kEager];
  void* const block = pool.allocate(kBytes);
  std::optional<Gate> gate(std::in_place, *old);
  check(old->ref().graphs().memset(old->ref().handle(), block, 7, kBytes), "write");
  pool.free(block);
  old.reset();

  pool.trim();  // as other pools do when memory is short
  void* const other = others[Region::kEager].allocate(kBytes);
  EXPECT_NE(other, block);

  gate.reset();
  check(device_api(device()).synchronize_device(device().id), "wait");
  others[Region::kEager].free(other);
  pools.end(/*is_idle=*/true);
  others.end(/*is_idle=*/true);
}

TEST_P(RecycledStreamsTest, PinnedMemoryOfAPoolThatEndedGoesBackWhenNoCopyReadsItAnyMore) {
  const std::shared_ptr<DeviceMemory> memory = DeviceMemory::shared(device());
  const std::vector<float> written = random_floats(kCount);
  const Tensor to = zeros();
  const Stream stream(device());
  const std::size_t before = memory->cache().statistics().bytes_in_use;
  std::optional<Gate> gate(std::in_place, stream);
  copy(to, PinnedMemory(device()).from<float>({kCount}, written), stream);
  EXPECT_GT(memory->cache().statistics().bytes_in_use, before);
  gate.reset();
  stream.synchronize();

  { const PinnedMemory next(device()); }
  EXPECT_EQ(memory->cache().statistics().bytes_in_use, before);
  EXPECT_EQ(values(to), written);
}

TEST_P(RecycledStreamsTest, StreamsThatReadAnOutputAndEndDoNotPileUp) {
  ContextStream stream(context().stream(), /*is_shared=*/true);
  const Tensor y = zeros();
  for (int i = 0; i < 300; ++i) {
    const Stream reader(device());
    stream.add_reader(*y.storage(), reader);
    reader.synchronize();
    EXPECT_LE(stream.readers(), 2u);
  }
  stream.wait_for_readers(*y.storage());

  EXPECT_FALSE(stream.has_readers()) << "the context is behind them from now on";
}

TEST_P(RecycledStreamsTest, ThePerThreadStreamIsOneReaderOfEachThread) {
  ContextStream stream(context().stream(), /*is_shared=*/true);
  const Tensor y = zeros();
  const StreamRef per_thread(device(), StreamHandle::kPerThread);
  const auto read = [&](std::size_t readers) {
    for (int i = 0; i < 10; ++i)
      stream.add_reader(*y.storage(), per_thread);
    EXPECT_EQ(stream.readers(), readers);
  };
  const Gate here(per_thread);  // keeps the readers busy, since finished readers are forgotten
  read(1);
  std::thread([&] {
    const Gate there(per_thread);
    read(2);
  }).join();
}

TEST_P(RecycledStreamsTest, AContextWithSegmentsOfItsOwnRefusesThePerThreadStreamToo) {
  CountingSegments segments(device(), CountingSegments::Kind::kFixed);
  const StreamRef per_thread(device(), StreamHandle::kPerThread);
  EXPECT_THROW(Context(device(), {.stream = per_thread, .segments = &segments}), InvalidArgument);
}

}  // namespace
}  // namespace cgtree::testing
