// Calls that cannot be recorded run eagerly: for lack of memory, because the step keeps new
// tensors, or because another thread has invalidated the capture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "allocator/device/device_memory.h"
#include "base/error.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/values/eager_break.h"
#include "extensions/ranks/group.h"
#include "interop/device/device_api.h"
#include "interop/exchange/lent_memory.h"
#include "interop/random/random.h"
#include "tests/support/captured_log.h"
#include "tests/support/inside.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kUsed = 8;  // elements of large tensors that are compared

Tensor head(const Tensor& tensor) {
  return tensor.slice(0, 0, kUsed);
}

class UnrecordedTest : public TreeTest {
 protected:
  using F = CompiledFunction<Tensor(Tensor)>;

  static Tensor floats_of(std::int64_t mib) { return empty({mib * (kMiB / 4)}, DType::kFloat32); }
  static void copy_head(const Tensor& to, const Tensor& from) {
    const StreamRef stream = current_stream();
    const std::size_t bytes = kUsed * sizeof(float);
    check(stream.api().copy(stream.handle(), to.data(), from.data(), bytes), "copy");
  }
  // Calls f with new values, and expects the result to begin with 2 x + 1.
  Tensor call(const F& f, std::int64_t size = kUsed) {
    const std::vector<float> x = random_floats(size);
    const Tensor y = f(tensor({size}, x));
    EXPECT_EQ(values(head(y)), affine_of({x.begin(), x.begin() + kUsed}, 2, 1));
    return y;
  }
  static std::uint64_t skips(const F& f, SkipReason reason) { return f.stats().skipped(reason); }

  CapturedLog warnings_;
};
CGTREE_ON_ALL_DEVICES(UnrecordedTest);

// ---- Memory ----

// A step with three tensors of 4 MiB at the same time and an output, in budgets of every size.
TEST_P(UnrecordedTest, InWhateverBudgetAStepRunsOnceItRunsEachTime) {
  for (const AtLimit at_limit : {AtLimit::kRunEagerly, AtLimit::kEvict}) {
    int refused = 0;
    int eager = 0;
    for (std::size_t budget = 8; budget <= 72; budget += 2) {
      SCOPED_TRACE(budget);
      make_context({.max_bytes = budget * kMiB, .at_limit = at_limit});
      const F f = compile(context(), "f", [](Tensor x) {
        const Tensor a = floats_of(4), b = floats_of(4), c = floats_of(4);
        copy_head(c, affine(x, 2, 1));
        Tensor y = floats_of(4);
        copy_head(y, c);
        return y;
      });
      try {
        (void)f(random_tensor({kUsed}));
      } catch (const OutOfMemory&) {
        ++refused;
        continue;
      }
      for (int i = 0; i < 8; ++i) {
        context().mark_step();
        ASSERT_NO_THROW(call(f));
      }
      eager += skips(f, SkipReason::kPoolLimit) > 0;
      EXPECT_TRUE(f.stats().replays > 0 || skips(f, SkipReason::kPoolLimit) > 0);
      validate();
    }
    EXPECT_GT(refused, 0);
    EXPECT_LT(refused, 20);
    std::printf("refused %d, eager %d\n", refused, eager);
  }
}

// An earlier call has left 20 MiB of idle memory in pools.
TEST_P(UnrecordedTest, MemoryThatItsContextHoldsIdleIsNotWhatARecordingLacks) {
  for (const AtLimit at_limit : {AtLimit::kEvict, AtLimit::kRunEagerly, AtLimit::kThrow}) {
    for (const bool reads_table : {true, false}) {
      for (const std::size_t budget : {44, 46, 48}) {
        SCOPED_TRACE(budget);
        make_context({.max_bytes = budget * kMiB, .at_limit = at_limit});
        const F make = compile(context(), "make", [](Tensor x) {
          Tensor y = floats_of(20);
          copy_head(y, affine(x, 0, 1));
          return y;
        });
        const Tensor table = make(random_tensor({kUsed}));
        const F f = compile(context(), "f", [&](Tensor x) {
          return reads_table ? add(affine(x, 2, 0), head(table)) : affine(x, 2, 1);
        });
        for (int i = 0; i < 6; ++i)
          ASSERT_NO_THROW(call(f));
        EXPECT_EQ(f.stats().recordings, 1u);
      }
    }
  }
}

