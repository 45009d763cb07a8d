// Inputs from other libraries: each call waits for their streams, and their streams wait for the
// call, recorded or eager.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/exchange/cuda_array_interface.h"
#include "simulator/host_device.h"
#include "tests/support/call_trace.h"
#include "tests/support/host_slot.h"
#include "tests/support/steps.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Imports `memory` from a library that works on `producer`.
Tensor import(const Tensor& memory, StreamRef producer, bool is_read_only = false) {
  CudaArrayInterface array = to_cuda_array_interface(memory, {.is_idle = true});
  array.stream = static_cast<std::uintptr_t>(producer.handle());
  array.read_only = is_read_only;
  return from_cuda_array_interface(array, std::make_shared<Tensor>(memory), {.consumer = producer});
}

void enqueue_copy(StreamRef stream, const Tensor& to, const Tensor& from) {
  check(stream.api().copy(stream.handle(), to.data(), from.data(), to.bytes()), "copy");
}

class ImportedInputsTest : public TreeTest {};
CGTREE_ON_ALL_DEVICES(ImportedInputsTest);

// Acceptance: cai 22.
TEST_P(ImportedInputsTest, EachCallSeesWhatTheProducerWroteAndIsDoneBeforeItWritesAgain) {
  constexpr std::int64_t kCount = 1 << 16;
  for (const bool is_static : {false, true}) {
    const Stream producer(device());
    const Tensor memory = tensor({kCount}, std::vector<float>(kCount, -1));
    const Tensor poison = tensor({kCount}, std::vector<float>(kCount, -2));
    const Tensor x = import(memory, producer);
    CompiledFunction f =
        compile(context(), "f", [](Tensor input) { return affine(affine(input, 2, 0), 1, 1); },
                {.inputs = {{.is_static = is_static}}});
    for (int call = 0; call < 5; ++call) {
      const std::vector<float> written = random_floats(kCount);
      const Tensor source = tensor({kCount}, written);
      enqueue_copy(producer, memory, source);
      const Tensor y = f(x);
      enqueue_copy(producer, memory, poison);
      EXPECT_EQ(values(y), affine_of(written, 2, 1)) << "call " << call;
      producer.synchronize();
    }
    EXPECT_GE(f.stats().replays, 3u);
  }
}

// T-CAI 35.
// Acceptance: cai 35.
TEST_P(ImportedInputsTest, AStaticInputThatComesBackElsewhereIsNotReplayed) {
  const Stream producer(device());
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                               {.inputs = {{.is_static = true}}});
  std::vector<Tensor> kept;
  for (int owner = 0; owner < 3; ++owner) {
    const std::vector<float> written = random_floats(8);
    kept.push_back(tensor({8}, written));
    for (int call = 0; call < 3; ++call) {
      const Tensor x = import(kept.back(), producer);  // its last owner ends with the call
      EXPECT_EQ(values(f(x)), affine_of(written, 2, 0));
    }
  }
  EXPECT_EQ(f.stats().recordings, 3u);
}

// Acceptance: cai 9.
TEST_P(ImportedInputsTest, ReadOnlyInputsAreNotWritten) {
  const Stream producer(device());
  const std::vector<float> before = random_floats(4);
  const Tensor memory = tensor({4}, before);
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x) {
                                 update(x, 2, 0);
                                 return std::vector<Tensor>{};
                               },
                               {.inputs = {{.is_mutated = true}}});
  for (int call = 0; call < 4; ++call)
    f(import(memory, producer));
  const std::vector<float> written = values(memory);

  EXPECT_THAT([&] { f(import(memory, producer, /*is_read_only=*/true)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("which is read-only, and the function")));

  EXPECT_EQ(values(memory), written);
}

