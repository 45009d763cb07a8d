// The kernels of rounds.h. Without CUDA a C++ compiler compiles this file too.
#include "examples/serve/kernels.h"
#include "examples/serve/numbers.h"
#include "interop/device/kernel.h"

namespace cgtree::serve {
namespace {

// An element of verify or draft each: draft comes behind verify.
struct LayOutProposals {
  const std::int32_t* batch;
  const std::int32_t* left;
  std::int32_t* draft;
  std::int32_t* verify;
  std::int64_t width;  // of a row of a batch
  std::int64_t each;   // rows of verify for a row of the batch

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t column = i % width;
    const std::int64_t row = i / width / (each + 1), place = i / width % (each + 1);
    const std::int32_t own = batch[row * width + column];
    if (place == each) {
      draft[row * width + column] = own;
      return;
    }
    const std::int32_t position = batch[row * width + 1];
    const bool is_padding = position < 0 || place >= left[row];
    std::int32_t value = own;
    if (column == 0 && (place > 0 || is_padding)) value = -1;
    if (column == 1) value = is_padding ? -1 : position + static_cast<std::int32_t>(place);
    verify[((row * each) + place) * width + column] = value;
  }
};

// A row each.
struct Propose {
  const std::int32_t* next;
  const std::int32_t* proposed;
  std::int32_t* draft;
  std::int32_t* verify;
  std::int64_t width;
  std::int64_t each;

  CGTREE_HOST_DEVICE void operator()(std::int64_t row) const {
    const std::int64_t place = *proposed + 1;
    std::int32_t* const own = draft + row * width;
    if (own[1] < 0) return;
    std::int32_t* const to = verify + (row * each + place) * width;
    const bool has_room = place < each && to[1] >= 0;
    if (has_room) to[0] = next[row];
    own[0] = has_room ? next[row] : -1;
    own[1] = has_room ? own[1] + 1 : -1;
  }
};

struct Proposed {
  std::int32_t* proposed;
  std::int32_t* go_on;
  std::int64_t each;
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const {
    *proposed += 1;
    *go_on = *proposed < each ? 1 : 0;
  }
};

struct Accept {
  const std::int32_t* chosen;
  const std::int32_t* verify;
  std::int32_t* batch;
  std::int32_t* left;
  std::int32_t* tokens;
  std::int32_t* go_on;
  std::int64_t rows;
  std::int64_t width;
  std::int64_t each;

  // Returns whether the row has tokens left.
  CGTREE_HOST_DEVICE bool take(std::int64_t row) const {
    std::int32_t* const own = batch + row * width;
    std::int64_t count = 0;
    if (own[1] >= 0) {
      bool goes_on = true;
      while (goes_on) {
        const std::int64_t at = row * each + count;
        tokens[at] = chosen[at];
        ++count;
        const std::int32_t* const behind = verify + (at + 1) * width;
        goes_on = count < each && count < left[row] && behind[0] == chosen[at];
      }
      left[row] -= static_cast<std::int32_t>(count);
      const bool has_ended = left[row] <= 0;
      own[0] = has_ended ? -1 : tokens[row * each + count - 1];
      own[1] = has_ended ? -1 : own[1] + static_cast<std::int32_t>(count);
    }
    for (std::int64_t i = count; i < each; ++i)
      tokens[row * each + i] = -1;
    return own[1] >= 0;
  }
};

void accept_on_host(const LaunchDims&, Accept a) {
  bool goes_on = false;
  for (std::int64_t row = 0; row < a.rows; ++row)
    goes_on = a.take(row) || goes_on;
  *a.go_on = goes_on ? 1 : 0;
}

constexpr int kThreads = 128;

#ifdef __CUDACC__
// One block.
__global__ void __launch_bounds__(kThreads) accept_on_cuda(Accept a) {
  int goes_on = 0;
  for (std::int64_t row = threadIdx.x; row < a.rows; row += kThreads)
    goes_on |= a.take(row) ? 1 : 0;
  goes_on = __syncthreads_or(goes_on);
  if (threadIdx.x == 0) *a.go_on = goes_on != 0 ? 1 : 0;
}
#endif

std::int32_t* numbers(const Tensor& tensor) {
  return tensor.data<std::int32_t>();
}

}  // namespace

void lay_out_proposals(StreamRef stream, const Tensor& batch, const Tensor& left,
                       const Tensor& draft, const Tensor& verify) {
  parallel_for(stream, verify.elements() + draft.elements(),
               LayOutProposals{numbers(batch), numbers(left), numbers(draft), numbers(verify),
                               batch.dim(1), verify.dim(0) / batch.dim(0)});
}

void propose(StreamRef stream, const Tensor& next, const Tensor& proposed, const Tensor& draft,
             const Tensor& verify, const Tensor& go_on) {
  const std::int64_t each = verify.dim(0) / draft.dim(0);
  parallel_for(stream, draft.dim(0),
               Propose{numbers(next), numbers(proposed), numbers(draft), numbers(verify),
                       draft.dim(1), each});
  parallel_for(stream, 1, Proposed{numbers(proposed), numbers(go_on), each});
}

void accept(StreamRef stream, const Tensor& chosen, const Tensor& verify, const Tensor& batch,
            const Tensor& left, const Tensor& tokens, const Tensor& go_on) {
  static const auto kernel =
      make_kernel<&accept_on_host>("accept", SERVE_CUDA_FUNCTION(accept_on_cuda));
  launch(stream, kernel, {.grid = {1}, .block = {kThreads}},
         Accept{numbers(chosen), numbers(verify), numbers(batch), numbers(left), numbers(tokens),
                numbers(go_on), batch.dim(0), batch.dim(1), tokens.dim(1)});
}

}  // namespace cgtree::serve
