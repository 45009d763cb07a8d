// Keeps uses in the order of the context's calls, and collectives as long as their recordings.
#include "extensions/ranks/communicator.h"

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "base/mutex.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/record/step.h"
#include "cgtree/tree/engine.h"
#include "extensions/flow/conditional.h"
#include "extensions/ranks/group.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

// A CollectivesKeeper represents a Collectives in the memory that recordings keep: its last
// reference waits for the work that uses it.
class CollectivesKeeper final : public StorageOwner {
 public:
  // Returns the first reference.
  static StorageRef make(std::shared_ptr<Collectives> collectives) {
    return StorageRef((new CollectivesKeeper(std::move(collectives)))->storage_);
  }

  void release(Storage&) noexcept override {
    wait();
    delete this;
  }
  // A replay on `stream` may still use it. Nothing can wait for an event of a capture.
  void used(Storage&, StreamRef stream) override {
    if (stream.is_capturing()) return;
    const std::lock_guard lock(mutex_);
    last_use_.record(stream);
  }

 private:
  explicit CollectivesKeeper(std::shared_ptr<Collectives> collectives)
      : collectives_(std::move(collectives)),
        storage_(*this, collectives_->device(), StreamRef(), nullptr, 0) {
    storage_.keep_valid();
  }

  // Has a time limit, because another rank may have died.
  void wait() noexcept try {
    const RelaxedCapture relaxed(device_api(collectives_->device()).graphs());
    const auto limit = std::chrono::steady_clock::now() + kCollectivesTimeLimit;
    while (!last_use_.is_reached()) {
      if (std::chrono::steady_clock::now() > limit) collectives_->abort();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "collectives_not_waited_for error=\"{}\"", error.what());
  }

  const std::shared_ptr<Collectives> collectives_;
  Storage storage_;
  Mutex<LockRank::kCommunicator> mutex_;
  Event last_use_;  // guarded by mutex_ while there are references
};

}  // namespace

struct Communicator::State {
  State(std::weak_ptr<Engine> context, std::shared_ptr<Collectives> own)
      : engine(std::move(context)),
        collectives(std::move(own)),
        kept(CollectivesKeeper::make(collectives)) {}
  ~State() { note_use(); }

  // Eager work may still run.
  void note_use() noexcept try {
    if (const auto context = engine.lock()) {
      kept->owner().used(*kept, context->memory->stream());
    }
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "collectives_use_not_noted error=\"{}\"", error.what());
  }

  // Returns the stream of a use.
  StreamRef enter(std::string_view what) const;

  // Weak, because a step function may own its communicator, and is owned by the context.
  const std::weak_ptr<Engine> engine;
  const std::shared_ptr<Collectives> collectives;
  const StorageRef kept;
};

StreamRef Communicator::State::enter(std::string_view what) const {
  const auto context = engine.lock();
  StepScope* const step = StepScope::current();
  if (context == nullptr || step == nullptr || StepScope::innermost() != context->memory.get()) {
    throw InvalidArgument(str_format(
        "{} of a communicator {}: its uses are ordered by the calls of its context; call it in a "
        "step function, between begin() and end(), or in Context::eager()",
        what,
        context == nullptr ? "whose context has ended"
        : step == nullptr  ? "outside of any step"
                           : "inside a step of another context"));
  }
  const StreamRef stream = current_stream();
  if (stream != ordered_stream(*step)) {
    throw InvalidArgument(str_format(
        "{} of a communicator on another stream than the step's: uses on two streams have no order "
        "among the ranks; make the step's stream wait for the other one, and call it there",
        what));
  }
  if (step->allocations().kind != StepAllocations::Kind::kRecord && stream.is_capturing()) {
    throw InvalidArgument(str_format(
        "{} of a communicator while other code captures the stream: the launches of that graph are "
        "not in the order of the context's calls; let the context record the work, or give the "
        "graph collectives of its own",
        what));
  }
  if (StorageAllocator* const allocator = current_allocator()) (void)allocator->keep(kept);
  return stream;
}

Communicator::Communicator(Context& context, std::shared_ptr<Collectives> collectives) {
  if (collectives == nullptr) throw InvalidArgument("a communicator without collectives");
  if (collectives->device() != context.device()) {
    throw InvalidArgument(
        str_format("collectives on {} in a context on {}: both must be on one device",
                   to_string(collectives->device()), to_string(context.device())));
  }
  const Group* const group = context.share_engine()->options.group.get();
  if (group != nullptr &&
      (group->rank() != collectives->rank() || group->size() != collectives->size())) {
    throw InvalidArgument(str_format(
        "collectives of rank {} of {} in a context that is rank {} of {} in its group: give both "
        "the same ranks",
        collectives->rank(), collectives->size(), group->rank(), group->size()));
  }
  state_ = std::make_unique<State>(context.share_engine(), std::move(collectives));
}

Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int Communicator::rank() const noexcept {
  return state_->collectives->rank();
}

int Communicator::size() const noexcept {
  return state_->collectives->size();
}

void Communicator::all_reduce(const Tensor& in, const Tensor& out, Reduction reduction) {
  state_->collectives->all_reduce(state_->enter("all_reduce()"), in, out, reduction);
}

void Communicator::all_gather(const Tensor& in, const Tensor& out) {
  state_->collectives->all_gather(state_->enter("all_gather()"), in, out);
}

void Communicator::broadcast(const Tensor& tensor, int root) {
  state_->collectives->broadcast(state_->enter("broadcast()"), tensor, root);
}

void Communicator::send(const Tensor& tensor, int to) {
  state_->collectives->send(state_->enter("send()"), tensor, to);
}

void Communicator::receive(const Tensor& tensor, int from) {
  state_->collectives->receive(state_->enter("receive()"), tensor, from);
}

void* Communicator::native() const {
  (void)state_->enter("native()");
  return state_->collectives->native();
}

void Communicator::grouped(const std::function<void()>& body) {
  State& state = *state_;
  (void)state.enter("grouped()");
  state.collectives->begin_group();
  try {
    body();
    (void)state.enter("the end of grouped()");
  } catch (...) {
    state.collectives->cancel_group();
    throw;
  }
  state.collectives->end_group();
}

}  // namespace cgtree