TEST_P(UnrecordedTest, ACallThatDoesNotFitAsARecordingSaysWhatIsShort) {
  make_context({.max_bytes = 30 * kMiB});
  bool is_large = false;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (is_large && current_stream().is_capturing()) (void)floats_of(40);
    return affine(x, 2, 1);
  });
  call(f);
  is_large = true;
  call(f);
  call(f);

  EXPECT_EQ(skips(f, SkipReason::kPoolLimit), 2u);
  EXPECT_EQ(f.stats().failures, 0u);
  EXPECT_THAT(f.explain(random_tensor({kUsed})).detail, HasSubstr(""));
  std::size_t told = 0;
  for (const std::string& line : warnings_.lines())
    told += line.find("has no room for 41943040 bytes") != std::string::npos;
  EXPECT_EQ(told, 1u);

  is_large = false;
  call(f);
  EXPECT_EQ(f.stats().recordings, 1u);
}

// Captures that do not fit are tried again at growing distances.
TEST_P(UnrecordedTest, ACallIsRecordedOnceThereIsMemoryForIt) {
  make_context({.max_bytes = 60 * kMiB});
  int captures = 0;
  Tensor held = context().eager([] { return floats_of(40); });
  const F f = compile(context(), "f", [&](Tensor x) {
    if (current_stream().is_capturing()) {
      ++captures;
      (void)floats_of(30);
    }
    return affine(x, 2, 1);
  });
  for (int i = 0; i < 40; ++i)
    call(f);
  EXPECT_LE(captures, 6);  // three calls, each with up to two attempts
  const int before = captures;
  held = Tensor();
  for (int i = 0; i < 40; ++i)
    call(f);
  EXPECT_EQ(captures, before + 1);
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_GT(f.stats().replays, 0u);
}

TEST_P(UnrecordedTest, WhereTheCallerAsksForAGraphLackOfMemoryIsThrown) {
  for (const bool requires_graph : {true, false}) {
    make_context({.max_bytes = 30 * kMiB,
                  .at_limit = requires_graph ? AtLimit::kRunEagerly : AtLimit::kThrow});
    const F f = compile(context(), "f",
                        [&](Tensor x) {
                          if (current_stream().is_capturing()) (void)floats_of(40);
                          return affine(x, 2, 1);
                        },
                        {.require_graph = requires_graph});
    call(f);
    for (int i = 0; i < 2; ++i)
      EXPECT_THROW((void)f(random_tensor({kUsed})), OutOfMemory);
  }
}

TEST_P(UnrecordedTest, WhereEvenAnEagerRunDoesNotFitThePoolsAreNamed) {
  make_context({.max_bytes = 30 * kMiB});
  const F f = compile(context(), "f", [&](Tensor) { return floats_of(40); });
  try {
    (void)f(random_tensor({kUsed}));
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& error) {
    ASSERT_NE(error.report(), nullptr);
    EXPECT_THAT(error.what(), HasSubstr("reserved"));
  }
}

// The library keeps its table from the warm-up that ran out of memory, and expects it to be filled.
TEST_P(UnrecordedTest, AWorkspaceThatIsFilledInAWarmUpWithoutMemoryIsThereLater) {
  make_context({.max_bytes = 30 * kMiB});
  bool is_large = true;
  Tensor table;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (!table.defined()) table = affine(x, 0, 1);
    if (is_large) (void)floats_of(40);
    return add(affine(x, 2, 0), table);
  });
  EXPECT_THROW((void)f(random_tensor({kUsed})), OutOfMemory);
  is_large = false;
  for (int i = 0; i < 4; ++i) {
    context().mark_step();
    call(f);
  }
  EXPECT_EQ(f.stats().replays, 2u);
  table = Tensor();
}

