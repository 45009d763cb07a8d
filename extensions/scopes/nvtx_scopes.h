// connect_nvtx_scopes(): has ranges of NVTX become scopes, where the program wants it.
#pragma once

namespace cgtree {

// If NVTX_INJECTION64_PATH names libcgtree_nvtx.so (integrations/nvtx), that is told how to open
// and close scopes; otherwise nothing is done. Looks once in a process.
void connect_nvtx_scopes() noexcept;

}  // namespace cgtree
