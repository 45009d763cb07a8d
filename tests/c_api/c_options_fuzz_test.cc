// Fuzzes keys, and options of contexts, functions and steps, in C. With any fields, they are
// accepted or refused by name, user data is released once, and no handle is left.
//
// Pointers are not random: the input decides which arrays exist, and their lengths.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "bindings/c/c_api.h"
#include "tests/c_api/fuzz_input.h"

namespace {

using namespace cgtree::testing;

constexpr cgt_device kHost = {CGT_DEVICE_HOST, 0};

// A name or a value in memory of exactly its size, so that a sanitizer reports reads behind it.
class Text {
 public:
  explicit Text(Input& input) : is_null_(input.take<std::uint8_t>() % 8 == 0) {
    const std::size_t length = input.take<std::uint8_t>() % 140u;
    text_ = std::make_unique<char[]>(length + 1);
    for (std::size_t i = 0; i < length; ++i) {
      const auto letter = input.take<std::uint8_t>();
      text_[i] = static_cast<char>(letter < 128 ? 'a' + letter % 26 : letter);
    }
    text_[length] = '\0';
  }
  const char* get() const { return is_null_ ? nullptr : text_.get(); }
  // Returns a number of its bytes, or 0 for a text that ends with a 0.
  std::size_t take_bytes(Input& input) const {
    const std::size_t length = std::strlen(text_.get());
    return length == 0 || input.take<std::uint8_t>() % 2 == 0
               ? 0
               : input.take<std::uint8_t>() % (length + 1);
  }

