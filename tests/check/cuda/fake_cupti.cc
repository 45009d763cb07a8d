// A libcupti that makes the callbacks that a test asks for. FAKE_CUPTI in the environment: "busy",
// as if another tool had subscribed, or "old".
#include <cupti.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

namespace {

CUpti_CallbackFunc callback = nullptr;
void* user = nullptr;
std::set<std::pair<int, CUpti_CallbackId>> enabled;

bool is(const char* what) {
  const char* const value = std::getenv("FAKE_CUPTI");
  return value != nullptr && std::strcmp(value, what) == 0;
}

}  // namespace

extern "C" {

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = is("old") ? 12 : CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc function,
                           void* data) {
  if (is("busy")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  *subscriber = nullptr;
  callback = function;
  user = data;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(std::uint32_t enable, CUpti_SubscriberHandle,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  if (enable != 0) {
    enabled.insert({domain, id});
  } else {
    enabled.erase({domain, id});
  }
  return CUPTI_SUCCESS;
}

// Makes both callbacks of a call of the driver, if it has any.
void fake_cupti_call(CUpti_CallbackId id, const char* name, const void* params, int result) {
  if (callback == nullptr || !enabled.contains({CUPTI_CB_DOMAIN_DRIVER_API, id})) return;
  std::uint64_t shared = 0;
  CUpti_CallbackData data = {};
  data.functionName = name;
  data.functionParams = params;
  data.functionReturnValue = &result;
  data.correlationData = &shared;
  for (const auto site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
    data.callbackSite = site;
    callback(user, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  }
}
}
