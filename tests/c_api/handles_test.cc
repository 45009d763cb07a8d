// Handles through C: wrong and destroyed ones, other threads, and the table behind them.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "bindings/c/handle_table.h"
#include "tests/c_api/c_tools.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Device kHost = Device::host();

class HandlesTest : public ::testing::Test {
 protected:
  void SetUp() override { live_ = cgt_live_handles(); }
  void TearDown() override { EXPECT_EQ(cgt_live_handles(), live_); }

  std::size_t live_ = 0;
};

TEST_F(HandlesTest, ADestroyedHandleIsNamedEvenWhenItsPlaceIsUsedAgain) {
  const cgt_tensor gone = make_tensor(kHost, {2}).release();
  EXPECT_DONE(cgt_tensor_destroy(gone));
  const OwnedTensor next = make_tensor(kHost, {3});

  EXPECT_NE(static_cast<cgt_tensor>(next), gone);
  cgt_tensor_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_FAILS(cgt_tensor_describe(gone, &info), CGT_INVALID_HANDLE, "a tensor that was destroyed");
  EXPECT_FAILS(cgt_tensor_destroy(gone), CGT_INVALID_HANDLE, "a tensor that was destroyed");
}

TEST_F(HandlesTest, AHandleOfAnotherKindIsNamedAsWhatItIs) {
  OwnedContext context;
  EXPECT_DONE(cgt_context_create(c_device(kHost), nullptr, context.out()));
  const OwnedTensor tensor = make_tensor(kHost, {2});

  const auto as_tensor = reinterpret_cast<cgt_tensor>(static_cast<cgt_context>(context));
  EXPECT_FAILS(cgt_tensor_destroy(as_tensor), CGT_INVALID_HANDLE,
               "the handle of a context: expected a tensor");
  const auto as_context = reinterpret_cast<cgt_context>(static_cast<cgt_tensor>(tensor));
  EXPECT_FAILS(cgt_context_mark_step(as_context), CGT_INVALID_HANDLE,
               "the handle of a tensor: expected a context");
}

TEST_F(HandlesTest, AnAddressOrANumberIsNoHandle) {
  int something = 0;
  EXPECT_FAILS(cgt_tensor_destroy(reinterpret_cast<cgt_tensor>(&something)), CGT_INVALID_HANDLE,
               "the handle of nothing");
  for (const std::uintptr_t number :
       {std::uintptr_t{1}, ~std::uintptr_t{0}, std::uintptr_t{3} << 60,
        (std::uintptr_t{3} << 60) + 0xffffff}) {
    EXPECT_FAILS(cgt_tensor_destroy(reinterpret_cast<cgt_tensor>(number)), CGT_INVALID_HANDLE,
                 "the tensor is 0x");
  }
}

TEST_F(HandlesTest, NullIsDestroyedInPeaceAndRefusedElsewhere) {
  EXPECT_DONE(cgt_tensor_destroy(nullptr));
  EXPECT_DONE(cgt_context_destroy(nullptr));
  EXPECT_DONE(cgt_function_destroy(nullptr));
  EXPECT_FAILS(cgt_context_mark_step(nullptr), CGT_INVALID_HANDLE, "the context is NULL");
  EXPECT_FAILS(cgt_tensor_copy(nullptr, nullptr, nullptr), CGT_INVALID_HANDLE,
               "the destination is NULL");
}

TEST_F(HandlesTest, SharedTensorsEndWithTheLastHandle) {
  OwnedTensor first = make_tensor_of(kHost, {1, 2, 3, 4});
  OwnedTensor shared, view;
  EXPECT_DONE(cgt_tensor_share(first, shared.out()));
  EXPECT_DONE(cgt_tensor_slice(first, 0, 1, 3, view.out()));

  first.reset();
  EXPECT_THAT(values_of(view), ElementsAre(2, 3));
  EXPECT_THAT(values_of(shared), ElementsAre(1, 2, 3, 4));
}