// A call throws for a reason outside cgtree: a refused request, or a missing file.
TEST_P(UnrecordedTest, AWorkspaceThatIsFilledInAWarmUpThatThrowsIsThereLater) {
  make_context({});
  bool throws = true;
  Tensor table;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (!table.defined()) table = affine(x, 0, 1);
    if (throws) throw std::runtime_error("the user's own");
    return add(affine(x, 2, 0), table);
  });
  EXPECT_THROW((void)f(random_tensor({kUsed})), std::runtime_error);
  throws = false;
  for (int i = 0; i < 4; ++i) {
    context().mark_step();
    call(f);
  }
  EXPECT_EQ(f.stats().replays, 2u);
  table = Tensor();
}

// Each k-th request for a segment is refused, and no idle memory can be freed.
TEST_P(UnrecordedTest, NoRefusedRequestOfARecordingIsThrown) {
  for (int k = 0; k < 12; ++k) {
    SCOPED_TRACE(k);
    make_context({});
    const F f = compile(context(), "f", [](Tensor x) {
      const Tensor a = floats_of(11), b = floats_of(11);
      copy_head(b, affine(x, 2, 1));
      Tensor y = floats_of(11);
      copy_head(y, b);
      return y;
    });
    call(f);
    context().trim();
    segments_->refuse_at = k;
    for (int i = 0; i < 3; ++i)
      ASSERT_NO_THROW(call(f));
    segments_->refuse_at = -1;
    validate();
  }
}

// The engine's exception reaches the caller; after a few such steps its work runs without a graph.
TEST_P(UnrecordedTest, AnEngineWhoseStepsDoNotFitAsRecordingsIsServed) {
  make_context({.max_bytes = 30 * kMiB});
  const Tensor x = tensor({kUsed}, std::vector<float>(kUsed, 0));
  Steps steps(context(), "step");
  const Binding bindings[] = {{x.data<float>(), x.bytes()}};
  int thrown = 0;
  for (int i = 0; i < 20; ++i) {
    try {
      for (Step step = steps.begin(Key{}, bindings); step.must_run(); step.end()) {
        if (step.is_captured()) (void)floats_of(40);
        update(x, 1, 1);
      }
    } catch (const OutOfMemory&) {
      ++thrown;
    }
  }
  EXPECT_EQ(thrown, 3);
  EXPECT_EQ(steps.stats().skipped(SkipReason::kPoolLimit), 16u);
  EXPECT_EQ(values(x)[0], 17);
}

