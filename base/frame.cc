// The frame of each thread.
#include "base/frame.h"

namespace cgtree {

constinit thread_local Frame detail::t_frame;

}  // namespace cgtree