TEST_F(HandlesTest, ThreadsMakeAndDestroySideBySide) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 300; ++i) {
        const std::int64_t size = 1 + thread * 1000 + i;
        const OwnedTensor tensor = make_tensor(kHost, {size});
        OwnedTensor view;
        EXPECT_DONE(cgt_tensor_share(tensor, view.out()));
        if (info_of(view).elements != size) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(HandlesTest, OneOfManyThreadsDestroysAHandle) {
  for (int round = 0; round < 100; ++round) {
    OwnedContext context;
    EXPECT_DONE(cgt_context_create(c_device(kHost), nullptr, context.out()));
    const cgt_context shared = context.release();
    std::atomic<int> done = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        (void)cgt_context_synchronize(shared);  // succeeds, or is refused
        if (cgt_context_destroy(shared) == CGT_OK) ++done;
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    ASSERT_EQ(done, 1);
  }
}

TEST_F(HandlesTest, ErrorsAreOfTheirThread) {
  EXPECT_FAILS(cgt_context_mark_step(nullptr), CGT_INVALID_HANDLE, "is NULL");
  std::thread([] {
    EXPECT_EQ(last_error().status, CGT_OK);
    EXPECT_STREQ(last_error().message, "");
  }).join();
  EXPECT_EQ(last_error().status, CGT_INVALID_HANDLE);
  EXPECT_THAT(last_error().where, HasSubstr(".cc:"));
}

// A table is static for its type, so that each test needs another type.
template <int Test>
struct Kept {
  std::shared_ptr<int> number;
};
template <int Test>
using Table =
    capi::HandleTable<Kept<Test>, cgt_tensor, capi::HandleKind::kTensor, capi::Keeping::kPins>;

std::uint64_t index_of(cgt_tensor handle) {
  return capi::number_of(handle) % (1u << capi::kIndexBits);
}

TEST(HandleTableTest, AnObjectLivesUntilTheLastPin) {
  using Numbers = Table<1>;
  auto object = std::make_shared<int>(7);
  const cgt_tensor handle = Numbers::make(object);
  {
    const auto pin = Numbers::pin(handle);
    Numbers::destroy(handle);
    EXPECT_THROW((void)Numbers::pin(handle), capi::HandleError);
    EXPECT_EQ(*pin->number, 7);
    EXPECT_EQ(object.use_count(), 2);
  }
  EXPECT_EQ(object.use_count(), 1);
  EXPECT_EQ(Numbers::live(), 0u);
}

TEST(HandleTableTest, NoHandleIsGivenTwice) {
  using Numbers = Table<2>;
  std::vector<cgt_tensor> handles;
  for (int i = 0; i < 5000; ++i) {
    handles.push_back(Numbers::make(std::make_shared<int>(i)));
    if (i % 3 != 0) Numbers::destroy(handles.back());
  }
  for (int i = 0; i < 5000; ++i) {
    if (i % 3 == 0) {
      EXPECT_EQ(*Numbers::get(handles[static_cast<std::size_t>(i)]).number, i);
    } else {
      EXPECT_EQ(Numbers::find(handles[static_cast<std::size_t>(i)]), nullptr);
    }
  }
  std::sort(handles.begin(), handles.end());
  EXPECT_EQ(std::adjacent_find(handles.begin(), handles.end()), handles.end());
  for (int i = 0; i < 5000; ++i) {
    const cgt_tensor handle = handles[static_cast<std::size_t>(i)];
    if (Numbers::find(handle) != nullptr) Numbers::destroy(handle);
  }
}

TEST(HandleTableTest, APlaceWithoutItsKindIsNoHandle) {
  using Numbers = Table<3>;
  constexpr std::uint64_t kWithoutKind = ~std::uint64_t{0} >> 4;
  const cgt_tensor live = Numbers::make(std::make_shared<int>(1));
  const cgt_tensor ended = Numbers::make(std::make_shared<int>(2));
  Numbers::destroy(ended);
  constexpr std::uint64_t kNextGeneration = std::uint64_t{1} << capi::kIndexBits;

  for (const std::uint64_t word :
       {capi::number_of(live), capi::number_of(ended), capi::number_of(ended) + kNextGeneration}) {
    const auto forged = reinterpret_cast<cgt_tensor>(word & kWithoutKind);
    EXPECT_EQ(Numbers::find(forged), nullptr);
    EXPECT_THROW(Numbers::destroy(forged), capi::HandleError);
    EXPECT_THROW((void)Numbers::pin(forged), capi::HandleError);
    const std::array<cgt_tensor, 2> handles = {live, forged};
    std::array<std::shared_ptr<int>*, 2> found = {};
    EXPECT_EQ(
        Numbers::find_all(handles, found.data(), [](Kept<3>& object) { return &object.number; }),
        1u);
    EXPECT_EQ(**found[0], 1);
  }
  Numbers::destroy(live);
}

TEST(HandleTableTest, ThreadsThatEndLeaveTheirPlacesToOthers) {
  using Numbers = Table<4>;
  std::uint64_t last_index = 0;
  for (int round = 0; round < 200; ++round) {
    std::thread([&] {
      std::vector<cgt_tensor> handles;
      for (int i = 0; i < 100; ++i) {
        handles.push_back(Numbers::make(std::make_shared<int>(i)));
        last_index = std::max(last_index, index_of(handles.back()));
      }
      for (const cgt_tensor handle : handles)
        Numbers::destroy(handle);
    }).join();
  }
  EXPECT_LT(last_index, 100u);
  EXPECT_EQ(Numbers::live(), 0u);
}

}  // namespace
}  // namespace cgtree::testing
