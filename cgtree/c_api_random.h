// The C ABI's part about random numbers: generators, fills, and what kernels need to draw.
//
// The sequence of a seed is 2^64 blocks of four 32-bit words (Philox4x32-10), which kernels compute
// from their numbers; a generator counts how many are used. In step functions, calls draw the same
// numbers whether they run eagerly or replay: each replay takes as many blocks as the recorded call
// did, from where the generator is then. A call that fails gives back what it took, unless someone
// else has drawn since. Include cgtree/c_api.h.
#ifndef CGTREE_C_API_RANDOM_H_
#define CGTREE_C_API_RANDOM_H_

#include "cgtree/c_api.h"

#ifdef __CUDACC__
#define CGT_HOST_DEVICE __host__ __device__
#else
#define CGT_HOST_DEVICE
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Serves every device, and step functions of several contexts. A recording keeps what it needs of
// the generator that it was recorded with.
typedef struct cgt_generator_handle* cgt_generator;

CGT_API cgt_status cgt_generator_create(uint64_t seed, cgt_generator* out);
CGT_API cgt_status cgt_generator_destroy(cgt_generator generator);
// Begins the sequence of `seed`; the next draw or replay obeys. CGT_INVALID_ARGUMENT inside a step
// function that is being recorded: its replays would not reseed.
CGT_API cgt_status cgt_generator_set_seed(cgt_generator generator, uint64_t seed);

// Where a generator is.
typedef struct cgt_generator_state {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t seed;
  uint64_t offset;  // blocks used so far
  // Not 0: taken inside a step function while it was recorded. Then the numbers above are not those
  // of later replays, and the state can be set until the function returns, on its thread.
  uint64_t recording;
} cgt_generator_state;
CGT_API cgt_status cgt_generator_get_state(cgt_generator generator, cgt_generator_state* state);
// Obeyed by the next draw or replay. Inside a step function that is being recorded only what was
// taken in the same call can be set.
CGT_API cgt_status cgt_generator_set_state(cgt_generator generator,
                                           const cgt_generator_state* state);

// Blocks that are set aside; an argument of a kernel. Where `origin` is NULL, they are those of
// `seed` from `offset` on. In recorded work it is memory of the device, which each replay fills
// before any kernel runs: origin[0] is the seed then, and the blocks begin at origin[1] + offset.
typedef struct cgt_philox_range {
  const uint64_t* origin;
  uint64_t seed;
  uint64_t offset;
} cgt_philox_range;
// Sets the next `blocks` blocks aside for kernels on cgt_current_stream(). CGT_INVALID_ARGUMENT if
// that stream is captured by someone else, whose graph would repeat the numbers.
CGT_API cgt_status cgt_generator_reserve(cgt_generator generator, uint64_t blocks,
                                         cgt_philox_range* out);

// Random numbers for a contiguous tensor on the stream's device: uniform in [0, 1) and normal ones
// for CGT_FLOAT32, four to a block; integers in [low, high) for CGT_INT64, two to a block. They
// depend on the generator and the element's number in row-major order only. `stream` NULL: the
// current one. Where they are refused the generator has not moved.
CGT_API cgt_status cgt_fill_uniform(cgt_generator generator, cgt_tensor tensor,
                                    const cgt_stream* stream);
CGT_API cgt_status cgt_fill_normal(cgt_generator generator, cgt_tensor tensor, float mean,
                                   float deviation, const cgt_stream* stream);
CGT_API cgt_status cgt_fill_integers(cgt_generator generator, cgt_tensor tensor, int64_t low,
                                     int64_t high, const cgt_stream* stream);

// For kernels, in C and in CUDA: block `index` of those that are set aside, index < blocks. Of
// recorded work on the device only. cgt_fill_uniform() makes (word >> 8) * 2^-24 of a word.
//
// Source: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
// 2, 3" (SC 2011).
CGT_HOST_DEVICE static inline void cgt_philox_block(const cgt_philox_range* range, uint64_t index,
                                                    uint32_t words[4]) {
  const uint64_t seed = range->origin != NULL ? range->origin[0] : range->seed;
  const uint64_t number = (range->origin != NULL ? range->origin[1] : 0) + range->offset + index;
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  uint32_t c0 = (uint32_t)number, c1 = (uint32_t)(number >> 32), c2 = 0, c3 = 0;
  int round;
  for (round = 0; round < 10; ++round) {
    const uint64_t product0 = (uint64_t)0xD2511F53u * c0;
    const uint64_t product1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
    c1 = (uint32_t)product1;
    c2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
    c3 = (uint32_t)product0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

#ifdef __cplusplus
}
#endif

#endif  // CGTREE_C_API_RANDOM_H_