TEST_P(UnrecordedTest, IfARecordingDoesNotFitOnOneRankAllRunEagerly) {
  auto groups = make_thread_groups(3, std::chrono::milliseconds(20'000));
  std::mutex mutex;
  std::vector<std::vector<std::optional<CallOutcome>>> outcomes(3);
  run_on_ranks(3, [&](int rank) {
    ContextOptions options;
    options.group = std::move(groups[static_cast<std::size_t>(rank)]);
    if (rank == 1) options.max_bytes = 30 * kMiB;
    Context on_rank(device_of_rank(device(), rank), options);
    const F f = compile(on_rank, "f", [](Tensor x) {
      if (current_stream().is_capturing()) (void)floats_of(40);
      return affine(x, 2, 1);
    });
    std::vector<std::optional<CallOutcome>> mine;
    const Tensor x = from_host<float>({kUsed}, std::vector<float>(kUsed, 3), on_rank.device());
    for (int i = 0; i < 80; ++i) {
      try {
        EXPECT_EQ(f(x).to_vector<float>()[0], 7);
      } catch (const Error& error) {
        ADD_FAILURE() << rank << ", call " << i << ": " << error.what();
      }
      mine.push_back(f.last_outcome());
    }
    EXPECT_EQ(f.stats().skipped(SkipReason::kPoolLimit), 79u);
    const std::lock_guard lock(mutex);
    outcomes[static_cast<std::size_t>(rank)] = mine;
  });
  EXPECT_EQ(outcomes[0], outcomes[1]);
  EXPECT_EQ(outcomes[0], outcomes[2]);
}

// ---- Tensors that steps keep ----

// A library that has one table, or a table per size, and fills each new table.
class Library {
 public:
  explicit Library(bool has_one) : has_one_(has_one) {}
  Tensor table(const Tensor& x) {
    const std::int64_t n = x.dim(0);
    const auto found = tables_.find(n);
    if (found != tables_.end()) return found->second;
    if (has_one_) tables_.clear();
    ++made;
    return tables_[n] = affine(x, 0, 1);
  }
  void drop() { tables_.clear(); }

  int made = 0;

 private:
  const bool has_one_;
  std::map<std::int64_t, Tensor> tables_;
};

TEST_P(UnrecordedTest, AWorkspaceThatIsReplacedByAnotherSizeServesEachCall) {
  for (const bool has_one : {true, false}) {
    for (const int run : {1, 2, 3, 5}) {  // calls of the same size in a row
      SCOPED_TRACE(run);
      make_context({.at_limit = AtLimit::kEvict});
      Library library(has_one);
      const auto step = [&](Tensor x) {
        (void)affine(x, 7, 7);
        return add(affine(x, 2, 0), library.table(x));
      };
      const F f = compile(context(), "f", step);
      const F g = compile(context(), "g", step);
      const F noise = compile(context(), "noise",
                              [](Tensor x) { return affine(affine(affine(x, 5, 5), 2, 2), 3, 3); });
      for (int i = 0; i < 60; ++i) {
        context().mark_step();
        if (i % 7 == 6) context().trim();
        const std::int64_t size = std::int64_t{64} << (i / run % 3);
        ASSERT_NO_THROW(call(i % 3 == 1 ? g : f, size)) << i;
        (void)noise(random_tensor({size}));
      }
      context().release_memory();
      for (int i = 0; i < 12; ++i)
        ASSERT_NO_THROW(call(f, std::int64_t{64} << (i % 3))) << i;
      library.drop();
      validate();
    }
  }
}

// Slots of ended storages are used again once there are many.
TEST_P(UnrecordedTest, HoweverManyOutputsAreHeldNoCaptureMakesAWorkspaceThatWasReplaced) {
  make_context({});
  Library library(true);
  int made_in_captures = 0;
  const F f = compile(context(), "f", [&](Tensor x) {
    const int before = library.made;
    Tensor y = add(affine(x, 2, 0), library.table(x));
    if (current_stream().is_capturing()) made_in_captures += library.made - before;
    return y;
  });
  std::vector<Tensor> held;
  for (int i = 0; i < 200; ++i)
    held.push_back(call(f, std::int64_t{64} << (i % 4)));
  EXPECT_EQ(made_in_captures, 0);
  EXPECT_EQ(skips(f, SkipReason::kKeepsTensor), 0u);
  library.drop();
}

// One eager run makes the table that the warm-up uses, and another one drops it. A table made in a
// failed capture is lost.
TEST_P(UnrecordedTest, NoCaptureMakesAWorkspaceThatAnEagerRunHasMadeAndReplaced) {
  enum class Case { kAsksForTheTable, kKnowsItsAddress, kAnotherFunctionHasMadeIt, kRunHasThrown };
  for (const Case which : {Case::kAsksForTheTable, Case::kKnowsItsAddress,
                           Case::kAnotherFunctionHasMadeIt, Case::kRunHasThrown}) {
    SCOPED_TRACE(static_cast<int>(which));
    make_context({});
    Library library(true);
    int made_in_captures = 0;
    const void* address = nullptr;
    bool throws = which == Case::kRunHasThrown;
    const auto step = [&](Tensor x) {
      const int before = library.made;
      Tensor table = library.table(x);
      if (current_stream().is_capturing()) made_in_captures += library.made - before;
      if (library.made != before) address = table.data();
      if (which == Case::kKnowsItsAddress) {
        table = empty(x.shape(), x.dtype());
        const StreamRef stream = current_stream();
        check(stream.api().copy(stream.handle(), table.data(), address, table.bytes()), "copy");
      }
      Tensor y = add(affine(x, 2, 0), table);
      if (std::exchange(throws, false)) throw std::runtime_error("the user's own");
      return y;
    };
    const F f = compile(context(), "f", step);
    const F g = compile(context(), "g", step);
    const auto call_eagerly = [&](std::int64_t size) {
      const NoGraph none;
      call(which == Case::kAnotherFunctionHasMadeIt ? g : f, size);
    };
    if (throws) {
      EXPECT_THROW(call_eagerly(64), std::runtime_error);
    } else {
      call_eagerly(64);
    }
    call(f, 64);
    call_eagerly(128);
    for (int i = 0; i < 3; ++i)
      call(f, 64);
    EXPECT_EQ(made_in_captures, 0);
    EXPECT_EQ(f.stats().warm_ups, 2u);
    EXPECT_EQ(f.stats().replays, 1u);
    library.drop();
    validate();
  }
}

// Another thread releases tables one by one while calls look for held ones.
TEST_P(UnrecordedTest, AnotherThreadMayLetGoOfWhatEagerRunsHaveKept) {
  constexpr int kRounds = 4000;
  make_context({});
  std::vector<Tensor> kept(20);
  const F f = compile(context(), "f", [&](Tensor x) {
    for (Tensor& one : kept)
      one = empty({1}, DType::kFloat32);
    return affine(x, 2, 1);
  });
  const Tensor x = random_tensor({kUsed});
  const ContextMemory& asked = memory_of(context());
  std::atomic<int> made = 0, let_go = 0;
  std::thread other([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (made < round)
        std::this_thread::yield();
      for (Tensor& one : kept) {
        one = Tensor();
        for (int pause = 0; pause < 200; ++pause)
          std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      let_go = round;
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    {
      const NoGraph none;
      (void)f(x);
    }
    made = round;
    while (let_go < round)
      (void)asked.workspaces();
  }
  other.join();
  validate();
}

// No warm-up has used the table: the capture is the first call that asks for it.
TEST_P(UnrecordedTest, AWorkspaceThatIsMadeInACaptureIsFilledOnceAndIsRecordedWithLater) {
  Library library(true);
  bool asks = false;
  const F f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, asks ? 0 : 1);
    return asks ? add(y, library.table(x)) : y;
  });
  call(f);
  asks = true;
  for (int i = 0; i < 5; ++i) {
    context().mark_step();
    call(f);
  }
  EXPECT_EQ(library.made, 1);
  EXPECT_EQ(skips(f, SkipReason::kKeepsTensor), 1u);
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().failures, 0u);
  library.drop();
}

