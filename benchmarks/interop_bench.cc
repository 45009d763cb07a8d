// Cost of passing a tensor in and out through each protocol, and of calls through C.
//
// Every number is host time per operation, including the release of the last handle. Imports take
// memory that the device knows, with an owner or a deleter; rows with a stream order the two
// streams both ways. BM_Call is a call of a recorded step function with one kernel and one output;
// api:c makes the same call through the C ABI, which should add at most 50 ns.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/support/kernels.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/times.h"
#include "bindings/c/c_api.h"
#include "cgtree/cgtree.h"
#include "interop/device/code.h"
#include "interop/exchange/cuda_array_interface.h"
#include "interop/exchange/dlpack_tensor.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kCalls = 256;  // per sample: the measured operation may take 50 ns

template <typename Row>
void add_row(const std::string& name, const Options& options, int calls, Row row) {
  const Batches batches{.calls = calls, .until_drained = 1, .samples = options.samples};
  batches.apply_to(benchmark::RegisterBenchmark(
      name.c_str(), [batches, row](benchmark::State& state) { row(state, batches); }));
}

void ok(cgt_status status) {
  if (status == CGT_OK) return;
  cgt_error error = {.struct_size = sizeof(error)};
  cgt_last_error(&error);
  throw Error(error.message);
}

Tensor make_tensor(Device device) {
  return empty({16, 64}, DType::kFloat32, device);
}

// The stream that the other library names.
enum class Producer { kNone, kConsumers, kOther };
constexpr std::pair<Producer, const char*> kProducers[] = {
    {Producer::kNone, "none"}, {Producer::kConsumers, "same"}, {Producer::kOther, "other"}};

// Foreign memory, in all forms of the protocols.
struct Foreign {
  Foreign(Device device, Producer producer)
      : consumer(device), other(device), tensor(make_tensor(device)) {
    const StreamRef stream = producer == Producer::kOther ? other.ref() : consumer.ref();
    array = to_cuda_array_interface(tensor, {.is_idle = true});
    std::copy(array.shape.begin(), array.shape.end(), shape.begin());
    c_consumer = {{static_cast<std::int32_t>(device.type), device.id},
                  static_cast<std::uintptr_t>(consumer.ref().handle())};
    c_array.shape = shape.data();
    c_array.data = array.data;
    if (producer == Producer::kNone) return;
    array.stream = static_cast<std::uintptr_t>(stream.handle());
    c_array.flags |= CGT_CAI_HAS_STREAM;
    c_array.stream = *array.stream;
  }

  Stream consumer, other;
  Tensor tensor;
  std::shared_ptr<void> owner = std::make_shared<int>(0);
  CudaArrayInterface array;
  std::array<std::int64_t, 2> shape = {};
  cgt_stream c_consumer = {};
  cgt_cai c_array = {.struct_size = sizeof(cgt_cai),
                     .flags = 0,
                     .version = 3,
                     .ndim = 2,
                     .shape = nullptr,
                     .strides = nullptr,
                     .data = 0,
                     .stream = 0,
                     .typestr = "<f4"};
};

void add_imports(const Options& options) {
  const Device device = options.device;
  for (const auto& [producer, name] : kProducers) {
    add_row(fmt::format("BM_CaiImport/api:cpp/stream:{}", name), options, kCalls,
            [=, producer = producer](benchmark::State& state, const Batches& batches) {
              const Foreign foreign(device, producer);
              HostTime(state, foreign.consumer, batches).measure([&] {
                benchmark::DoNotOptimize(from_cuda_array_interface(
                    foreign.array, foreign.owner, {.consumer = foreign.consumer.ref()}));
              });
            });
    add_row(fmt::format("BM_CaiImport/api:c/stream:{}", name), options, kCalls,
            [=, producer = producer](benchmark::State& state, const Batches& batches) {
              const Foreign foreign(device, producer);
              const cgt_cai_import_options import = {.struct_size = sizeof(import),
                                                     .consumer = &foreign.c_consumer};
              HostTime(state, foreign.consumer, batches).measure([&] {
                cgt_tensor tensor = nullptr;
                ok(cgt_tensor_from_cai(&foreign.c_array, nullptr, nullptr, &import, &tensor));
                ok(cgt_tensor_destroy(tensor));
              });
            });
  }
}