TEST_P(ImportedInputsTest, AProducerThatCapturesIsRefusedAndTheNextCallIsAsEver) {
  const Stream producer(device());
  const std::vector<float> written = random_floats(4);
  const Tensor memory = tensor({4}, written);
  const Tensor x = import(memory, producer);
  CompiledFunction f = compile(context(), "f", [](Tensor input) { return affine(input, 2, 0); });
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(x)), affine_of(written, 2, 0));
  GraphAPI& graphs = producer.ref().graphs();
  check(graphs.begin_capture(producer.ref().handle(), CaptureMode::kThreadLocal), "begin");

  EXPECT_THROW(f(x), CaptureError);

  GraphHandle graph = GraphHandle::kNull;
  EXPECT_EQ(graphs.end_capture(producer.ref().handle(), &graph), Code::kSuccess);
  check(graphs.destroy_graph(graph), "destroy");
  EXPECT_EQ(values(f(x)), affine_of(written, 2, 0));
}

// With a trace.
// Acceptance: cai 21.
TEST(ImportedInputsTraceTest, AReplayHasOneEdgePerProducerAndDirectionAndTheHostDoesNotWait) {
  CallTrace trace(host_device_api());
  HostSlot::instance().put(trace.device());
  const Device device = HostSlot::instance().device();
  {
    Context context(device);
    const Stream one(device);
    const Stream two(device);
    const std::vector<float> zeros(4);
    const Tensor memory = from_host<float>({4}, zeros, device);
    const Tensor a = import(memory, one);
    const Tensor b = import(memory, one);
    const Tensor c = import(memory, two);
    CompiledFunction f =
        compile(context, "f", [](Tensor x, Tensor y, Tensor z) { return add(add(x, y), z); });
    for (int call = 0; call < 4; ++call)
      f(a, b, c);
    trace.clear();

    f(a, b, c);
    EXPECT_EQ(trace.count("record_event"), 4u);
    EXPECT_EQ(trace.count("wait_event"), 4u);
    EXPECT_TRUE(trace.calls_of(CallKind::kSynchronize).empty());
    EXPECT_EQ(trace.count("launch"), 1u);
    for (int call = 0; call < 2; ++call)
      f(memory, memory, memory);
    trace.clear();
    f(memory, memory, memory);
    EXPECT_EQ(trace.count("record_event"), 0u);
  }
  HostSlot::instance().put(host_device_api());
}

// A cached check of many weights includes their producers' stream: it must be forgotten when the
// stream ends, although no weight does.
TEST(ImportedInputsTraceTest, AReplayHasNoEdgeToAProducerThatHasEndedThoughAllWereKnown) {
  CallTrace trace(host_device_api());
  HostSlot::instance().put(trace.device());
  const Device device = HostSlot::instance().device();
  {
    Context context(device);
    std::optional<Stream> producer(std::in_place, device);
    const std::vector<float> zeros(4);
    const Tensor memory = from_host<float>({4}, zeros, device);
    std::vector<Tensor> weights;
    for (int i = 0; i < 10; ++i)
      weights.push_back(import(memory, *producer));
    const CompiledFunction f =
        compile(context, "f", [](std::span<const Tensor> all) { return add(all[0], all[9]); },
                {.inputs = std::vector<InputOptions>(10, {.is_static = true})});
    for (int call = 0; call < 6; ++call)
      (void)f(weights);
    trace.clear();
    (void)f(weights);
    EXPECT_EQ(trace.count("wait_event"), 2u);

    producer.reset();
    trace.clear();
    (void)f(weights);

    EXPECT_EQ(trace.count("launch"), 1u);
    EXPECT_EQ(trace.count("record_event"), 0u);
    EXPECT_EQ(trace.count("wait_event"), 0u);
  }
  HostSlot::instance().put(host_device_api());
}