TEST_P(UnrecordedTest, AStepThatKeepsATensorInEachCallRunsEagerlyAndSaysSoOnce) {
  std::vector<Tensor> kept;
  const F f = compile(context(), "hoards", [&](Tensor x) {
    kept.push_back(affine(x, 3, 0));
    return affine(x, 2, 1);
  });
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 30; ++i) {
    context().mark_step();
    const std::vector<float> x = random_floats(kUsed);
    expected.push_back(affine_of(x, 3, 0));
    EXPECT_EQ(values(f(tensor({kUsed}, x))), affine_of(x, 2, 1));
  }
  EXPECT_EQ(kept.size(), 30u);
  for (std::size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(values(kept[i]), expected[i]) << i;
  EXPECT_EQ(f.stats().recordings, 0u);
  EXPECT_THAT(f.explain(random_tensor({kUsed})).detail, HasSubstr("'hoards' keeps 1 of the"));
  std::size_t told = 0;
  for (const std::string& line : warnings_.lines())
    told += line.find("keeps_tensor") != std::string::npos;
  EXPECT_EQ(told, 1u);
  kept.clear();
}

// A semaphore that is cleared when it is made, and that each run leaves cleared.
TEST_P(UnrecordedTest, ASemaphoreThatIsMadeInACaptureIsClearedOnce) {
  Tensor semaphore;
  bool asks = false;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (!asks) return affine(x, 2, 1);
    if (!semaphore.defined()) semaphore = affine(x, 0, 0);
    update(semaphore, 1, 1);
    const Tensor y = add(affine(x, 2, 0), semaphore);
    update(semaphore, 1, -1);
    return y;
  });
  call(f);
  asks = true;
  for (int i = 0; i < 10; ++i)
    call(f);
  EXPECT_GE(f.stats().replays, 8u);
  semaphore = Tensor();
}