 private:
  bool is_null_;
  std::unique_ptr<char[]> text_;
};

// Returns the first flag sometimes, and rarely another.
std::uint32_t take_flags(Input& input) {
  const auto byte = input.take<std::uint8_t>();
  return byte % 32 == 31 ? 1u << byte % 7 : byte % 4 / 3;
}

// The key that the step function sees.
struct SeenKey {
  const cgt_key_part* parts = nullptr;
  std::size_t count = 0;
};

cgt_status see_key(void* user, const cgt_tensor* inputs, std::size_t, cgt_tensor* outputs,
                   std::size_t) {
  const auto& seen = *static_cast<const SeenKey*>(user);
  for (std::size_t i = 0; i < seen.count; ++i) {
    const cgt_key_part& part = seen.parts[i];
    std::int64_t number = 0;
    const char* text = nullptr;
    const bool is_n = std::strcmp(part.name, "n") == 0;  // the value of "n" may be rounded up
    if (part.text == nullptr) {
      CGTREE_CHECK(cgt_current_key_number(part.name, &number) == CGT_OK);
      CGTREE_CHECK(number == part.number || (is_n && number > part.number));
    } else {
      CGTREE_CHECK(cgt_current_key_text(part.name, &text) == CGT_OK);
      const std::size_t length = std::strlen(text);
      CGTREE_CHECK(length == (part.text_bytes > 0 ? part.text_bytes : std::strlen(part.text)));
      CGTREE_CHECK(std::strncmp(text, part.text, length) == 0);
    }
  }
  return cgt_tensor_share(inputs[0], &outputs[0]);
}

// Parts with any names and values; the function may round a part "n" up.
void fuzz_key(Input& input) {
  const Numbers sizes(input);
  const cgt_axis_use use = {};
  SeenKey seen;
  const cgt_step step = {sizeof(step), 1, see_key, &seen, nullptr};
  const cgt_axis_options rounded = take_axis(input, "n", sizes, &use);
  cgt_function_options options = {};
  options.struct_size = sizeof(options);
  options.keys = &rounded;
  options.key_count = input.take<std::uint8_t>() % 2u;
  options.max_waste = input.take<std::uint8_t>() % 4 == 0 ? input.take<double>() : 0;
  cgt_axis_options plain = rounded;  // axes of a key have no inputs or outputs
  plain.inputs = plain.outputs = nullptr;
  plain.input_count = plain.output_count = 0;
  if (input.take<std::uint8_t>() % 4 != 0) options.keys = &plain;
  cgt_function function = nullptr;
  const cgt_status compiled = cgt_compile(fuzzed_context(), "k", &step, &options, &function);
  if (compiled != CGT_OK) return expect_named(compiled);
  const std::int64_t shape = 4;
  cgt_tensor x = nullptr;
  CGTREE_CHECK(cgt_tensor_empty(CGT_FLOAT32, 1, &shape, &kHost, &x) == CGT_OK);
  for (int call = 0; call < 3; ++call) {
    constexpr std::size_t kMost = 4;
    std::vector<Text> texts;
    for (std::size_t i = 0; i < 2 * kMost; ++i)
      texts.emplace_back(input);
    cgt_key_part parts[kMost];
    for (std::size_t i = 0; i < kMost; ++i) {
      const bool is_n = input.take<std::uint8_t>() % 3 == 0;
      const bool is_text = input.take<std::uint8_t>() % 2 == 0;
      parts[i] = {sizeof(cgt_key_part),
                  take_flags(input),
                  is_n ? "n" : texts[2 * i].get(),
                  is_text ? texts[2 * i + 1].get() : nullptr,
                  is_n ? input.take<std::int8_t>() : input.take<std::int64_t>(),
                  texts[2 * i + 1].take_bytes(input)};
    }
    seen = {parts, input.take<std::uint8_t>() % (kMost + 1)};
    const bool has_parts = seen.count > 0 || input.take<std::uint8_t>() % 2 == 0;
    cgt_tensor y = nullptr;
    const char* why = nullptr;
    const cgt_status told =
        cgt_function_explain(function, has_parts ? parts : nullptr, seen.count, &x, 1, &why);
    const cgt_status called =
        cgt_call_keyed(function, has_parts ? parts : nullptr, seen.count, &x, 1, nullptr, 0, &y, 1);
    if (called != CGT_OK) expect_named(called);
    CGTREE_CHECK((called == CGT_OK) == (y != nullptr));
    CGTREE_CHECK((called == CGT_OK) == (told == CGT_OK));
    CGTREE_CHECK(cgt_tensor_destroy(y) == CGT_OK);
  }
  CGTREE_CHECK(cgt_tensor_destroy(x) == CGT_OK && cgt_function_destroy(function) == CGT_OK);
}

void fuzz_context(Input& input) {
  cgt_context_options options = {};
  const auto has = input.take<std::uint8_t>();
  options.struct_size =
      (has & 1) != 0 ? input.take<std::uint32_t>() % sizeof(options) : sizeof(options);
  options.flags = (has & 2) != 0 ? input.take<std::uint32_t>() : input.take<std::uint8_t>() & 31u;
  const Text name(input);
  const cgt_stream stream = {{CGT_DEVICE_HOST, input.take<std::int8_t>()},
                             input.take<std::uint8_t>() % 3u};
  options.stream = (has & 4) != 0 ? &stream : nullptr;
  options.max_bytes = input.take<std::uint32_t>();
  options.max_recordings = input.take<std::uint8_t>();
  options.max_graph_bytes = input.take<std::uint64_t>();
  options.max_recording_microseconds = input.take<std::uint64_t>();
  options.at_limit = input.take<std::int8_t>() % 5;
  options.on_foreign_pointer = input.take<std::int8_t>() % 5;
  options.verify_every = input.take<std::uint8_t>() % 4;
  options.time_every_nth_replay = input.take<std::uint8_t>() % 4;
  options.name = (has & 8) != 0 ? name.get() : nullptr;
  int released = 0;
  options.release = count;
  options.owner = &released;
  const bool is_read = options.struct_size == sizeof(options);
  const cgt_device device = {
      (has & 16) != 0 ? input.take<std::int8_t>() : std::int8_t{CGT_DEVICE_HOST},
      (has & 32) != 0 ? input.take<std::int8_t>() : 0};
  if (device.type != CGT_DEVICE_HOST && device.type >= 0 && device.type < 4) return;  // a GPU
  cgt_context made = nullptr;
  const cgt_status status = cgt_context_create(device, &options, &made);
  CGTREE_CHECK((status == CGT_OK) == (made != nullptr));
  if (status != CGT_OK) expect_named(status);
  CGTREE_CHECK(cgt_context_destroy(made) == CGT_OK);
  CGTREE_CHECK(released == 1 || (!is_read && released == 0));
}

cgt_status first_input(void*, const cgt_tensor* inputs, std::size_t input_count,
                       cgt_tensor* outputs, std::size_t output_count) {
  if (input_count == 0 || output_count == 0) return CGT_OK;
  return cgt_tensor_share(inputs[0], &outputs[0]);
}

// Options of a function or of steps, except axes and keys.
struct FunctionOptions {
  explicit FunctionOptions(Input& input) : input_name(input), output_name(input) {
    for (cgt_input_options& one : inputs) {
      one.struct_size = sizeof(one);
      one.flags = input.take<std::uint8_t>() % 17;
      one.name = input_name.get();
      one.alignment = input.take<std::uint8_t>() % 4 == 0 ? input.take<std::uint16_t>() : 0;
      one.padding = input.take<std::int8_t>() % 6;
      one.rebind = input.take<std::int8_t>() % 4;
      one.padding_value = input.take<std::int8_t>();
      one.host_bytes = input.take<std::uint8_t>() % 4 == 0 ? input.take<std::uint16_t>() : 0;
      one.tolerance = input.take<std::uint8_t>() % 4 == 0 ? input.take<double>() : 0;
    }
    const auto has = input.take<std::uint8_t>();
    // Only for a single element, since the first element's size is the distance of all.
    if ((has & 1) != 0) inputs[0].struct_size = input.take<std::uint32_t>() % sizeof(inputs[0]);
    options.struct_size =
        (has & 2) != 0 ? input.take<std::uint32_t>() % sizeof(options) : sizeof(options);
    options.flags = input.take<std::uint8_t>() % 10;
    options.inputs = (has & 4) != 0 ? nullptr : inputs;
    options.input_count = input.take<std::uint8_t>() % ((has & 1) != 0 ? 2u : 3u);
    options.max_recordings = input.take<std::uint8_t>();
    options.at_limit = input.take<std::int8_t>() % 4;
    options.outputs = (has & 8) != 0 ? &output : nullptr;
    options.while_missing = input.take<std::int8_t>() % 4;
    options.on_static_change = input.take<std::int8_t>() % 4;
    options.max_static_changes = input.take<std::uint8_t>();
    options.max_switch_nodes = input.take<std::uint8_t>();
    options.max_waste = input.take<std::uint8_t>() % 4 == 0 ? input.take<double>() : 0;
    output.struct_size =
        (has & 16) != 0 ? input.take<std::uint32_t>() % sizeof(output) : sizeof(output);
    output.name = output_name.get();
    output.tolerance = input.take<double>();
    output.rebind = input.take<std::int8_t>() % 4;
    options.output_count = input.take<std::uint8_t>() % 2;
  }
  FunctionOptions(const FunctionOptions&) = delete;
  FunctionOptions& operator=(const FunctionOptions&) = delete;

