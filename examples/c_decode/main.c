// The C ABI on one page: a decoder in C99 whose step is recorded once and replayed for every token.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/c/c_api.h"

enum { kBatch = 4, kVocabulary = 8, kTokens = 16 };

static void check(cgt_status status) {
  if (status == CGT_OK) return;
  cgt_error error = {.struct_size = sizeof(error)};
  cgt_last_error(&error);
  fprintf(stderr, "c_decode: %s: %s\n", cgt_status_name(status), error.message);
  exit(1);
}

// A kernel of the host device: each row's next token is the likeliest one after its last.
static void argmax(const cgt_dims* dims, const void* const* arguments) {
  const float* table = *(const float* const*)arguments[0];
  const int32_t* last = *(const int32_t* const*)arguments[1];
  int32_t* next = *(int32_t* const*)arguments[2];
  (void)dims;
  for (int row = 0; row < kBatch; ++row) {
    const float* scores = table + last[row] * kVocabulary;
    next[row] = 0;
    for (int token = 1; token < kVocabulary; ++token)
      if (scores[token] > scores[next[row]]) next[row] = token;
  }
}

// The step function: takes (table, last), makes its output, launches on the current stream. On a
// GPU it would launch `kernel<<<grid, block, 0, (cudaStream_t)stream.native>>>` instead.
static cgt_status decode(void* calls, const cgt_tensor* inputs, size_t input_count,
                         cgt_tensor* outputs, size_t output_count) {
  const int64_t shape[] = {kBatch};
  const cgt_dims dims = {{1, 1, 1}, {1, 1, 1}, 0};
  cgt_tensor_info table = {.struct_size = sizeof(table)};
  cgt_tensor_info last = {.struct_size = sizeof(last)};
  cgt_tensor_info next = {.struct_size = sizeof(next)};
  cgt_stream stream;
  cgt_status status;
  (void)input_count, (void)output_count;
  ++*(int*)calls;  // happens while warming up and recording, never while replaying
  if ((status = cgt_tensor_empty(CGT_INT32, 1, shape, NULL, &outputs[0]))) return status;
  if ((status = cgt_tensor_describe(inputs[0], &table))) return status;
  if ((status = cgt_tensor_describe(inputs[1], &last))) return status;
  if ((status = cgt_tensor_describe(outputs[0], &next))) return status;
  if ((status = cgt_current_stream(&stream))) return status;
  const cgt_argument arguments[] = {{&table.data, sizeof(table.data)},
                                    {&last.data, sizeof(last.data)},
                                    {&next.data, sizeof(next.data)}};
  return cgt_launch_host(stream, "argmax", argmax, &dims, arguments, 3);
}

int main(void) {
  cgt_device device;
  cgt_context context;
  check(cgt_device_parse("host", &device));
  check(cgt_context_create(device, NULL, &context));

  const int64_t square[] = {kVocabulary, kVocabulary}, row[] = {kBatch};
  float scores[kVocabulary * kVocabulary];
  for (int i = 0; i < kVocabulary * kVocabulary; ++i)
    scores[i] = (float)(i * 37 % 101);
  int32_t tokens[kBatch] = {0, 1, 2, 3};
  cgt_tensor table, last;
  check(cgt_tensor_empty(CGT_FLOAT32, 2, square, &device, &table));
  check(cgt_tensor_copy_from_host(table, scores, sizeof(scores)));
  check(cgt_tensor_empty(CGT_INT32, 1, row, &device, &last));
  check(cgt_tensor_copy_from_host(last, tokens, sizeof(tokens)));

  int calls = 0;
  const cgt_step step = {sizeof(step), .output_count = 1, .body = decode, .user = &calls};
  const cgt_input_options inputs[] = {{sizeof(inputs[0]), CGT_INPUT_STATIC, "table", 0}};
  const cgt_function_options options = {sizeof(options), .inputs = inputs, .input_count = 1};
  cgt_function function;
  check(cgt_compile(context, "decode", &step, &options, &function));

  for (int i = 0; i < kTokens; ++i) {
    cgt_tensor next;
    check(cgt_context_mark_step(context));  // the last step's output may now be overwritten
    check(cgt_call(function, (const cgt_tensor[]){table, last}, 2, &next, 1));
    check(cgt_tensor_copy_to_host(next, tokens, sizeof(tokens)));
    check(cgt_tensor_copy_from_host(last, tokens, sizeof(tokens)));
    check(cgt_tensor_destroy(next));
    printf("%" PRId32 " %" PRId32 " %" PRId32 " %" PRId32 "\n", tokens[0], tokens[1], tokens[2],
           tokens[3]);
  }

  const char* stats;
  check(cgt_function_stats_json(function, &stats));
  printf("the C function ran %d times: %s\n", calls, stats);
  check(cgt_function_destroy(function));  // in any order
  check(cgt_context_destroy(context));
  check(cgt_tensor_destroy(table));
  check(cgt_tensor_destroy(last));
  return 0;
}
