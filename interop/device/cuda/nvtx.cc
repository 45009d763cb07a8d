// Calls NVTX version 3.
#include "interop/device/cuda/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace cgtree::nvtx {
namespace {

// Null if no profiler listens. Never destroyed, because contexts may end at any time.
nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("cgtree");
  return made;
}

}  // namespace

bool listens() noexcept {
  return domain() != nullptr;
}

void push(const char* text, std::uint64_t payload) noexcept {
  nvtxEventAttributes_t event = {};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = text;
  event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  event.payload.ullValue = payload;
  (void)nvtxDomainRangePushEx(domain(), &event);
}

void pop() noexcept {
  (void)nvtxDomainRangePop(domain());
}

}  // namespace cgtree::nvtx