  const Text input_name, output_name;
  cgt_input_options inputs[2] = {};
  cgt_output_options output = {};
  cgt_function_options options = {};
};

void fuzz_function(Input& input) {
  const Text name(input);
  const FunctionOptions given(input);
  int released = 0;
  const cgt_step step = {sizeof(step), 1, first_input, &released, count};
  cgt_function function = nullptr;
  const cgt_status status =
      cgt_compile(fuzzed_context(), name.get(), &step, &given.options, &function);
  CGTREE_CHECK((status == CGT_OK) == (function != nullptr));
  if (status != CGT_OK) expect_named(status);
  for (int call = 0; status == CGT_OK && call < 3; ++call) {
    const std::int64_t shape = 4;
    cgt_tensor x = nullptr, y = nullptr;
    CGTREE_CHECK(cgt_tensor_empty(CGT_FLOAT32, 1, &shape, &kHost, &x) == CGT_OK);
    const cgt_status called = cgt_call(function, &x, 1, &y, 1);
    if (called != CGT_OK) expect_named(called);
    CGTREE_CHECK((called == CGT_OK) == (y != nullptr));
    CGTREE_CHECK(cgt_tensor_destroy(x) == CGT_OK && cgt_tensor_destroy(y) == CGT_OK);
  }
  CGTREE_CHECK(cgt_function_destroy(function) == CGT_OK);
  CGTREE_CHECK(released == 1);
}

// Bindings are in existing memory of their stated sizes.
void fuzz_steps(Input& input) {
  const Text name(input);
  const FunctionOptions given(input);
  cgt_function steps = nullptr;
  const cgt_status status = cgt_steps_create(fuzzed_context(), name.get(), &given.options,
                                             input.take<std::int8_t>() % 4, &steps);
  CGTREE_CHECK((status == CGT_OK) == (steps != nullptr));
  if (status != CGT_OK) return expect_named(status);
  alignas(64) static unsigned char blocks[1 << 16];
  cgt_tensor memory = nullptr;
  const std::int64_t size = 4096;
  cgt_tensor_info info = {};
  info.struct_size = sizeof(info);
  CGTREE_CHECK(cgt_tensor_empty(CGT_UINT8, 1, &size, &kHost, &memory) == CGT_OK);
  CGTREE_CHECK(cgt_tensor_describe(memory, &info) == CGT_OK);
  for (int call = 0; call < 3; ++call) {
    cgt_binding bindings[3];
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t block = i < 2 ? given.inputs[i].host_bytes : 0;
      const std::size_t offset = input.take<std::uint8_t>();
      bindings[i] = CGT_BINDING(static_cast<unsigned char*>(info.data) + offset,
                                input.take<std::uint8_t>() * std::size_t{8});
      if (block > 0) {
        bindings[i] = CGT_BINDING(blocks, input.take<std::uint8_t>() % 8 == 0 ? 3 : block);
      }
      bindings[i].flags = input.take<std::uint8_t>() % 32 == 31 ? 1 : 0;
      if (input.take<std::uint8_t>() % 16 == 0) bindings[i].address = nullptr;
    }
    const std::size_t bound = input.take<std::uint8_t>() % 4u;
    const Text part(input);
    const cgt_key_part key = CGT_KEY_NUMBER(part.get(), input.take<std::int8_t>() % 3);
    const std::size_t parts = input.take<std::uint8_t>() % 2;
    std::int32_t must_run = 0;
    const cgt_status begun =
        cgt_step_begin(steps, &key, parts, bindings, bound, nullptr, &must_run);
    if (begun != CGT_OK) expect_named(begun);
    CGTREE_CHECK(begun == CGT_OK || must_run == 0);
    while (must_run != 0) {
      void* address = nullptr;
      const std::size_t asked = input.take<std::uint8_t>() % 4u;
      const cgt_status found = cgt_step_address(steps, asked, &address);
      CGTREE_CHECK((found == CGT_OK) == (asked < bound));
      if (input.take<std::uint8_t>() % 8 == 0) {
        CGTREE_CHECK(cgt_step_leave(steps) == CGT_OK);
        break;
      }
      const cgt_status ended = cgt_step_end(steps, &must_run);
      if (ended != CGT_OK) expect_named(ended);
    }
  }
  CGTREE_CHECK(cgt_function_destroy(steps) == CGT_OK);
  CGTREE_CHECK(cgt_tensor_destroy(memory) == CGT_OK);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input{data, size};
  (void)fuzzed_context();
  switch (input.take<std::uint8_t>() % 4) {
    case 0:
      fuzz_key(input);
      break;
    case 1:
      fuzz_context(input);
      break;
    case 2:
      fuzz_function(input);
      break;
    default:
      fuzz_steps(input);
  }
  CGTREE_CHECK(cgt_live_handles() == 1);
  return 0;
}
