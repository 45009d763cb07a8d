// Enqueues kernels.
#include "interop/device/kernel.h"

#include "interop/device/device_api.h"

namespace cgtree {

void enqueue_kernel(StreamRef stream, const KernelFunction& kernel, const LaunchDims& dims,
                    KernelArguments arguments) {
  GraphAPI& graphs = stream.graphs();
  const DeviceScope current = stream.make_device_current();
  check(graphs.launch_kernel(stream.handle(), kernel, dims, arguments), kernel.name);
}

}  // namespace cgtree