// With breaks, draws and mutated inputs: the launch of the capture is the only run of the step.
TEST_P(UnrecordedTest, ALaunchThatIsNotKeptIsOneRunOfTheStep) {
  const Generator generator(seed_), twin(seed_);
  std::vector<Tensor> kept;
  int breaks = 0;
  const auto step = [&](const Generator& from) {
    return [&, from](Tensor x, Tensor sum) {
      update(sum, 1, 1);
      kept.push_back(uniform({kUsed}, from));
      eager_break([&breaks](const StepValues&) { ++breaks; });
      return add(affine(x, 2, 1), kept.back());
    };
  };
  const CompileOptions options{.inputs = {{}, {.is_mutated = true}}};
  const auto f = compile(context(), "f", step(generator), options);
  CompileOptions eager = options;
  eager.enabled = false;
  const auto expected = compile(context(), "expected", step(twin), eager);
  const Tensor sum = tensor({kUsed}, std::vector<float>(kUsed, 0));
  const Tensor sum_of_twin = tensor({kUsed}, std::vector<float>(kUsed, 0));
  for (int i = 0; i < 8; ++i) {
    const Tensor x = random_tensor({kUsed});
    EXPECT_EQ(values(f(x, sum)), values(expected(x, sum_of_twin))) << i;
  }
  EXPECT_EQ(values(sum), values(sum_of_twin));
  EXPECT_EQ(generator.state().offset, twin.state().offset);
  EXPECT_EQ(breaks, 16);
  EXPECT_EQ(f.stats().skipped(SkipReason::kKeepsTensor), 7u);
  kept.clear();
}

TEST_P(UnrecordedTest, WhereTheCallerAsksForAGraphAKeptTensorIsRefused) {
  std::vector<Tensor> kept;
  const F f = compile(context(), "hoards",
                      [&](Tensor x) {
                        kept.push_back(affine(x, 3, 0));
                        return affine(x, 2, 1);
                      },
                      {.require_graph = true});
  call(f);
  EXPECT_THROW((void)f(random_tensor({kUsed})), InvalidArgument);
  kept.clear();
}

TEST_P(UnrecordedTest, IfOneRankKeepsATensorAllLaunchTheCaptureOnce) {
  auto groups = make_thread_groups(2, std::chrono::milliseconds(20'000));
  run_on_ranks(2, [&](int rank) {
    ContextOptions options;
    options.group = std::move(groups[static_cast<std::size_t>(rank)]);
    Context on_rank(device_of_rank(device(), rank), options);
    std::vector<Tensor> kept;
    int call_number = 0;
    const F f = compile(on_rank, "f", [&](Tensor x) {
      if (rank == 1 && call_number < 2) kept.push_back(affine(x, 3, 0));
      return affine(x, 2, 1);
    });
    const Tensor x = from_host<float>({kUsed}, std::vector<float>(kUsed, 3), on_rank.device());
    for (; call_number < 6; ++call_number)
      EXPECT_EQ(f(x).to_vector<float>()[0], 7);
    EXPECT_EQ(f.stats().skipped(SkipReason::kKeepsTensor), 1u);
    EXPECT_EQ(f.stats().recordings, 1u);
    EXPECT_EQ(f.stats().replays, 3u);
    for (const Tensor& tensor : kept)
      EXPECT_EQ(tensor.to_vector<float>()[0], 9);
  });
}

// Tensors of a broken capture are never filled: their use is refused.
TEST_P(UnrecordedTest, TensorsOfABrokenCaptureAreRefusedUntilTheyAreMadeAgain) {
  Tensor table;
  bool asks = false;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (!asks) return affine(x, 2, 1);
    if (!table.defined()) table = affine(x, 0, 1);
    if (current_stream().is_capturing()) current_stream().synchronize();
    return add(affine(x, 2, 0), table);
  });
  call(f);
  asks = true;
  for (int i = 0; i < 2; ++i) {
    try {
      (void)f(random_tensor({kUsed}));
      FAIL() << "nothing was thrown";
    } catch (const StaleTensor& error) {
      EXPECT_THAT(error.what(), HasSubstr("drop it, and allocate it again"));
    }
  }
  table = Tensor();
  for (int i = 0; i < 4; ++i)
    call(f);
  table = Tensor();
}

