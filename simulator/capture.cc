// CUDA's rules of stream capture. The number in a comment is CUDA's result.
#include "simulator/capture.h"

#include <algorithm>
#include <utility>

#include "interop/device/graph_api.h"

namespace cgtree::host {
namespace {

Code refuse(Capture& capture, Code code) {
  capture.status = CaptureStatus::kInvalidated;
  return code;
}

// Source: cudaThreadExchangeStreamCaptureMode. Relaxed callers may make unsafe calls. Other callers
// may not while their own thread captures in another mode than Relaxed; Global callers may not,
// either, while any thread captures in Global mode.
bool forbids_unsafe(const Capture& capture, const ThreadState& caller) {
  if (caller.mode == CaptureMode::kRelaxed) return false;
  if (capture.thread == caller.id) return capture.mode != CaptureMode::kRelaxed;
  return caller.mode == CaptureMode::kGlobal && capture.mode == CaptureMode::kGlobal;
}

// The legacy stream orders itself with the blocking streams of its device, which a capturing stream
// cannot follow. The legacy stream belongs to device 0.
bool forbids_legacy(const Capture& capture) {
  return std::any_of(capture.streams.begin(), capture.streams.end(), [](const auto& stream) {
    return stream->kind == StreamKind::kBlocking && stream->device == 0;
  });
}

void add_all(std::vector<NodeHandle>& tails, std::span<const NodeHandle> nodes) {
  for (const NodeHandle node : nodes) {
    if (std::find(tails.begin(), tails.end(), node) == tails.end()) tails.push_back(node);
  }
}

}  // namespace

Code CaptureTable::begin(const std::shared_ptr<HostStream>& stream, CaptureMode mode,
                         const ThreadState& caller, std::uint64_t id, std::shared_ptr<Graph> body) {
  if (stream->is_legacy()) {
    const Code code = admit_legacy();
    return ok(code) ? Code::kStreamCaptureUnsupported : code;
  }
  if (stream->capture != nullptr) return Code::kIllegalState;
  if (body != nullptr && find_graph(body->handle()) != nullptr) return Code::kIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->id = id;
  capture->mode = mode;
  capture->thread = caller.id;
  capture->origin = stream.get();
  capture->is_of_body = body != nullptr;
  capture->graph =
      body != nullptr ? std::move(body) : std::make_shared<Graph>(static_cast<GraphHandle>(id));
  capture->streams.push_back(stream);
  open_.push_back(capture);
  stream->capture = std::move(capture);
  return Code::kSuccess;
}

Code CaptureTable::end(const HostStream& stream, const ThreadState& caller,
                       std::shared_ptr<Graph>* graph) {
  if (stream.is_legacy()) {
    const Code code = admit_legacy();
    return ok(code) ? Code::kIllegalState : code;
  }
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return Code::kIllegalState;
  if (capture->origin != &stream) return refuse(*capture, Code::kStreamCaptureUnmatched);

  Code code = Code::kSuccess;
  if (capture->status == CaptureStatus::kInvalidated) {
    code = Code::kStreamCaptureInvalidated;
  } else if (capture->mode != CaptureMode::kRelaxed && capture->thread != caller.id) {
    code = Code::kStreamCaptureWrongThread;
  } else if (!capture->graph->all_lead_to(stream.tails)) {
    code = Code::kStreamCaptureUnjoined;
  } else {
    *graph = std::move(capture->graph);
  }
  close(*capture);
  return code;
}

Code CaptureTable::set_dependencies(HostStream& stream, std::span<const NodeHandle> nodes) {
  if (stream.capture == nullptr) return Code::kIllegalState;
  if (stream.capture->status != CaptureStatus::kActive) return Code::kStreamCaptureInvalidated;
  const Graph& graph = *stream.capture->graph;
  const auto is_known = [&](NodeHandle node) { return graph.find(node) != nullptr; };
  if (!std::ranges::all_of(nodes, is_known)) return Code::kInvalidValue;
  stream.tails.assign(nodes.begin(), nodes.end());
  return Code::kSuccess;
}

Code CaptureTable::info(const HostStream& stream, CaptureInfo* info) {
  if (stream.is_legacy() && std::any_of(open_.begin(), open_.end(), [](const auto& capture) {
        return forbids_legacy(*capture);
      })) {
    return Code::kStreamCaptureImplicit;  // 906; a query does not invalidate the capture
  }
  CaptureInfo found;
  if (stream.capture != nullptr) {
    found.status = stream.capture->status;
    if (found.status == CaptureStatus::kActive) {
      found.id = stream.capture->id;
      found.dependencies = stream.tails;
      found.graph = stream.capture->graph->handle();
    }
  }
  *info = std::move(found);
  return Code::kSuccess;
}

void CaptureTable::forget(const HostStream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return;
  if (capture->origin == &stream) {
    close(*capture);
    return;
  }
  std::erase_if(capture->streams, [&](const auto& other) {
    if (other.get() != &stream) return false;
    other->capture = nullptr;
    other->tails.clear();
    return true;
  });
}

Code CaptureTable::admit_unsafe(const ThreadState& caller) {
  Code code = Code::kSuccess;
  for (const auto& capture : open_) {
    if (forbids_unsafe(*capture, caller)) code = refuse(*capture, Code::kStreamCaptureUnsupported);
  }
  return code;
}

Code CaptureTable::admit_legacy() {
  Code code = Code::kSuccess;
  for (const auto& capture : open_) {
    if (forbids_legacy(*capture)) code = refuse(*capture, Code::kStreamCaptureImplicit);
  }
  return code;
}

Code CaptureTable::admit_work(const HostStream& stream) {
  if (stream.is_legacy()) return admit_legacy();
  if (stream.capture == nullptr || stream.capture->status == CaptureStatus::kActive) {
    return Code::kSuccess;
  }
  return Code::kStreamCaptureInvalidated;
}

Code CaptureTable::admit_in_order(const HostStream& stream, const ThreadState& caller) {
  const Code code = admit_work(stream);
  return ok(code) && stream.capture == nullptr ? admit_unsafe(caller) : code;
}

Code CaptureTable::admit_launch(const HostStream& stream) {
  if (stream.is_legacy()) return admit_legacy();
  if (stream.capture == nullptr) return Code::kSuccess;
  return refuse(*stream.capture, Code::kStreamCaptureUnsupported);
}

Code CaptureTable::refuse_launch(const HostStream& stream, Code code) {
  return stream.capture == nullptr ? code : refuse(*stream.capture, code);
}

Code CaptureTable::admit_wait(const HostStream& stream, const ThreadState& caller) {
  const Code code = admit_question(stream);
  return ok(code) ? admit_unsafe(caller) : code;
}

Code CaptureTable::admit_question(const HostStream& stream) {
  if (stream.capture != nullptr) {
    return refuse(*stream.capture, Code::kStreamCaptureUnsupported);
  }
  return stream.is_legacy() ? admit_legacy() : Code::kSuccess;
}

Code CaptureTable::admit_wait(const HostEvent& event, const ThreadState& caller) {
  if (event.capture == nullptr) return admit_unsafe(caller);
  // The event represents nodes of a graph. Once the capture is invalid or has ended, it has no
  // meaning.
  if (event.capture->status != CaptureStatus::kActive) return Code::kInvalidValue;
  return refuse(*event.capture, Code::kCapturedEvent);
}

Code CaptureTable::admit_wait(int device, const ThreadState& caller) {
  Code code = Code::kSuccess;
  for (const auto& capture : open_) {
    const bool is_on_device =
        std::any_of(capture->streams.begin(), capture->streams.end(),
                    [device](const auto& stream) { return stream->device == device; });
    if (is_on_device) code = refuse(*capture, Code::kStreamCaptureUnsupported);
  }
  const Code unsafe = admit_unsafe(caller);
  return ok(code) ? unsafe : code;
}

void CaptureTable::append(HostStream& stream, Work work) {
  stream.tails.reserve(1);  // so that neither adding the node nor setting the tail can fail
  const NodeHandle node = stream.capture->graph->add(std::move(work), stream.tails);
  stream.tails.assign(1, node);
}

void CaptureTable::record(const HostStream& stream, HostEvent& event) {
  event.nodes = stream.tails;
  event.capture = stream.capture;
  event.recorded = true;
}

Code CaptureTable::wait(const std::shared_ptr<HostStream>& stream, const HostEvent& event) {
  const bool is_captured = event.capture != nullptr;
  if (stream->is_legacy()) {
    Code code = admit_legacy();
    if (is_captured && event.capture->status == CaptureStatus::kActive) {
      code = refuse(*event.capture, Code::kStreamCaptureImplicit);
    }
    return ok(code) && is_captured ? Code::kInvalidValue : code;
  }
  if (stream->capture != nullptr) return merge(*stream, event);
  if (!is_captured) return Code::kSuccess;
  if (event.capture->status != CaptureStatus::kActive) return Code::kInvalidValue;
  std::vector<NodeHandle> tails = event.nodes;  // a fork
  event.capture->streams.push_back(stream);
  stream->tails = std::move(tails);
  stream->capture = event.capture;
  return Code::kSuccess;
}

// Handles a wait of a capturing stream.
Code CaptureTable::merge(HostStream& stream, const HostEvent& event) {
  Capture& capture = *stream.capture;
  if (capture.status == CaptureStatus::kInvalidated) return Code::kStreamCaptureInvalidated;
  if (!event.recorded) return Code::kSuccess;
  if (event.capture == nullptr) return refuse(capture, Code::kStreamCaptureIsolation);
  if (event.capture->status != CaptureStatus::kActive) {
    return refuse(capture, Code::kInvalidValue);
  }
  if (event.capture != stream.capture) {
    event.capture->status = CaptureStatus::kInvalidated;
    return refuse(capture, Code::kStreamCaptureMerge);
  }
  add_all(stream.tails, event.nodes);
  return Code::kSuccess;
}

std::shared_ptr<Graph> CaptureTable::find_graph(GraphHandle handle) const {
  for (const auto& capture : open_) {
    if (capture->graph->handle() == handle) return capture->graph;
  }
  return nullptr;
}

void CaptureTable::close(Capture& capture) {
  capture.status = CaptureStatus::kNone;
  if (capture.is_of_body && capture.graph != nullptr) capture.graph->lose();
  capture.graph.reset();  // events recorded in the capture may keep `capture` for long
  for (const auto& stream : std::exchange(capture.streams, {})) {
    stream->tails.clear();
    stream->capture = nullptr;
  }
  std::erase_if(open_, [&](const auto& other) { return other.get() == &capture; });
}

}  // namespace cgtree::host
