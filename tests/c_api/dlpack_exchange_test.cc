// DLPack's exchange table through C, as a kernel library uses it.
#include "interop/device/graph_api.h"
#include "interop/exchange/dlpack.h"
#include "tests/c_api/step_fixture.h"
#include "tests/interop/foreign_dlpack.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;

const dlpack::Exchange& table() {
  return *reinterpret_cast<const dlpack::Exchange*>(cgt_dlpack_exchange_api());
}

class CApiExchangeTest : public CStepTest {
 protected:
  dlpack::DeviceRef place() const { return {static_cast<std::int32_t>(device().type), 0}; }

  // y = 2x + 1 in a library that uses only DLPack and the table, and launches on the stream that
  // the table names.
  static int affine_of_a_library(const dlpack::Exchange& exchange, void* x_object,
                                 void** y_object) {
    dlpack::TensorView x = {};
    dlpack::ManagedVersioned* y = nullptr;
    void* stream = nullptr;
    if (exchange.view_of_object(x_object, &x) != 0) return -1;
    const auto no_error = [](void*, const char*, const char* message) { ADD_FAILURE() << message; };
    if (exchange.allocate(&x, &y, nullptr, no_error) != 0) return -1;
    if (exchange.current_stream(x.device.type, x.device.id, &stream) != 0) return -1;
    // DLPack has no number for the host device's stream.
    const StreamRef where =
        stream == nullptr
            ? current()
            : StreamRef({static_cast<DeviceType>(x.device.type), x.device.id},
                        static_cast<StreamHandle>(reinterpret_cast<std::uintptr_t>(stream)));
    EXPECT_EQ(where, current());
    const float one = 1, two = 2;
    const std::int64_t count = x.shape[0];
    check(where.graphs().launch_kernel(where.handle(), fill_kernel(), dims_for(count),
                                       arguments_of(y->tensor.data, one, count)),
          "fill");
    check(where.graphs().launch_kernel(where.handle(), axpy_kernel(), dims_for(count),
                                       arguments_of(two, x.data, y->tensor.data, count)),
          "axpy");
    return exchange.to_object(y, y_object);
  }
};
CGTREE_ON_ALL_DEVICES(CApiExchangeTest);

TEST_P(CApiExchangeTest, TheTableIsOfDlpacksVersionAndAlwaysTheSame) {
  EXPECT_EQ(table().header.version.major, 1u);
  EXPECT_GE(table().header.version.minor, 2u);
  EXPECT_EQ(table().header.previous, nullptr);
  EXPECT_EQ(cgt_dlpack_exchange_api(), cgt_dlpack_exchange_api());
}

// DL 17.
TEST_P(CApiExchangeTest, AStepOfALibrarysKernelsIsReplayed) {
  int runs = 0;
  const OwnedFunction function =
      compile([&](const cgt_tensor* inputs, std::size_t, cgt_tensor* outputs, std::size_t) {
        ++runs;
        const int status =
            affine_of_a_library(table(), inputs[0], reinterpret_cast<void**>(outputs));
        return status == 0 ? CGT_OK : CGT_USER_STATUS;
      });
  expect_to_work(function);
  EXPECT_EQ(runs, 2);
}

TEST_P(CApiExchangeTest, HandlesGoOutAndComeBackWithTheirMemory) {
  OwnedTensor x = make_tensor_of(device(), {1, 2, 3});
  void* const data = info_of(x).data;
  dlpack::ManagedVersioned* out = nullptr;
  ASSERT_EQ(table().from_object(x, &out), 0);
  EXPECT_EQ(out->tensor.data, data);
  EXPECT_EQ(out->tensor.device.type, place().type);
  x.reset();
  OwnedTensor back;
  ASSERT_EQ(table().to_object(out, reinterpret_cast<void**>(back.out())), 0);
  EXPECT_EQ(info_of(back).data, data);
  EXPECT_THAT(values_of(back), ElementsAre(1, 2, 3));
}