// ---- Other threads ----

// Waits inside a capture until another thread has run `what`.
void run_on_another_thread(const std::function<void()>& what) {
  std::thread(what).join();
}

TEST_P(UnrecordedTest, ACaptureThatAnotherThreadInvalidatesIsMadeAgain) {
  int captures = 0;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (current_stream().is_capturing() && ++captures == 1) {
      run_on_another_thread([&] { (void)device_api(device()).synchronize_device(device().id); });
    }
    return affine(x, 2, 1);
  });
  call(f);
  call(f);
  EXPECT_EQ(skips(f, SkipReason::kCaptureDisturbed), 1u);
  const std::string text = to_string(f.explain(random_tensor({kUsed})));
  for (int i = 0; i < 20; ++i)
    call(f);

  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().replays, 19u);
  EXPECT_THAT(warnings_.lines(), Contains(HasSubstr("another thread")));
  EXPECT_THAT(warnings_.lines(), Not(Contains(HasSubstr("the work synchronises"))));
  EXPECT_THAT(text, Not(HasSubstr("not tried again")));
}

TEST_P(UnrecordedTest, ASizeThatIsDisturbedInEachCaptureIsTriedAgainAtGrowingDistances) {
  int captures = 0;
  bool disturbs = true;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (current_stream().is_capturing()) {
      ++captures;
      if (disturbs) {
        run_on_another_thread([&] { (void)device_api(device()).synchronize_device(device().id); });
      }
    }
    return affine(x, 2, 1);
  });
  for (int i = 0; i < 300; ++i)
    call(f);
  EXPECT_EQ(captures, 5);
  EXPECT_EQ(skips(f, SkipReason::kCaptureDisturbed), 299u);
  EXPECT_THAT(f.explain(random_tensor({kUsed})).detail,
              ::testing::AllOf(HasSubstr("another thread"), HasSubstr("tried again after")));
  disturbs = false;
  for (int i = 0; i < 200; ++i)
    call(f);
  EXPECT_EQ(f.stats().recordings, 1u);
}

// The step itself breaks the capture and ignores the errors: the next capture would fail as well.
TEST_P(UnrecordedTest, AStepThatHidesWhatItBreaksIsNotTriedAgain) {
  for (const bool is_last : {true, false}) {
    int captures = 0;
    const F f = compile(context(), "f", [&](Tensor x) {
      const Tensor y = is_last ? affine(x, 2, 1) : x;
      if (current_stream().is_capturing()) {
        ++captures;
        (void)device_api(device()).synchronize_stream(current_stream().handle());
      }
      return is_last ? y : affine(x, 2, 1);
    });
    for (int i = 0; i < 80; ++i)
      call(f);
    EXPECT_EQ(captures, 1);
    EXPECT_EQ(skips(f, SkipReason::kCaptureFailed), 79u);
  }
}