void add_exports(const Options& options) {
  const Device device = options.device;
  for (const bool is_idle : {true, false}) {
    add_row(fmt::format("BM_CaiExport/api:cpp/stream:{}", is_idle ? "none" : "own"), options,
            kCalls, [=](benchmark::State& state, const Batches& batches) {
              const Foreign foreign(device, Producer::kNone);
              const Tensor tensor = from_cuda_array_interface(foreign.array, foreign.owner,
                                                              {.consumer = foreign.consumer.ref()});
              HostTime(state, foreign.consumer, batches).measure([&] {
                benchmark::DoNotOptimize(to_cuda_array_interface(tensor, {.is_idle = is_idle}));
              });
            });
  }
  add_row("BM_CaiExport/api:c/stream:none", options, kCalls,
          [=](benchmark::State& state, const Batches& batches) {
            const Foreign foreign(device, Producer::kNone);
            cgt_tensor tensor = nullptr;
            ok(cgt_tensor_from_cai(&foreign.c_array, nullptr, nullptr, nullptr, &tensor));
            const cgt_cai_export_options idle = {.struct_size = sizeof(idle),
                                                 .flags = CGT_CAI_EXPORT_IDLE};
            HostTime(state, foreign.consumer, batches).measure([&] {
              cgt_cai array = {};
              array.struct_size = sizeof(array);
              ok(cgt_tensor_to_cai(tensor, &idle, &array));
            });
            ok(cgt_tensor_destroy(tensor));
          });
}

// Measures export and import together, because an export must be consumed or deleted.
void add_dlpack(const Options& options) {
  const Device device = options.device;
  constexpr std::intptr_t kNoWait = -1;
  const std::optional<std::intptr_t> stream =
      device.type == DeviceType::kHost ? std::nullopt : std::optional(kNoWait);
  add_row("BM_DlpackExport/api:cpp", options, kCalls,
          [=](benchmark::State& state, const Batches& batches) {
            const Stream order(device);
            const Tensor tensor = make_tensor(device);
            HostTime(state, order, batches).measure([&] {
              benchmark::DoNotOptimize(to_dlpack(tensor, {.stream = stream}));
            });
          });
  add_row(
      "BM_DlpackRoundTrip/api:cpp", options, kCalls,
      [=](benchmark::State& state, const Batches& batches) {
        const Stream order(device);
        const Tensor tensor = make_tensor(device);
        HostTime(state, order, batches).measure([&] {
          benchmark::DoNotOptimize(from_dlpack(to_dlpack(tensor, {.stream = stream}).release()));
        });
      });
  add_row("BM_DlpackRoundTrip/api:c", options, kCalls,
          [=](benchmark::State& state, const Batches& batches) {
            const Stream order(device);
            const cgt_device where = {static_cast<std::int32_t>(device.type), device.id};
            const std::int64_t shape[] = {16, 64};
            cgt_tensor tensor = nullptr;
            ok(cgt_tensor_empty(CGT_FLOAT32, 2, shape, &where, &tensor));
            const cgt_dlpack_export_options out = {
                .struct_size = sizeof(out),
                .flags = stream ? std::uint32_t{CGT_DLPACK_HAS_STREAM} : 0,
                .stream = stream.value_or(0)};
            HostTime(state, order, batches).measure([&] {
              DLManagedTensorVersioned* sent = nullptr;
              cgt_tensor received = nullptr;
              ok(cgt_tensor_to_dlpack(tensor, &out, &sent));
              ok(cgt_tensor_from_dlpack(sent, nullptr, &received));
              ok(cgt_tensor_destroy(received));
            });
            ok(cgt_tensor_destroy(tensor));
          });
}

