// connect_nvtx_scopes(): turns NVTX ranges into scopes if the program wants it.
#pragma once

namespace cgtree {

// If NVTX_INJECTION64_PATH names libcgtree_nvtx.so (integrations/nvtx), gives that library the
// functions that open and close scopes; otherwise does nothing. Looks once in a process.
void connect_nvtx_scopes() noexcept;

}  // namespace cgtree