// A call without a prediction asks the stream whether it captures.
TEST(ImportedInputsTraceTest, AReplayOfAPaddedFunctionIsPredictedAsAnyOther) {
  CallTrace trace(host_device_api());
  HostSlot::instance().put(trace.device());
  const Device device = HostSlot::instance().device();
  {
    Context context(device);
    const Stream stream(device), producer(device);
    const StreamScope scope(stream);
    const std::vector<float> zeros(4);
    const Tensor memory = from_host<float>({4}, zeros, device);
    const Tensor lent = import(memory, producer);
    const auto step = [](Tensor x) { return affine(x, 2, 0); };
    const CompiledFunction plain = compile(context, "plain", step);
    const CompiledFunction padded = compile(
        context, "padded", step, {.inputs = {{.dynamic = {{0, "n"}}}}, .buckets = {{"n", {4, 8}}}});
    const auto queries = [&](const auto& f, const Tensor& x) {
      for (int call = 0; call < 5; ++call)
        (void)f(x);
      trace.clear();
      (void)f(x);
      EXPECT_EQ(trace.count("launch"), 1u);
      return trace.count("capture_info");
    };
    EXPECT_EQ(queries(plain, memory), 0u);
    EXPECT_EQ(queries(padded, lent), queries(plain, lent));
    const Tensor short_one = import(memory.slice(0, 0, 3), producer);
    EXPECT_EQ(queries(padded, short_one), queries(plain, lent));
    using ::testing::Pair;
    EXPECT_THAT(padded.histogram("n"), ::testing::ElementsAre(Pair(3, 6), Pair(lent.dim(0), 6)));
  }
  HostSlot::instance().put(host_device_api());
}

// Nothing waits for memory without a stream, but read-only memory is still borrowed.
TEST(ImportedInputsTraceTest, AReplayOfReadOnlyMemoryWithoutAStreamIsPredictedAsAnyOther) {
  CallTrace trace(host_device_api());
  HostSlot::instance().put(trace.device());
  const Device device = HostSlot::instance().device();
  {
    Context context(device);
    const Stream stream(device);
    const StreamScope scope(stream);
    const std::vector<float> zeros(4);
    const Tensor memory = from_host<float>({4}, zeros, device);
    CudaArrayInterface array = to_cuda_array_interface(memory, {.is_idle = true});
    array.read_only = true;
    const Tensor weight = from_cuda_array_interface(array, std::make_shared<Tensor>(memory),
                                                    {.consumer = stream.ref()});
    for (const bool is_static : {false, true}) {
      const CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 2, 0); },
                                         {.inputs = {{.is_static = is_static}}});
      for (int call = 0; call < 3; ++call)
        (void)f(weight);
      trace.clear();
      (void)f(weight);
      EXPECT_EQ(trace.count("launch"), 1u);
      EXPECT_EQ(trace.count("capture_info"), 0u) << "the call was decided anew";
    }
  }
  HostSlot::instance().put(host_device_api());
}

// A cached check of many weights includes their producers. Work runs in a random order that the
// streams allow: a missing edge shows in the data.
TEST(ImportedInputsRandomOrderTest, InAnyOrderEachCallSeesTheWeightsOfItsTime) {
  constexpr std::size_t kWeights = 10;
  constexpr std::size_t kCalls = 8;
  const std::uint64_t first = std::random_device()();
  for (std::uint64_t seed = first; seed < first + 20; ++seed) {
    const auto host = make_host_device({.executor = HostExecutor::kRandom, .seed = seed});
    HostSlot::instance().put(*host);
    const Device device = HostSlot::instance().device();
    {
      Context context(device);
      const Stream producers[] = {Stream(device), Stream(device)};
      const auto weight = [](std::size_t call, std::size_t i) {
        return static_cast<float>(100 * call + i);
      };
      std::vector<Tensor> memory;
      std::vector<Tensor> weights;
      std::vector<Tensor> sources;  // made first: an allocation waits for all work
      for (std::size_t i = 0; i < kWeights; ++i) {
        memory.push_back(from_host<float>({1}, std::vector<float>{-1}, device));
        weights.push_back(import(memory.back(), producers[i % 2]));
        for (std::size_t call = 0; call < kCalls; ++call)
          sources.push_back(from_host<float>({1}, std::vector<float>{weight(call, i)}, device));
      }
      CompiledFunction f =
          compile(context, "f",
                  [](std::span<const Tensor> inputs) {
                    Tensor sum = inputs[0];
                    for (const Tensor& input : inputs.subspan(1))
                      sum = add(sum, input);
                    return sum;
                  },
                  {.inputs = std::vector<InputOptions>(kWeights, {.is_static = true})});
      std::vector<Tensor> results;
      for (std::size_t call = 0; call < kCalls; ++call)
        results.push_back(from_host<float>({1}, std::vector<float>{-2}, device));
      for (std::size_t call = 0; call < kCalls; ++call) {
        for (std::size_t i = 0; i < kWeights; ++i)
          enqueue_copy(producers[i % 2], memory[i], sources[i * kCalls + call]);
        enqueue_copy(context.stream(), results[call], f(weights));
      }
      context.synchronize();
      for (std::size_t call = 0; call < kCalls; ++call) {
        const float expected = static_cast<float>(kWeights) * weight(call, 0) + 45;
        EXPECT_THAT(results[call].to_vector<float>(), ::testing::ElementsAre(expected))
            << "call " << call << ", seed " << seed;
      }
      EXPECT_EQ(f.stats().replays, kCalls - 2);
      for (const Stream& producer : producers)
        producer.synchronize();
    }
    HostSlot::instance().put(host_device_api());
  }
}

