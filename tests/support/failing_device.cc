// Forwards calls to the host device, counts them, and fails the armed one.
#include "tests/support/failing_device.h"

#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "simulator/host_device.h"
#include "tests/support/forwarding_device.h"

namespace cgtree::testing {
namespace {

constexpr auto kType = static_cast<DeviceType>(static_cast<int>(DeviceType::kFirstUserType) + 15);

bool destroys(CallKind kind) {
  return kind == CallKind::kFree || kind == CallKind::kDestroy;
}
bool makes(CallKind kind) {
  return kind == CallKind::kAllocate || kind == CallKind::kMake;
}
bool may_fail(const DeviceCall& call) {
  return std::string_view(call.function) != "exchange_capture_mode";
}

class Faults final : public CallHook {
 public:
  // A failing call has no effect, except that frees and destroys happen.
  Code around(const DeviceCall& call, Forward forward) override {
    if (destroys(call.kind)) {
      const Code code = forward();
      if (ok(code)) --outstanding;
      return strikes(call) ? fault.code : code;
    }
    if (strikes(call)) return fault.code;
    const Code code = forward();
    if (ok(code) && makes(call.kind)) ++outstanding;
    return code;
  }
  bool strikes(const DeviceCall& call) {
    if (!armed || !may_fail(call)) return false;
    if (!fault.function.empty() && fault.function != call.function) return false;
    if (fault.kind && *fault.kind != call.kind) return false;
    if (calls++ != fault.at) return false;
    failed = call.function;
    last_error = fault.code;
    return true;
  }

  Fault fault;
  bool armed = false;
  long calls = 0;
  long outstanding = 0;
  std::string failed;
  Code last_error = Code::kSuccess;
};

class FailingGraphs final : public ForwardingGraphs {
 public:
  explicit FailingGraphs(Faults& faults)
      : ForwardingGraphs(host_device_api(), faults), faults_(faults) {}

  Code end_capture(StreamHandle stream, GraphHandle* graph) override {
    GraphHandle made = GraphHandle::kNull;
    const Code code = target().end_capture(stream, &made);
    if (faults_.strikes({"end_capture", CallKind::kCapture, stream})) {
      if (ok(code)) static_cast<void>(target().destroy_graph(made));
      return faults_.fault.code;
    }
    if (!ok(code)) return code;
    ++faults_.outstanding;
    *graph = made;
    return code;
  }

  Code peek_last_error() noexcept override {
    return ok(faults_.last_error) ? target().peek_last_error() : faults_.last_error;
  }
  Code take_last_error() noexcept override {
    const Code code = peek_last_error();
    static_cast<void>(target().take_last_error());
    faults_.last_error = Code::kSuccess;
    return code;
  }

 private:
  Faults& faults_;
};

class FailingApi final : public ForwardingDevice {
 public:
  explicit FailingApi(Faults& hook)
      : ForwardingDevice(host_device_api(), hook, std::make_unique<FailingGraphs>(hook)),
        faults(hook) {}

  std::string_view name() const noexcept override { return "failing"; }
  // Reports no mapping, because calls that map memory would not be counted.
  AttributeValue attribute(int id, DeviceAttribute attribute) noexcept override {
    if (attribute == DeviceAttribute::kSupportsMapping) return std::int64_t{0};
    return ForwardingDevice::attribute(id, attribute);
  }

  Faults& faults;
};

FailingApi& api() {
  static auto* const api = new FailingApi(*new Faults);
  return *api;
}

}  // namespace

FailingDevice& FailingDevice::instance() {
  static auto* const device = new FailingDevice;
  return *device;
}

FailingDevice::FailingDevice() {
  register_device_api(kType, api());
}

Device FailingDevice::device() const noexcept {
  return {kType, 0};
}

void FailingDevice::arm(const Fault& fault) {
  api().faults.fault = fault;
  api().faults.calls = 0;
  api().faults.failed.clear();
  api().faults.last_error = Code::kSuccess;
  api().faults.armed = true;
}

void FailingDevice::disarm() noexcept {
  api().faults.armed = false;
}

long FailingDevice::calls() const noexcept {
  return api().faults.calls;
}

const std::string& FailingDevice::failed_function() const noexcept {
  return api().faults.failed;
}

long FailingDevice::outstanding() const noexcept {
  return api().faults.outstanding;
}

}  // namespace cgtree::testing
