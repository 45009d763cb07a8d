// Only C99 and the header: a context, a step function, calls, errors, and no leak.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/c/c_api.h"

/* The layouts on which bindings of other languages rely. */
typedef char device_is_dlpacks[sizeof(cgt_device) == 8 ? 1 : -1];
typedef char stream_is_two_words[sizeof(cgt_stream) == 16 ? 1 : -1];
typedef char body_is_two_words[sizeof(cgt_body) == 16 ? 1 : -1];
typedef char status_is_32_bits[sizeof(cgt_status) == 4 ? 1 : -1];
typedef char cai_has_no_gaps[sizeof(cgt_cai) == 64 ? 1 : -1];
typedef char handles_are_64_bits[sizeof(cgt_tensor) == 8 ? 1 : -1];
typedef char axis_options_are_96_bytes[sizeof(cgt_axis_options) == 96 ? 1 : -1];
typedef char axis_use_is_one_word[sizeof(cgt_axis_use) == 8 ? 1 : -1];
typedef char precapture_options_are_80_bytes[sizeof(cgt_precapture_options) == 80 ? 1 : -1];
typedef char generator_state_is_32_bytes[sizeof(cgt_generator_state) == 32 ? 1 : -1];
typedef char philox_range_is_24_bytes[sizeof(cgt_philox_range) == 24 ? 1 : -1];

static int failures = 0;

#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                               \
    }                                                                           \
  } while (0)

static void expect_ok(cgt_status status, int line) {
  if (status == CGT_OK) return;
  cgt_error error = {.struct_size = sizeof(error)};
  cgt_last_error(&error);
  fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, line, cgt_status_name(status), error.message);
  exit(1);
}
#define OK(call) expect_ok(call, __LINE__)

static cgt_error last_error(void) {
  cgt_error error = {.struct_size = sizeof(error)};
  EXPECT(cgt_last_error(&error) == CGT_OK);
  return error;
}

static void double_all(const cgt_dims* dims, const void* const* arguments) {
  const float* x = *(const float* const*)arguments[0];
  float* y = *(float* const*)arguments[1];
  const int64_t count = *(const int64_t*)arguments[2];
  EXPECT(dims->grid[0] == 1 && dims->block[0] == 32);
  for (int64_t i = 0; i < count; ++i)
    y[i] = 2 * x[i];
}

typedef struct Step {
  int runs;
  int released;
  cgt_status answer;
} Step;

static void release(void* user) {
  ++((Step*)user)->released;
}

static cgt_status twice(void* user, const cgt_tensor* inputs, size_t input_count,
                        cgt_tensor* outputs, size_t output_count) {
  Step* const step = user;
  cgt_tensor_info x = {.struct_size = sizeof(x)}, y = x;
  cgt_stream stream;
  EXPECT(input_count == 1 && output_count == 1);
  ++step->runs;
  if (step->answer != CGT_OK) {
    cgt_set_error("told to fail");
    return step->answer;
  }
  OK(cgt_tensor_describe(inputs[0], &x));
  OK(cgt_tensor_empty(x.dtype, x.ndim, x.shape, NULL, &outputs[0]));
  OK(cgt_tensor_describe(outputs[0], &y));
  OK(cgt_current_stream(&stream));
  const cgt_dims dims = {{1, 1, 1}, {32, 1, 1}, 0};
  const cgt_argument arguments[] = {
      {&x.data, sizeof(x.data)}, {&y.data, sizeof(y.data)}, {&x.elements, sizeof(x.elements)}};
  return cgt_launch_host(stream, "double_all", double_all, &dims, arguments, 3);
}

static cgt_tensor tensor_of(cgt_device device, const float* values, int64_t count) {
  cgt_tensor tensor;
  OK(cgt_tensor_empty(CGT_FLOAT32, 1, &count, &device, &tensor));
  OK(cgt_tensor_copy_from_host(tensor, values, (size_t)count * sizeof(float)));
  return tensor;
}