TEST_P(CApiExchangeTest, TheAllocatorReportsThroughItsCallbackAndWhatItGaveMayBeDropped) {
  std::string told;
  const auto tell = [](void* told, const char* kind, const char* message) {
    *static_cast<std::string*>(told) += std::string(kind) + ": " + message + ";";
  };
  ForeignVersioned prototype(nullptr, place(), {2, 3}, {});
  prototype.managed.tensor.strides = nullptr;  // must not be read
  dlpack::ManagedVersioned* out = nullptr;
  ASSERT_EQ(table().allocate(&prototype.managed.tensor, &out, &told, tell), 0);
  EXPECT_EQ(out->tensor.shape[1], 3);
  EXPECT_EQ(out->tensor.strides[0], 3);
  out->deleter(out);
  // A changed tensor is imported like any other.
  ASSERT_EQ(table().allocate(&prototype.managed.tensor, &out, &told, tell), 0);
  out->tensor.byte_offset = 4;
  out->tensor.ndim = 0;
  void* const data = out->tensor.data;
  OwnedTensor second;
  ASSERT_EQ(table().to_object(out, reinterpret_cast<void**>(second.out())), 0);
  EXPECT_EQ(info_of(second).data, static_cast<char*>(data) + 4);
  EXPECT_EQ(told, "");

  EXPECT_EQ(table().allocate(&prototype.managed.tensor, nullptr, &told, tell), -1);
  EXPECT_THAT(told, ::testing::HasSubstr("is NULL"));
  told = "";
  out = nullptr;
  prototype.shape[0] = -1;
  EXPECT_EQ(table().allocate(&prototype.managed.tensor, &out, &told, tell), -1);
  EXPECT_THAT(told, ::testing::StartsWith("BufferError: "));
  told = "";
  prototype.shape[0] = std::int64_t{1} << 50;
  EXPECT_EQ(table().allocate(&prototype.managed.tensor, &out, &told, tell), -1);
  EXPECT_THAT(told, ::testing::StartsWith("MemoryError: "));
  told = "";
  prototype.managed.tensor.shape = nullptr;
  EXPECT_EQ(table().allocate(&prototype.managed.tensor, &out, &told, tell), -1);
  EXPECT_THAT(told, ::testing::HasSubstr("the prototype's shape is NULL"));
  EXPECT_EQ(table().allocate(nullptr, &out, &told, nullptr), -1);
  EXPECT_EQ(out, nullptr);
}

TEST_P(CApiExchangeTest, ViewsBorrowShapeAndStrides) {
  const OwnedTensor x = make_tensor(device(), {4, 6});
  OwnedTensor turned, none;
  EXPECT_DONE(cgt_tensor_transpose(x, 0, 1, turned.out()));
  dlpack::TensorView view = {};
  ASSERT_EQ(table().view_of_object(turned, &view), 0);
  EXPECT_EQ(view.data, info_of(x).data);
  EXPECT_EQ(view.ndim, 2);
  EXPECT_EQ(view.shape[0], 6);
  EXPECT_EQ(view.strides[0], 1);
  EXPECT_EQ(view.strides[1], 6);
  EXPECT_EQ(view.dtype.bits, 32);
  EXPECT_EQ(view.byte_offset, 0u);
  const std::int64_t zero = 0;
  const cgt_device where = c_device(device());
  EXPECT_DONE(cgt_tensor_empty(CGT_INT64, 1, &zero, &where, none.out()));
  ASSERT_EQ(table().view_of_object(none, &view), 0);
  EXPECT_EQ(view.data, nullptr);
}

TEST_P(CApiExchangeTest, ObjectsWithoutTensorsAreNamedAndStolenTensorsDeletedOnce) {
  dlpack::ManagedVersioned* out = nullptr;
  dlpack::TensorView view = {};
  const OwnedTensor x = make_tensor(device(), {2});
  EXPECT_EQ(table().from_object(nullptr, &out), -1);
  EXPECT_EQ(last_error().status, CGT_INVALID_HANDLE);
  EXPECT_THAT(last_error().message, ::testing::HasSubstr("the object is NULL"));
  EXPECT_EQ(table().view_of_object(&view, &view), -1);
  EXPECT_EQ(last_error().status, CGT_INVALID_HANDLE);
  EXPECT_EQ(table().from_object(x, nullptr), -1);
  EXPECT_EQ(table().view_of_object(x, nullptr), -1);
  EXPECT_EQ(out, nullptr);
  ForeignVersioned foreign(info_of(x).data, place(), {2}, {1});
  foreign.managed.tensor.dtype.lanes = 2;
  void* object = nullptr;
  EXPECT_EQ(table().to_object(&foreign.managed, &object), -1);
  EXPECT_EQ(last_error().status, CGT_NOT_SUPPORTED);
  EXPECT_EQ(table().to_object(&foreign.managed, nullptr), -1);
  EXPECT_EQ(foreign.deleted, 2);
  EXPECT_EQ(table().to_object(nullptr, &object), -1);
  EXPECT_EQ(object, nullptr);
}

}  // namespace
}  // namespace cgtree::testing
