// Frequent mistakes in a first port to cgtree: each is refused or reported, with both sides and a
// remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/steps.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/device/kernel.h"
#include "tests/support/captured_log.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;

// An engine with the step: cache += tokens.
class FirstPortTest : public TreeTest {
 protected:
  static constexpr std::int64_t kCount = 64;
  static constexpr std::size_t kBytes = kCount * sizeof(float);

  void SetUp() override {
    TreeTest::SetUp();
    if (IsSkipped()) return;
    for (Tensor& tokens : tokens_)
      tokens = tensor({kCount}, std::vector<float>(kCount, 1));
    cache_ = tensor({kCount}, std::vector<float>(kCount, 0));
  }
  void TearDown() override {
    cache_ = Tensor();
    for (Tensor& tokens : tokens_)
      tokens = Tensor();
    TreeTest::TearDown();
  }

  static Binding binding_of(const Tensor& tensor) { return {address_of(tensor), tensor.bytes()}; }
  static void* address_of(const Tensor& tensor) {
    return reinterpret_cast<void*>(tensor.address());
  }
  Steps make_steps(std::vector<BindingOptions> further = {}) {
    std::vector<BindingOptions> all = {{.name = "tokens", .is_copied = true},
                                       {.name = "cache", .is_mutated = true}};
    all.insert(all.end(), further.begin(), further.end());
    return Steps(context(), "decode", {.bindings = std::move(all)});
  }
  std::vector<Binding> bindings(std::size_t place = 0) const {
    return {binding_of(tokens_[place]), binding_of(cache_)};
  }
  static void add(const void* x, void* y, StreamRef stream = current_stream()) {
    check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(kCount),
                                        arguments_of(1.0F, x, y, kCount)),
          "launch axpy");
  }
  // A call whose work reads the tokens at step.address(0), or in the engine's buffer.
  Outcome call(Steps& steps, const Key& key = {}, std::size_t place = 0) {
    Step step = steps.begin(key, bindings(place));
    for (; step.must_run(); step.end())
      add(step.address(0), address_of(cache_));
    return step.outcome();
  }
  void call_with_own_pointer(Steps& steps, std::span<const Binding> given) {
    for (Step step = steps.begin({}, given); step.must_run(); step.end())
      add(given[0].address, address_of(cache_));
  }
  // Returns the snapshot's references of the function to foreign memory.
  std::vector<std::string> foreign_of(std::string_view function) {
    std::vector<std::string> all;
    const nlohmann::json nodes = nlohmann::json::parse(snapshot_json(context()))["nodes"];
    for (const nlohmann::json& node : nodes) {
      if (node["function"] != function) continue;
      for (const nlohmann::json& one : node["audit"]["foreign"])
        all.push_back(one["what"].get<std::string>());
    }
    return all;
  }

  std::array<Tensor, 2> tokens_;
  Tensor cache_;
};
CGTREE_ON_ALL_DEVICES(FirstPortTest);

// ---- Mistakes that were silent ------------------------------------------------------------------

TEST_P(FirstPortTest, AnAddressOfACopiedBindingIsRefusedByName) {
  Steps steps = make_steps();
  call_with_own_pointer(steps, bindings());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(
        [&] { call_with_own_pointer(steps, bindings()); },
        ThrowsMessage<InvalidArgument>(
            AllOf(HasSubstr("work of 'decode'"), HasSubstr("binding 0 'tokens'"),
                  HasSubstr("step.address(0)"), HasSubstr("parameter 1 of '"), HasSubstr("axpy"))));
  }
  context().synchronize();
  EXPECT_THAT(values(cache_), Each(1));  // of the warm-up: no other run has happened
  validate();

  EXPECT_EQ(call(steps), Outcome::kRecord);
  EXPECT_EQ(call(steps, {}, 1), Outcome::kReplay);
  context().synchronize();
  EXPECT_THAT(values(cache_), Each(3));
}

