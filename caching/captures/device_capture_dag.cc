// Asks a device about the streams and nodes of a capture.
#include "caching/captures/device_capture_dag.h"

#include <fmt/format.h>

#include "base/error.h"
#include "interop/device/stream_identity.h"

namespace cgtree {
namespace {

std::vector<NodeId> ids_of(const std::vector<NodeHandle>& nodes) {
  std::vector<NodeId> ids;
  ids.reserve(nodes.size());
  for (const NodeHandle node : nodes)
    ids.push_back(static_cast<NodeId>(node));
  return ids;
}

}  // namespace

DeviceCaptureDag::DeviceCaptureDag(StreamRef origin) : graphs_(origin.graphs()) {
  CaptureInfo info;
  check(graphs_.capture_info(origin.handle(), &info), "ask a stream about its capture");
  if (info.status != CaptureStatus::kActive) {
    throw InvalidArgument(fmt::format("the stream {:#x} does not capture; begin the capture first",
                                      static_cast<std::uintptr_t>(origin.handle())));
  }
  capture_ = info.id;
}

std::optional<std::vector<NodeId>> DeviceCaptureDag::terminals(StreamId stream) {
  CaptureInfo info;
  const StreamRef named = find_stream(static_cast<StreamIdentity>(stream));
  if (!named || named.api().graphs() != &graphs_) return std::nullopt;
  check(graphs_.capture_info(named.handle(), &info), "ask a stream about its capture");
  if (info.status != CaptureStatus::kActive || info.id != capture_) return std::nullopt;
  return ids_of(info.dependencies);
}

std::vector<NodeId> DeviceCaptureDag::dependencies(NodeId node) {
  std::vector<NodeHandle> nodes;
  check(graphs_.node_dependencies(static_cast<NodeHandle>(node), &nodes),
        "ask a node for its dependencies");
  return ids_of(nodes);
}

}  // namespace cgtree