static void test_calls_replay(cgt_context context, cgt_device device) {
  Step step = {0, 0, CGT_OK};
  const cgt_step options = {sizeof(options), 1, twice, &step, release};
  cgt_function function;
  OK(cgt_compile(context, "twice", &options, NULL, &function));
  for (int call = 0; call < 5; ++call) {
    const float values[3] = {(float)call, 1.5f, -2};
    float found[3] = {-1, -1, -1};
    cgt_tensor x = tensor_of(device, values, 3), y;
    OK(cgt_context_mark_step(context));
    OK(cgt_call(function, &x, 1, &y, 1));
    OK(cgt_tensor_copy_to_host(y, found, sizeof(found)));
    EXPECT(found[0] == 2 * values[0] && found[1] == 3 && found[2] == -4);
    OK(cgt_tensor_destroy(x));
    OK(cgt_tensor_destroy(y));
  }
  EXPECT(step.runs == 2);
  const char* stats;
  OK(cgt_function_stats_json(function, &stats));
  EXPECT(strstr(stats, "\"replays\":3") != NULL);
  OK(cgt_function_destroy(function));
  EXPECT(step.released == 1);
}

static void test_a_status_of_its_own_comes_back(cgt_context context, cgt_device device) {
  Step step = {0, 0, CGT_USER_STATUS + 7};
  const cgt_step options = {sizeof(options), 1, twice, &step, release};
  const float value = 1;
  cgt_function function;
  cgt_tensor x = tensor_of(device, &value, 1), y = NULL;
  OK(cgt_compile(context, "twice", &options, NULL, &function));
  EXPECT(cgt_call(function, &x, 1, &y, 1) == CGT_USER_STATUS + 7);
  EXPECT(y == NULL);
  EXPECT(strstr(last_error().message, "'twice': told to fail") != NULL);
  step.answer = CGT_OK;
  OK(cgt_call(function, &x, 1, &y, 1));
  OK(cgt_tensor_destroy(y));
  OK(cgt_tensor_destroy(x));
  OK(cgt_function_destroy(function));
}

static void test_handles_outlive_one_another(cgt_device device) {
  Step step = {0, 0, CGT_OK};
  const cgt_step options = {sizeof(options), 1, twice, &step, release};
  const float values[2] = {3, 4};
  float found[2] = {0, 0};
  cgt_context context;
  cgt_function function;
  cgt_tensor x = tensor_of(device, values, 2), y;
  OK(cgt_context_create(device, NULL, &context));
  OK(cgt_compile(context, "twice", &options, NULL, &function));
  OK(cgt_context_destroy(context));
  OK(cgt_call(function, &x, 1, &y, 1));
  OK(cgt_function_destroy(function));
  OK(cgt_tensor_copy_to_host(y, found, sizeof(found)));
  EXPECT(found[0] == 6 && found[1] == 8);
  EXPECT(cgt_context_mark_step(context) == CGT_INVALID_HANDLE);
  EXPECT(cgt_call(function, &x, 1, &y, 1) == CGT_INVALID_HANDLE);
  OK(cgt_tensor_destroy(y));
  OK(cgt_tensor_destroy(x));
  EXPECT(cgt_tensor_destroy(x) == CGT_INVALID_HANDLE);
  EXPECT(last_error().status == CGT_INVALID_HANDLE);
}

static cgt_status make_inputs(void* user, const cgt_axis_size* sizes, size_t size_count,
                              cgt_tensor* inputs, size_t input_count) {
  EXPECT(size_count == 1 && input_count == 1 && strcmp(sizes[0].axis, "n") == 0);
  return cgt_tensor_empty(CGT_FLOAT32, 1, &sizes[0].size, user, &inputs[0]);
}

static void test_sizes_are_padded_to_what_was_precaptured(cgt_context context, cgt_device device) {
  Step step = {0, 0, CGT_OK};
  const cgt_step options = {sizeof(options), 1, twice, &step, release};
  const int64_t buckets[] = {2, 4};
  const cgt_axis_use first = {0, 0};
  const cgt_axis_options axis = {.struct_size = sizeof(axis),
                                 .policy = CGT_AXIS_BUCKETS,
                                 .name = "n",
                                 .inputs = &first,
                                 .input_count = 1,
                                 .outputs = &first,
                                 .output_count = 1,
                                 .sizes = buckets,
                                 .size_count = 2};
  const cgt_function_options dynamic = {
      .struct_size = sizeof(dynamic), .axes = &axis, .axis_count = 1};
  const cgt_precapture_options precapture = {.struct_size = sizeof(precapture),
                                             .input_count = 1,
                                             .make_inputs = make_inputs,
                                             .user = &device};
  const float values[3] = {1, 2, 3};
  float found[3] = {-1, -1, -1};
  const char* report;
  cgt_function function;
  cgt_tensor x = tensor_of(device, values, 3), y;
  OK(cgt_compile(context, "twice", &options, &dynamic, &function));
  OK(cgt_function_precapture(function, &precapture, &report));
  EXPECT(strstr(report, "{\"sizes\":{\"n\":4},\"outcome\":\"recorded\"") != NULL);
  EXPECT(step.runs == 6);
  OK(cgt_call(function, &x, 1, &y, 1));
  EXPECT(step.runs == 6);
  OK(cgt_tensor_copy_to_host(y, found, sizeof(found)));
  EXPECT(found[0] == 2 && found[1] == 4 && found[2] == 6);
  OK(cgt_tensor_destroy(y));
  OK(cgt_tensor_destroy(x));
  OK(cgt_function_destroy(function));
}