TEST_P(FirstPortTest, AnAddressOfACopiedBindingIsRefusedInsideAnArenaThatIsBoundToo) {
  const Tensor arena = tensor({4 * kCount}, std::vector<float>(4 * kCount, 1));
  const Tensor tokens = arena.slice(0, kCount, 2 * kCount);
  const Binding given[] = {binding_of(tokens), binding_of(cache_), binding_of(arena)};
  Steps steps = make_steps({{.name = "arena"}});
  call_with_own_pointer(steps, given);
  EXPECT_THROW(call_with_own_pointer(steps, given), InvalidArgument);
}

TEST_P(FirstPortTest, ACopyOutOfACopiedBindingIsRefused) {
  Steps steps = make_steps();
  const auto run = [&] {
    for (Step step = steps.begin({}, bindings()); step.must_run(); step.end()) {
      const StreamRef stream = current_stream();
      check(stream.api().copy(stream.handle(), address_of(cache_), address_of(tokens_[0]), kBytes),
            "copy");
    }
  };
  run();
  EXPECT_THAT(run, ThrowsMessage<InvalidArgument>(
                       AllOf(HasSubstr("binding 0 'tokens'"), HasSubstr("the source of a copy"))));
}

TEST_P(FirstPortTest, ForeignMemoryIsInTheSnapshot) {
  Steps steps(context(), "decode", {.bindings = {{.name = "cache", .is_mutated = true}}});
  const Binding given[] = {binding_of(cache_)};
  for (int i = 0; i < 3; ++i) {
    for (Step step = steps.begin({}, given); step.must_run(); step.end())
      add(address_of(tokens_[0]), address_of(cache_));
  }
  EXPECT_THAT(foreign_of("decode"), ElementsAre(HasSubstr("axpy")));

  auto f = compile(context(), "f", [x = address_of(tokens_[1])](Tensor y) {
    Tensor sum = affine(y, 1, 0);
    add(x, sum.data());
    return sum;
  });
  for (int i = 0; i < 2; ++i)
    (void)f(random_tensor({kCount}));
  EXPECT_THAT(foreign_of("f"), ElementsAre(HasSubstr("axpy")));
}

TEST_P(FirstPortTest, AnEngineIsWarnedOnceOfForeignMemory) {
  const CapturedLog log;
  Steps steps(context(), "decode", {.bindings = {{.name = "cache", .is_mutated = true}}});
  const Binding given[] = {binding_of(cache_)};
  for (int key = 0; key < 3; ++key) {
    for (int i = 0; i < 3; ++i) {
      for (Step step = steps.begin({{"n", key}}, given); step.must_run(); step.end()) {
        add(address_of(tokens_[0]), address_of(cache_));
        add(address_of(tokens_[1]), address_of(cache_));
      }
    }
  }
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("foreign_pointer function=decode"),
                                             HasSubstr("parameter 1 of '"), HasSubstr("axpy"))));
}

TEST_P(FirstPortTest, AnOutputWithoutItsDynamicAxisIsToldOnce) {
  const CapturedLog log;
  auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                   {.inputs = {{.dynamic = {{0, "batch"}}}},
                    .buckets = {{"batch", {4, 8}}},
                    .outputs = {{.name = "logits"}}});
  for (int i = 0; i < 3; ++i)
    (void)f(random_tensor({3, 2}));
  (void)f(random_tensor({7, 2}));
  (void)f(random_tensor({7, 2}));
  EXPECT_THAT(log.lines(),
              ElementsAre(AllOf(HasSubstr("function=f"), HasSubstr("output 0 'logits'"),
                                HasSubstr("'batch'"), HasSubstr("the option outputs_dynamic"))));
  EXPECT_THAT(to_string(f.explain(random_tensor({3, 2}))),
              AllOf(HasSubstr("output 0 'logits'"), HasSubstr("OutputOptions::dynamic")));
}

