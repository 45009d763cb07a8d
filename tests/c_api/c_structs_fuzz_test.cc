// Fuzzes C structs of the CUDA Array Interface, DLPack, dynamic axes, precapture and generators.
// With any fields, they are accepted or refused by name, user data is released once, and no handle
// is left.
//
// Pointers are not random: the input decides which arrays exist, and their lengths.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "bindings/c/c_api.h"
#include "interop/exchange/dlpack.h"
#include "tests/c_api/fuzz_input.h"

namespace {

using namespace cgtree;
using namespace cgtree::testing;

// Returns 4 KiB of the host device's memory, allocated for the whole run.
unsigned char* memory() {
  static unsigned char* const data = [] {
    const cgt_device host = {CGT_DEVICE_HOST, 0};
    const std::int64_t size = 4096;
    cgt_tensor tensor = nullptr;
    cgt_tensor_info info = {};
    info.struct_size = sizeof(info);
    CGTREE_CHECK(cgt_tensor_empty(CGT_UINT8, 1, &size, &host, &tensor) == CGT_OK);
    CGTREE_CHECK(cgt_tensor_describe(tensor, &info) == CGT_OK);
    return static_cast<unsigned char*>(info.data);
  }();
  return data;
}

void expect_consistent(cgt_status status, cgt_tensor tensor) {
  if (status != CGT_OK) {
    CGTREE_CHECK(tensor == nullptr);
    return expect_named(status);
  }
  cgt_tensor_info info = {};
  info.struct_size = sizeof(info);
  CGTREE_CHECK(cgt_tensor_describe(tensor, &info) == CGT_OK);
  CGTREE_CHECK(info.elements >= 0 && info.ndim >= 0 && info.ndim <= 8);
  cgt_cai array = {};
  array.struct_size = sizeof(array);
  CGTREE_CHECK(cgt_tensor_to_cai(tensor, nullptr, &array) == CGT_OK);
  CGTREE_CHECK(cgt_tensor_destroy(tensor) == CGT_OK);
}

void fuzz_cai(Input& input) {
  cgt_cai array = {};
  const auto has = input.take<std::uint8_t>();
  array.struct_size = (has & 1) != 0 ? input.take<std::uint32_t>() % sizeof(array) : sizeof(array);
  array.flags = (has & 2) != 0 ? input.take<std::uint32_t>() : input.take<std::uint8_t>() & 15u;
  array.version = input.take<std::int8_t>();
  array.ndim = input.take<std::int8_t>();
  array.stream = (has & 4) != 0 ? input.take<std::uint8_t>() % 3 : 0;
  array.data = (has & 8) != 0
                   ? input.take<std::uint64_t>()
                   : reinterpret_cast<std::uint64_t>(memory()) + input.take<std::uint8_t>();
  for (char& letter : array.typestr)
    letter = static_cast<char>(input.take<std::uint8_t>());
  const Numbers shape(input), strides(input);
  array.shape = (has & 16) != 0 ? nullptr : shape.values;
  array.strides = (has & 32) != 0 ? nullptr : strides.values;
  cgt_cai_import_options options = {};
  options.struct_size = sizeof(options);
  options.sync = input.take<std::int8_t>() % 6;
  options.dtype = input.take<std::int8_t>() % 15;
  const cgt_stream consumer = {{CGT_DEVICE_HOST, 0}, 1};
  options.consumer = &consumer;
  int released = 0;
  cgt_tensor tensor = nullptr;
  const cgt_status status = cgt_tensor_from_cai(&array, &released, count, &options, &tensor);
  expect_consistent(status, tensor);
  CGTREE_CHECK(released == 1);
}

void fuzz_dlpack(Input& input) {
  dlpack::ManagedVersioned managed = {};
  int released = 0;
  const auto has = input.take<std::uint8_t>();
  const Numbers shape(input), strides(input);
  managed.version = {1u + (input.take<std::uint8_t>() % 8 == 7), input.take<std::uint8_t>() % 5u};
  managed.flags = input.take<std::uint8_t>();
  managed.context = &released;
  managed.deleter = [](dlpack::ManagedVersioned* self) { count(self->context); };
  dlpack::TensorView& view = managed.tensor;
  view.data = (has & 1) != 0 ? nullptr : memory() + input.take<std::uint8_t>();
  view.device = {(has & 2) != 0 ? input.take<std::int8_t>() : 1, input.take<std::int8_t>()};
  if (view.device.type == dlpack::kCuda) view.device.type = 1;  // no made-up address on a GPU
  view.ndim = input.take<std::int8_t>();
  view.dtype = {input.take<std::uint8_t>(), input.take<std::uint8_t>(),
                static_cast<std::uint16_t>((has & 4) != 0 ? input.take<std::uint16_t>() : 1)};
  view.shape = (has & 8) != 0 ? nullptr : const_cast<std::int64_t*>(shape.values);
  view.strides = (has & 16) != 0 ? nullptr : const_cast<std::int64_t*>(strides.values);
  view.byte_offset = (has & 32) != 0 ? input.take<std::uint64_t>() : input.take<std::uint8_t>();
  cgt_tensor tensor = nullptr;
  const cgt_status status = cgt_tensor_from_dlpack(
      reinterpret_cast<DLManagedTensorVersioned*>(&managed), nullptr, &tensor);
  expect_consistent(status, tensor);
  CGTREE_CHECK(released == 1);
}

// Makes a float tensor of these sizes, if none is large.
cgt_status make_input(void*, const cgt_axis_size* sizes, std::size_t size_count, cgt_tensor* inputs,
                      std::size_t input_count) {
  const cgt_device host = {CGT_DEVICE_HOST, 0};
  std::int64_t shape[8];
  for (std::size_t i = 0; i < size_count; ++i)
    shape[i] = std::min<std::int64_t>(sizes[i].size, 9);
  for (std::size_t i = 0; i < input_count; ++i) {
    if (const cgt_status status = cgt_tensor_empty(
            CGT_FLOAT32, static_cast<std::int32_t>(size_count), shape, &host, &inputs[i])) {
      return status;
    }
  }
  return CGT_OK;
}

cgt_status first_input(void*, const cgt_tensor* inputs, std::size_t input_count,
                       cgt_tensor* outputs, std::size_t output_count) {
  if (input_count == 0 || output_count == 0) return CGT_OK;
  return cgt_tensor_share(inputs[0], &outputs[0]);
}

// Makes two calls and a precapture of a fuzzed function, with any outcome, in order.
void expect_usable(cgt_function function, Input& input) {
  const Numbers sizes(input);
  const cgt_precapture_values wanted = {
      sizeof(wanted), "n", sizes.values, input.take<std::uint8_t>() % 3u, nullptr, 0};
  cgt_precapture_options precapture = {};
  precapture.struct_size = sizeof(precapture);
  precapture.input_count = input.take<std::uint8_t>() % 3;
  precapture.make_inputs = make_input;
  precapture.sizes = &wanted;
  precapture.size_count = input.take<std::uint8_t>() % 2;
  const cgt_status status = cgt_function_precapture(function, &precapture, nullptr);
  if (status != CGT_OK) expect_named(status);
  for (int i = 0; i < 2; ++i) {
    const cgt_axis_size given[] = {{"n", input.take<std::uint8_t>() % 9}, {"m", 2}};
    cgt_tensor x = nullptr, y = nullptr;
    CGTREE_CHECK(make_input(nullptr, given, input.take<std::uint8_t>() % 3u, &x, 1) == CGT_OK);
    const cgt_status called = cgt_call(function, &x, 1, &y, 1);
    if (called != CGT_OK) expect_named(called);
    CGTREE_CHECK((called == CGT_OK) == (y != nullptr));
    CGTREE_CHECK(cgt_tensor_destroy(x) == CGT_OK && cgt_tensor_destroy(y) == CGT_OK);
  }
}

void fuzz_axes(Input& input) {
  const Numbers sizes(input);
  cgt_axis_use uses[4];
  for (cgt_axis_use& use : uses) {
    const auto wide = input.take<std::int8_t>();
    use = {wide == 127 ? input.take<std::uint32_t>() : wide % 2u, input.take<std::int8_t>() % 4};
  }
  const cgt_axis_options axes[] = {take_axis(input, "n", sizes, uses),
                                   take_axis(input, "m", sizes, uses)};
  cgt_input_options inputs = {};
  inputs.struct_size = sizeof(inputs);
  inputs.flags = input.take<std::uint8_t>() % 5;
  inputs.padding = input.take<std::int8_t>() % 6;
  inputs.padding_value = input.take<double>();
  cgt_function_options options = {};
  options.struct_size = sizeof(options);
  options.inputs = &inputs;
  options.input_count = input.take<std::uint8_t>() % 2u;
  options.axes = axes;
  options.axis_count = input.take<std::uint8_t>() % 3u;
  options.while_missing = input.take<std::int8_t>() % 4;
  options.on_static_change = input.take<std::int8_t>() % 4;
  int released = 0;
  const cgt_step step = {sizeof(step), 1, first_input, &released, count};
  cgt_function function = nullptr;
  const cgt_status status = cgt_compile(fuzzed_context(), "f", &step, &options, &function);
  if (status == CGT_OK) {
    expect_usable(function, input);
    CGTREE_CHECK(cgt_function_destroy(function) == CGT_OK);
  } else {
    expect_named(status);
    CGTREE_CHECK(function == nullptr);
  }
  CGTREE_CHECK(released == 1);
}

void fuzz_generator(Input& input) {
  cgt_generator generator = nullptr;
  CGTREE_CHECK(cgt_generator_create(input.take<std::uint64_t>(), &generator) == CGT_OK);
  for (int i = 0; i < 4; ++i) {
    cgt_generator_state state = {}, found = {};
    const auto has = input.take<std::uint8_t>();
    state.struct_size =
        (has & 1) != 0 ? input.take<std::uint32_t>() % sizeof(state) : sizeof(state);
    state.seed = input.take<std::uint64_t>();
    state.offset = input.take<std::uint64_t>();
    state.recording = (has & 2) != 0 ? input.take<std::uint64_t>() : 0;
    found.struct_size = sizeof(found);
    const cgt_status status = cgt_generator_set_state(generator, &state);
    if (status != CGT_OK) expect_named(status);
    cgt_philox_range range = {};
    CGTREE_CHECK(cgt_generator_reserve(generator, input.take<std::uint64_t>(), &range) == CGT_OK);
    CGTREE_CHECK(status != CGT_OK || (range.seed == state.seed && range.offset == state.offset));
    CGTREE_CHECK(cgt_generator_get_state(generator, &found) == CGT_OK && found.recording == 0);
  }
  CGTREE_CHECK(cgt_generator_destroy(generator) == CGT_OK);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input{data, size};
  (void)memory();
  (void)fuzzed_context();
  switch (input.take<std::uint8_t>() % 4) {
    case 0:
      fuzz_cai(input);
      break;
    case 1:
      fuzz_dlpack(input);
      break;
    case 2:
      fuzz_axes(input);
      break;
    default:
      fuzz_generator(input);
  }
  CGTREE_CHECK(cgt_live_handles() == 2);
  return 0;
}