TEST_P(UnrecordedTest, AContextThatGivesMemoryBackInAStepOfAnotherBreaksNoCapture) {
  enum What { kRelease, kTrim, kTrimToDevice, kDestroy, kWhats };
  for (int what = 0; what < kWhats; ++what) {
    SCOPED_TRACE(what);
    auto other = std::make_unique<Context>(device());
    auto older = std::make_unique<F>(
        F(compile(*other, "older", [](Tensor x) { return affine(affine(x, 1, 1), 2, 1); })));
    for (int i = 0; i < 3; ++i)
      (void)(*older)(random_tensor({kUsed}));
    const F f = compile(context(), "f", [&](Tensor x) {
      const Tensor y = affine(x, 2, 0);
      if (current_stream().is_capturing()) {
        if (what == kRelease) other->release_memory();
        if (what == kTrim) other->trim();
        if (what == kTrimToDevice) other->trim(true);
        if (what == kDestroy) older.reset(), other.reset();
      }
      return affine(y, 1, 1);
    });
    for (int i = 0; i < 4; ++i)
      call(f);
    EXPECT_EQ(f.stats().recordings, 1u) << to_string(f.explain(random_tensor({kUsed})));
    EXPECT_EQ(f.stats().replays, 2u);
    if (older == nullptr) continue;
    const std::vector<float> x = random_floats(kUsed);
    EXPECT_EQ(values((*older)(tensor({kUsed}, x))), affine_of(affine_of(x, 1, 1), 2, 1));
  }
}

TEST_P(UnrecordedTest, ACopyOfAnotherThreadOnTheLegacyStreamIsNotTheStepsFault) {
  Context checked(device(), {.checked = true});
  int captures = 0;
  const F f = compile(checked, "f", [&](Tensor x) {
    if (current_stream().is_capturing() && ++captures == 1) {
      run_on_another_thread(
          [&] { (void)device_api(device()).synchronize_stream(StreamHandle::kLegacy); });
    }
    return affine(x, 2, 1);
  });
  for (int i = 0; i < 5; ++i)
    call(f);
  EXPECT_EQ(skips(f, SkipReason::kCaptureDisturbed), 1u);
  EXPECT_EQ(f.stats().replays, 2u);
}

// A context that needs memory for a recording gets the idle memory of a context that evicts no
// recordings.
TEST_P(UnrecordedTest, ARecordingGetsWhatAnotherContextHoldsIdle) {
  const auto shared = DeviceMemory::shared(device());
  Context idle(device());
  Context needy(device());
  const auto step = [](Tensor x) {
    const Tensor a = floats_of(16);
    copy_head(a, affine(x, 2, 1));
    return affine(head(a), 1, 0);
  };
  const F f = compile(idle, "f", step);
  const F g = compile(needy, "g", step);
  call(f);  // a warm-up: its memory is now idle
  call(g);
  (void)needy.trim(/*to_device=*/true);
  const std::size_t was = shared->budget().max_bytes();
  shared->budget().set_max_bytes(shared->budget().current() + 8 * kMiB);

  for (int i = 0; i < 3; ++i)
    call(g);

  shared->budget().set_max_bytes(was);
  EXPECT_EQ(g.stats().recordings, 1u);
}

TEST_P(UnrecordedTest, CapturesThatFailKeepNoMemory) {
  bool fails = true;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (fails && current_stream().is_capturing()) {
      (void)floats_of(40);
      throw std::runtime_error("the library is busy");
    }
    return affine(x, 2, 1);
  });
  call(f);
  (void)context().trim();
  const std::uint64_t before = stats().pool_reserved_bytes;
  for (int i = 0; i < 5; ++i)
    call(f);
  (void)context().trim();
  EXPECT_LE(stats().pool_reserved_bytes, before + 4 * kMiB);
}

TEST_P(UnrecordedTest, AnExceptionOfALibraryOnlyInCapturesFailsNoCall) {
  const F f = compile(context(), "f", [](Tensor x) {
    if (current_stream().is_capturing()) throw std::bad_alloc();
    return affine(x, 2, 1);
  });
  for (int i = 0; i < 5; ++i)
    call(f);
  EXPECT_EQ(f.stats().failures, 0u);
}

}  // namespace
}  // namespace cgtree::testing