TEST_P(FirstPortTest, AnOutputThatIsSlicedIsNotToldOf) {
  const CapturedLog log;
  auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                   {.inputs = {{.dynamic = {{0, "batch"}}}},
                    .buckets = {{"batch", {4}}},
                    .outputs = {{.dynamic = {{0, "batch"}}}}});
  for (int i = 0; i < 3; ++i)
    (void)f(random_tensor({3, 4}));
  EXPECT_THAT(log.lines(), IsEmpty());
  EXPECT_THAT(to_string(f.explain(random_tensor({3, 4}))), Not(HasSubstr("OutputOptions")));
}

// ---- Advice -------------------------------------------------------------------------------------

TEST_P(FirstPortTest, ARecordingThatWasDroppedIsMadeAgainAndNothingIsAdvised) {
  Steps steps = make_steps();
  for (int i = 0; i < 3; ++i) {
    for (const int n : {1, 2})
      call(steps, {{"n", n}});
  }
  EXPECT_EQ(steps.invalidate(cache_.data(), kBytes), 2u);
  call(steps, {{"n", 1}});
  const Explanation why = steps.explain({{"n", 2}}, bindings());
  EXPECT_EQ(why.outcome, Outcome::kRecord);
  EXPECT_THAT(why.mismatches, IsEmpty());
  EXPECT_THAT(advice(why), HasSubstr("nothing: "));
}

TEST_P(FirstPortTest, ManyKeysThatAreEachOfUseAreNoMatterForAdvice) {
  Steps steps = make_steps();
  for (int i = 0; i < 5; ++i) {
    for (int n = 0; n < 12; ++n)
      call(steps, {{"n", n}});
  }
  EXPECT_THAT(to_string(steps.explain({{"n", 99}}, bindings())),
              AllOf(HasSubstr("nothing: each key has recordings of its own"),
                    Not(HasSubstr("CompileOptions"))));
}

TEST_P(FirstPortTest, RecordingsForWantOfMarkStepAreToldOnce) {
  const CapturedLog log;
  auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  {
    std::vector<Tensor> held;
    for (int i = 0; i < 30; ++i)
      held.push_back(f(random_tensor({kCount})));
  }
  EXPECT_THAT(log.lines(),
              ElementsAre(AllOf(HasSubstr("held_outputs function=f"), HasSubstr("mark_step()"))));
}

// ---- Messages -----------------------------------------------------------------------------------

TEST_P(FirstPortTest, AWrongElementTypeNamesTheInputTheFunctionAndWhatToDo) {
  auto f = compile(context(), "f",
                   [](Tensor x) {
                     (void)x.data<std::int32_t>();
                     return x;
                   },
                   {.inputs = {{.name = "tokens"}}});
  EXPECT_THAT([&] { (void)f(random_tensor({kCount})); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("input 0 'tokens' of 'f'"),
                                                   HasSubstr("float32 {64}"), HasSubstr("int32"),
                                                   HasSubstr("data<float>()"))));
  EXPECT_THAT([&] { (void)cache_.data<std::int32_t>(); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("float32 {64}"), HasSubstr("int32"),
                                                   HasSubstr("data<float>()"))));
}

TEST_P(FirstPortTest, AnotherElementTypeIsNoMatterOfBuckets) {
  auto f = compile(context(), "f", [](Tensor x) { return x; }, {.inputs = {{.name = "tokens"}}});
  for (int i = 0; i < 2; ++i)
    (void)f(random_tensor({kCount}));
  const std::string why = to_string(f.explain(empty({kCount}, DType::kInt32, device())));
  EXPECT_THAT(why, AllOf(HasSubstr("float32 {64}"), HasSubstr("int32 {64}"),
                         HasSubstr("pass 'tokens' as float32"), Not(HasSubstr("buckets"))));
}

TEST_P(FirstPortTest, ATensorWithGapsSaysWhatCopiesIt) {
  const Tensor columns = random_tensor({4, 4}).slice(1, 0, 2);
  EXPECT_THAT([&] { (void)values(columns); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("{4, 2}"), HasSubstr("copy_elements("), HasSubstr("copy.h"))));
}

