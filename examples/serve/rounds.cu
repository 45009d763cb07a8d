// The kernels of rounds.h. Without CUDA a C++ compiler compiles this file too.
#include "examples/serve/kernels.h"
#include "examples/serve/numbers.h"
#include "interop/device/kernel.h"

namespace cgtree::serve {
namespace {

// An element of verify or of draft.
struct LayOutProposals {
  const std::int32_t* batch;
  const std::int32_t* left;
  std::int32_t* draft;
  std::int32_t* verify;
  std::int32_t* proposed;
  std::int64_t columns;
  std::int64_t width;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    if (i == 0) *proposed = 0;
    const std::int64_t column = i % columns, row = i / columns / (width + 1);
    const std::int64_t place = i / columns % (width + 1);
    const std::int32_t own = batch[row * columns + column];
    if (place == width) {
      draft[row * columns + column] = own;
      return;
    }
    const std::int32_t position = batch[row * columns + 1];
    const bool is_padding = position < 0 || place >= left[row];
    std::int32_t value = own;
    if (column == 0 && place > 0) value = -1;
    if (column == 1) value = is_padding ? -1 : position + static_cast<std::int32_t>(place);
    verify[(row * width + place) * columns + column] = value;
  }
};

struct Propose {
  const std::int32_t* next;
  std::int32_t* draft;
  std::int32_t* verify;
  std::int32_t* proposed;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t width;

  CGTREE_HOST_DEVICE void put(std::int64_t row, std::int64_t place) const {
    std::int32_t* const fed = draft + row * columns;
    std::int32_t* const to = verify + (row * width + place) * columns;
    const bool is_there = fed[1] >= 0 && place < width && to[1] >= 0;
    if (is_there) to[0] = next[row];
    fed[0] = is_there ? next[row] : -1;
    fed[1] = is_there ? fed[1] + 1 : -1;
  }
};

void propose_on_host(const LaunchDims&, Propose a) {
  const std::int64_t place = ++*a.proposed;
  for (std::int64_t row = 0; row < a.rows; ++row)
    a.put(row, place);
}

struct Accept {
  const std::int32_t* chosen;
  const std::int32_t* verify;
  std::int32_t* batch;
  std::int32_t* left;
  std::int32_t* tokens;
  std::int32_t* goes_on;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t width;

  // Returns whether the row has tokens left.
  CGTREE_HOST_DEVICE bool take(std::int64_t row) const {
    std::int32_t* const own = batch + row * columns;
    std::int32_t* const taken = tokens + row * width;
    std::int64_t count = 0;
    if (own[1] >= 0) {
      const std::int64_t first = row * width;
      const std::int64_t most = left[row] < width ? left[row] : width;
      do {
        taken[count] = chosen[first + count];
        ++count;
      } while (count < most && verify[(first + count) * columns] == taken[count - 1]);
      left[row] -= static_cast<std::int32_t>(count);
      const bool has_ended = left[row] <= 0;
      own[0] = has_ended ? -1 : taken[count - 1];
      own[1] = has_ended ? -1 : own[1] + static_cast<std::int32_t>(count);
    }
    for (std::int64_t i = count; i < width; ++i)
      taken[i] = -1;
    return own[1] >= 0;
  }
};

void accept_on_host(const LaunchDims&, Accept a) {
  bool goes_on = false;
  for (std::int64_t row = 0; row < a.rows; ++row)
    goes_on = a.take(row) || goes_on;
  *a.goes_on = goes_on ? 1 : 0;
}

constexpr int kThreads = 128;

#ifdef __CUDACC__
// Each is one block.
__global__ void __launch_bounds__(kThreads) propose_on_cuda(Propose a) {
  const std::int64_t place = *a.proposed + 1;
  for (std::int64_t row = threadIdx.x; row < a.rows; row += kThreads)
    a.put(row, place);
  __syncthreads();
  if (threadIdx.x == 0) *a.proposed += 1;
}

__global__ void __launch_bounds__(kThreads) accept_on_cuda(Accept a) {
  int goes_on = 0;
  for (std::int64_t row = threadIdx.x; row < a.rows; row += kThreads)
    goes_on |= a.take(row) ? 1 : 0;
  goes_on = __syncthreads_or(goes_on);
  if (threadIdx.x == 0) *a.goes_on = goes_on != 0 ? 1 : 0;
}
#endif

std::int32_t* numbers(const Tensor& tensor) {
  return tensor.data<std::int32_t>();
}

}  // namespace

void lay_out_proposals(StreamRef stream, const Tensor& batch, const Tensor& left,
                       const Tensor& draft, const Tensor& verify, const Tensor& proposed) {
  parallel_for(stream, verify.elements() + draft.elements(),
               LayOutProposals{numbers(batch), numbers(left), numbers(draft), numbers(verify),
                               numbers(proposed), batch.dim(1), verify.dim(0) / batch.dim(0)});
}

void propose(StreamRef stream, const Tensor& next, const Tensor& draft, const Tensor& verify,
             const Tensor& proposed) {
  static const auto kernel =
      make_kernel<&propose_on_host>("propose", SERVE_CUDA_FUNCTION(propose_on_cuda));
  const std::int64_t rows = draft.dim(0);
  launch(stream, kernel, {.grid = {1}, .block = {kThreads}},
         Propose{numbers(next), numbers(draft), numbers(verify), numbers(proposed), rows,
                 draft.dim(1), verify.dim(0) / rows});
}

void accept(StreamRef stream, const Tensor& chosen, const Tensor& verify, const Tensor& batch,
            const Tensor& left, const Tensor& tokens, const Tensor& goes_on) {
  static const auto kernel =
      make_kernel<&accept_on_host>("accept", SERVE_CUDA_FUNCTION(accept_on_cuda));
  launch(stream, kernel, {.grid = {1}, .block = {kThreads}},
         Accept{numbers(chosen), numbers(verify), numbers(batch), numbers(left), numbers(tokens),
                numbers(goes_on), batch.dim(0), batch.dim(1), tokens.dim(1)});
}

}  // namespace cgtree::serve