// trivial_step() through the handles of C.
cgt_status c_step(void*, const cgt_tensor* inputs, std::size_t, cgt_tensor* outputs, std::size_t) {
  const std::int64_t one[] = {1};
  cgt_tensor_info x = {.struct_size = sizeof(x)}, y = {.struct_size = sizeof(y)};
  cgt_stream stream = {};
  ok(cgt_tensor_describe(inputs[0], &x));
  ok(cgt_tensor_empty(CGT_FLOAT32, 1, one, nullptr, &outputs[0]));
  ok(cgt_tensor_describe(outputs[0], &y));
  ok(cgt_current_stream(&stream));
  launch_trivial_kernel(
      StreamRef(Device{static_cast<DeviceType>(stream.device.type), stream.device.id},
                static_cast<StreamHandle>(stream.native)),
      static_cast<float*>(y.data));
  return CGT_OK;
}

void call_in_cpp(Device device, int inputs, benchmark::State& state, const Batches& batches) {
  Context context(device);
  const auto function = compile(
      context, "step", [](std::span<const Tensor> given) { return trivial_step(given); },
      {.inputs = std::vector<InputOptions>(static_cast<std::size_t>(inputs), {.is_static = true})});
  std::vector<Tensor> given;
  for (int i = 0; i < inputs; ++i)
    given.push_back(make_tensor(device));
  for (int i = 0; i < 3; ++i)
    benchmark::DoNotOptimize(function(given));
  HostTime(state, context.stream(), batches).measure([&] {
    benchmark::DoNotOptimize(function(given));
  });
}

void call_in_c(Device device, int inputs, benchmark::State& state, const Batches& batches) {
  const cgt_device where = {static_cast<std::int32_t>(device.type), device.id};
  const cgt_input_options is_static = {.struct_size = sizeof(is_static), .flags = CGT_INPUT_STATIC};
  const std::vector<cgt_input_options> each(static_cast<std::size_t>(inputs), is_static);
  const cgt_function_options options = {
      .struct_size = sizeof(options), .inputs = each.data(), .input_count = each.size()};
  const cgt_step step = {.struct_size = sizeof(step), .output_count = 1, .body = c_step};
  cgt_context context = nullptr;
  cgt_function function = nullptr;
  cgt_stream stream = {};
  ok(cgt_context_create(where, nullptr, &context));
  ok(cgt_compile(context, "step", &step, &options, &function));
  ok(cgt_context_stream(context, &stream));
  const std::int64_t shape[] = {16, 64};
  std::vector<cgt_tensor> given(each.size());
  for (cgt_tensor& tensor : given)
    ok(cgt_tensor_empty(CGT_FLOAT32, 2, shape, &where, &tensor));
  const auto call = [&] {
    cgt_tensor output = nullptr;
    ok(cgt_call(function, given.data(), given.size(), &output, 1));
    ok(cgt_tensor_destroy(output));
  };
  for (int i = 0; i < 3; ++i)
    call();
  HostTime(state, StreamRef(device, static_cast<StreamHandle>(stream.native)), batches)
      .measure(call);
  for (const cgt_tensor tensor : given)
    ok(cgt_tensor_destroy(tensor));
  ok(cgt_function_destroy(function));
  ok(cgt_context_destroy(context));
}

void add_calls(const Options& options) {
  const Device device = options.device;
  for (const int inputs : {1, 16, 300}) {
    add_row(fmt::format("BM_Call/api:cpp/inputs:{}", inputs), options, 64,
            [=](benchmark::State& state, const Batches& batches) {
              call_in_cpp(device, inputs, state, batches);
            });
    add_row(fmt::format("BM_Call/api:c/inputs:{}", inputs), options, 64,
            [=](benchmark::State& state, const Batches& batches) {
              call_in_c(device, inputs, state, batches);
            });
  }
}

void add_rows(const Options& options) {
  add_imports(options);
  add_exports(options);
  add_dlpack(options);
  add_calls(options);
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  return cgtree::benchmarks::run_program(
      argc, argv,
      {"What does it cost to take tensors in and out, and to call through C?",
       &cgtree::benchmarks::add_rows});
}