static void draw_all(const cgt_dims* dims, const void* const* arguments) {
  const cgt_philox_range* range = arguments[0];
  float* y = *(float* const*)arguments[1];
  (void)dims;
  for (uint64_t i = 0; i < 3; ++i) {
    uint32_t words[4];
    cgt_philox_block(range, i, words);
    for (int k = 0; k < 4; ++k)
      y[4 * i + (uint64_t)k] = (float)(words[k] >> 8) / 16777216.0f;
  }
}

static cgt_status draw(void* generator, const cgt_tensor* inputs, size_t input_count,
                       cgt_tensor* outputs, size_t output_count) {
  const int64_t count = 12;
  const cgt_dims dims = {{1, 1, 1}, {32, 1, 1}, 0};
  cgt_philox_range range;
  cgt_tensor_info y = {.struct_size = sizeof(y)};
  cgt_stream stream;
  (void)inputs, (void)input_count, (void)output_count;
  OK(cgt_tensor_empty(CGT_FLOAT32, 1, &count, NULL, &outputs[0]));
  OK(cgt_tensor_describe(outputs[0], &y));
  OK(cgt_current_stream(&stream));
  OK(cgt_generator_reserve(generator, 3, &range));
  const cgt_argument arguments[] = {{&range, sizeof(range)}, {&y.data, sizeof(y.data)}};
  return cgt_launch_host(stream, "draw_all", draw_all, &dims, arguments, 2);
}

// A kernel in C draws the numbers of the library's fill, in every phase.
static void test_kernels_draw(cgt_context context, cgt_device device) {
  cgt_generator generator, twin;
  cgt_function function;
  cgt_stream stream;
  OK(cgt_generator_create(42, &generator));
  OK(cgt_generator_create(42, &twin));
  OK(cgt_context_stream(context, &stream));
  const cgt_step step = {sizeof(step), 1, draw, generator, NULL};
  OK(cgt_compile(context, "draw", &step, NULL, &function));
  for (int call = 0; call < 4; ++call) {
    float found[12] = {-1}, expected[12] = {-2};
    cgt_tensor x = tensor_of(device, found, 12), y;
    OK(cgt_call(function, NULL, 0, &y, 1));
    OK(cgt_fill_uniform(twin, x, &stream));
    OK(cgt_tensor_copy_to_host(y, found, sizeof(found)));
    OK(cgt_tensor_copy_to_host(x, expected, sizeof(expected)));
    EXPECT(memcmp(found, expected, sizeof(found)) == 0);
    OK(cgt_tensor_destroy(x));
    OK(cgt_tensor_destroy(y));
  }
  OK(cgt_function_destroy(function));
  OK(cgt_generator_destroy(generator));
  OK(cgt_generator_destroy(twin));
}

int main(void) {
  const cgt_device device = {CGT_DEVICE_HOST, 0};
  cgt_context context;
  EXPECT(cgt_abi_version() == CGT_ABI_VERSION);
  EXPECT(cgt_live_handles() == 0);
  OK(cgt_context_create(device, NULL, &context));
  test_calls_replay(context, device);
  test_a_status_of_its_own_comes_back(context, device);
  test_handles_outlive_one_another(device);
  test_sizes_are_padded_to_what_was_precaptured(context, device);
  test_kernels_draw(context, device);
  OK(cgt_context_destroy(context));
  EXPECT(cgt_live_handles() == 0);
  return failures == 0 ? 0 : 1;
}