TEST_P(FirstPortTest, AHostPointerIsRefusedInPlainWords) {
  Steps steps = make_steps();
  std::vector<float> host(kCount);
  const Binding given[] = {{host.data(), kBytes}, binding_of(cache_)};
  std::string what;
  try {
    (void)steps.begin({}, given);
  } catch (const InvalidArgument& error) {
    what = error.what();
  }
  EXPECT_THAT(what, AllOf(HasSubstr("binding 0 'tokens' of 'decode'"),
                          HasSubstr("allocate_device_memory("), HasSubstr("host_bytes")));
  std::size_t places = 0;
  for (std::size_t at = what.find(".cc:"); at != std::string::npos; at = what.find(".cc:", at + 1))
    ++places;
  EXPECT_EQ(places, 1u) << what;
}

TEST_P(FirstPortTest, WorkOfAnEngineThatSynchronisesIsNamedAndSoAreEagerBreaks) {
  Steps steps = make_steps();
  const CapturedLog log;
  for (int i = 0; i < 2; ++i) {
    for (Step step = steps.begin({}, bindings()); step.must_run(); step.end()) {
      const StreamRef stream = current_stream();
      if (ok(stream.api().synchronize_stream(stream.handle())))
        add(step.address(0), address_of(cache_));
    }
  }
  EXPECT_THAT(log.lines(),
              Contains(AllOf(HasSubstr("skip function=decode"), HasSubstr("begin() and end()"),
                             HasSubstr("eager_break()"))));
  EXPECT_THAT(log.lines(), Each(Not(HasSubstr("step function"))));
}

TEST_P(FirstPortTest, AStepThatAnExceptionLeavesIsToldWithWhatBrokeItsCapture) {
  Steps steps = make_steps();
  const CapturedLog log;
  const auto call_that_checks = [&] {
    for (Step step = steps.begin({}, bindings()); step.must_run(); step.end()) {
      const StreamRef stream = current_stream();
      check(stream.api().synchronize_stream(stream.handle()), "wait for the tokens");
    }
  };
  call_that_checks();
  EXPECT_THROW(call_that_checks(), DeviceError);
  EXPECT_THAT(log.lines(), Contains(AllOf(HasSubstr("failure function=decode"),
                                          HasSubstr("an exception has passed"),
                                          HasSubstr("its capture failed: wait for the tokens: "))));
  { const Step left = steps.begin({{"n", 1}}, bindings()); }
  EXPECT_THAT(log.lines(), Contains(HasSubstr("by a return or a break")));
}

TEST_P(FirstPortTest, AStaticInputThatIsMissingSaysHowManyAreExpected) {
  auto f = compile(context(), "decode", [](std::span<const Tensor> inputs) { return inputs[0]; },
                   {.inputs = {{}, {.name = "kv", .is_static = true}}});
  const Tensor one[] = {cache_};
  EXPECT_THAT([&] { (void)f(one); }, ThrowsMessage<InvalidArgument>(AllOf(
                                         HasSubstr("static input 1 'kv' of 'decode'"),
                                         HasSubstr("1 input is given"), HasSubstr("at least 2"))));
}

TEST_P(FirstPortTest, ALineOfTheLogIsOneLine) {
  const CapturedLog log;
  auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                   {.inputs = {{.is_static = true}}, .on_static_change = OnStaticChange::kThrow});
  for (int i = 0; i < 2; ++i)
    (void)f(cache_);
  EXPECT_THROW((void)f(tokens_[0]), CaptureError);
  EXPECT_THAT(log.lines(), Contains(HasSubstr("failure function=f")));
  EXPECT_THAT(log.lines(), Each(Not(HasSubstr("\n"))));
}

TEST_P(FirstPortTest, EmptyOutsideOfAStepFunctionSaysHowToNameADevice) {
  EXPECT_THAT([] { (void)empty({kCount}, DType::kFloat32); },
              ThrowsMessage<InvalidArgument>(HasSubstr("context.device()")));
}

}  // namespace
}  // namespace cgtree::testing
