// An engine in C99: its step is warmed up, recorded and replayed on the host device.
#include <stdio.h>

#include "bindings/c/c_api.h"

#define TRY(call)                                                            \
  do {                                                                       \
    const cgt_status status = (call);                                        \
    if (status != CGT_OK) {                                                  \
      cgt_error error = {.struct_size = sizeof(error)};                      \
      cgt_last_error(&error);                                                \
      printf("%s: %s: %s\n", #call, cgt_status_name(status), error.message); \
      return 1;                                                              \
    }                                                                        \
  } while (0)

static void add(const cgt_dims* dims, const void* const* arguments) {
  const int32_t* tokens = *(const int32_t* const*)arguments[0];
  int32_t* cache = *(int32_t* const*)arguments[1];
  (void)dims;
  for (int i = 0; i < 4; ++i)
    cache[i] += tokens[i];
}

int main(void) {
  const cgt_device device = {CGT_DEVICE_HOST, 0};
  const int64_t shape[] = {4};
  const cgt_input_options roles[] = {
      {.struct_size = sizeof(roles[0]), .flags = CGT_INPUT_COPIED, .name = "tokens"},
      {.struct_size = sizeof(roles[0]), .flags = CGT_INPUT_MUTATED, .name = "cache"}};
  const cgt_function_options options = {
      .struct_size = sizeof(options), .inputs = roles, .input_count = 2};
  const cgt_key_part key = CGT_KEY_NUMBER("batch", 4);
  int32_t values[4] = {0, 0, 0, 0};
  int runs = 0;
  cgt_context context;
  cgt_stream stream;
  cgt_function steps;
  cgt_tensor tokens[5], cache;
  cgt_tensor_info from = {.struct_size = sizeof(from)}, to = {.struct_size = sizeof(to)};

  TRY(cgt_context_create(device, NULL, &context));
  TRY(cgt_stream_create(device, 0, &stream));
  TRY(cgt_tensor_empty(CGT_INT32, 1, shape, &device, &cache));
  TRY(cgt_tensor_copy_from_host(cache, values, sizeof(values)));
  TRY(cgt_tensor_describe(cache, &to));
  TRY(cgt_steps_create(context, "decode", &options, CGT_CAPTURE_MODE_THREAD_LOCAL, &steps));
  for (int call = 0; call < 5; ++call) {
    const int32_t row[] = {call, 1, 2, 3};
    int32_t must_run;
    TRY(cgt_tensor_empty(CGT_INT32, 1, shape, &device, &tokens[call]));
    TRY(cgt_tensor_copy_from_host(tokens[call], row, sizeof(row)));
    TRY(cgt_tensor_describe(tokens[call], &from));
    const cgt_binding bindings[] = {CGT_BINDING(from.data, from.bytes),
                                    CGT_BINDING(to.data, to.bytes)};
    TRY(cgt_step_begin(steps, &key, 1, bindings, 2, &stream, &must_run));
    while (must_run) {
      const cgt_dims one = {{1, 1, 1}, {1, 1, 1}, 0};
      void *copied, *fixed;
      TRY(cgt_step_address(steps, 0, &copied));
      TRY(cgt_step_address(steps, 1, &fixed));
      const cgt_argument arguments[] = {{&copied, sizeof(copied)}, {&fixed, sizeof(fixed)}};
      TRY(cgt_launch_host(stream, "add", add, &one, arguments, 2));
      ++runs;
      TRY(cgt_step_end(steps, &must_run));
    }
  }
  TRY(cgt_stream_synchronize(stream));
  TRY(cgt_tensor_copy_to_host(cache, values, sizeof(values)));
  printf("%d %d %d %d after %d runs\n", (int)values[0], (int)values[1], (int)values[2],
         (int)values[3], runs);
  for (int call = 0; call < 5; ++call)
    TRY(cgt_tensor_destroy(tokens[call]));
  TRY(cgt_tensor_destroy(cache));
  TRY(cgt_function_destroy(steps));
  TRY(cgt_context_destroy(context));
  TRY(cgt_stream_destroy(stream));
  printf("%d handles left\n", (int)cgt_live_handles());
  return 0;
}