// Work runs in a random order that the streams allow: a missing edge shows in the data.
TEST(ImportedInputsRandomOrderTest, InAnyOrderEachCallSeesItsOwnInput) {
  const std::uint64_t first = std::random_device()();
  for (std::uint64_t seed = first; seed < first + 20; ++seed) {
    const auto host = make_host_device({.executor = HostExecutor::kRandom, .seed = seed});
    HostSlot::instance().put(*host);
    const Device device = HostSlot::instance().device();
    {
      Context context(device);
      const Stream producer(device);
      const Tensor memory = from_host<float>({1}, std::vector<float>{-1}, device);
      const Tensor x = import(memory, producer);
      CompiledFunction f = compile(context, "f", [](Tensor input) { return affine(input, 2, 0); });
      std::vector<Tensor> sources;  // made first: an allocation waits for all work
      for (int call = 0; call < 6; ++call) {
        const float value = static_cast<float>(call + 1);
        sources.push_back(from_host<float>({1}, std::vector<float>{value}, device));
      }
      std::vector<Tensor> results;
      for (const Tensor& source : sources) {
        enqueue_copy(producer, memory, source);
        results.push_back(f(x));
      }
      for (int call = 0; call < 6; ++call) {
        const float expected = static_cast<float>(2 * (call + 1));
        EXPECT_THAT(results[static_cast<std::size_t>(call)].to_vector<float>(),
                    ::testing::ElementsAre(expected))
            << "call " << call << ", seed " << seed;
      }
      producer.synchronize();
    }
    HostSlot::instance().put(host_device_api());
  }
}

// The library works on a branch of the capture before and after the call, and another context
// worked on it before the capture.
TEST_P(ImportedInputsTest, ACapturedCallIsOrderedWithWhoWorksInTheSameCapture) {
  constexpr std::int64_t kCount = 1 << 12;
  const Stream stream(device()), branch(device());
  const std::vector<float> first = random_floats(kCount), second = random_floats(kCount);
  const Tensor memory = tensor({kCount}, std::vector<float>(kCount));
  const Tensor of_first = tensor({kCount}, first), of_second = tensor({kCount}, second);
  Context other(device());
  const CompiledFunction make = compile(other, "make", [](Tensor x) { return affine(x, 2, 0); });
  const CompiledFunction f =
      compile(context(), "f", [](Tensor x, Tensor from) { return add(x, from); });
  Tensor made, y;
  {
    const StreamScope scope(stream);
    made = make(of_first);
  }
  stream.ref().synchronize();
  const Tensor lent = import(memory, branch);
  Graph graph;
  {
    Capture capture(stream, CaptureMode::kThreadLocal);
    branch.ref().wait_for(stream);
    enqueue_copy(branch, memory, of_first);
    {
      const StreamScope inside(stream);
      y = f(lent, made);
    }
    enqueue_copy(branch, memory, of_second);
    stream.ref().wait_for(branch);
    check(capture.end(&graph), "end the capture");
  }
  const GraphExec exec(stream.ref().graphs(), graph);
  check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
  stream.ref().synchronize();

  EXPECT_EQ(values(memory), second);
  EXPECT_EQ(values(y), affine_of(first, 3, 0));
  (void)context().release_captured();
  (void)other.release_captured();
}

}  // namespace
}  // namespace cgtree::testing
