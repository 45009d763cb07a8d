// Loads Open MPI, and votes by MPI_Iallreduce, which is polled until it is done.
#include "extensions/ranks/mpi_group.h"

#include <dlfcn.h>

#include <thread>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "extensions/ranks/block_group.h"
#include "extensions/ranks/symbol.h"

namespace cgtree {
namespace {

// Source: mpi.h of Open MPI 4.1 and 5.0. A handle is the address of a struct; those of predefined
// objects are symbols.
using Handle = void*;
using Block = BlockGroup::Block;
constexpr int kMpiSuccess = 0;
constexpr int kThreadFunneled = 1;

// Open MPI's plugins look for its symbols in the whole process.
void* open_mpi(const std::string& path) {
  if (dlsym(RTLD_DEFAULT, "MPI_Initialized") != nullptr) return RTLD_DEFAULT;
  void* const library =
      dlopen(path.empty() ? "libmpi.so.40" : path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library != nullptr) return library;
  throw InvalidArgument(
      str_format("cannot load MPI ({}): install Open MPI, or name its file in MpiOptions::library",
                 dlerror()));
}

struct MpiLibrary {
  explicit MpiLibrary(const std::string& path) : file(open_mpi(path)) {}
  Symbol find(const char* name) const {
    if (void* const address = dlsym(file, name)) return {address};
    throw InvalidArgument(str_format(
        "the process's MPI has no {}: it is not Open MPI; implement Group over it", name));
  }

  void* const file;
  int (*const initialized)(int* flag) = find("MPI_Initialized");
  int (*const finalized)(int* flag) = find("MPI_Finalized");
  int (*const init_thread)(int* argc, char*** argv, int required,
                           int* provided) = find("MPI_Init_thread");
  int (*const finalize)() = find("MPI_Finalize");
  int (*const comm_dup)(Handle comm, Handle* made) = find("MPI_Comm_dup");
  int (*const comm_free)(Handle* comm) = find("MPI_Comm_free");
  int (*const comm_set_errhandler)(Handle comm, Handle handler) = find("MPI_Comm_set_errhandler");
  int (*const comm_rank)(Handle comm, int* rank) = find("MPI_Comm_rank");
  int (*const comm_size)(Handle comm, int* size) = find("MPI_Comm_size");
  int (*const iallreduce)(const void* in, void* out, int count, Handle type, Handle op, Handle comm,
                          Handle* request) = find("MPI_Iallreduce");
  int (*const test)(Handle* request, int* flag, void* status) = find("MPI_Test");
  const Handle comm_world = find("ompi_mpi_comm_world");
  const Handle errors_return = find("ompi_mpi_errors_return");
  const Handle uint64 = find("ompi_mpi_uint64_t");
  const Handle minimum = find("ompi_mpi_op_min");
};

const MpiLibrary& mpi(const std::string& path) {
  static const MpiLibrary library(path);  // retried at the next call if it throws
  return library;
}

void expect_mpi(int code, const char* what) {
  if (code != kMpiSuccess) throw GroupError(str_format("MPI could not {}: error {}", what, code));
}

// Initializes MPI if the program has not. Returns whether it did.
bool initialize(const MpiLibrary& mpi) {
  int is_finalized = 0;
  int is_initialized = 0;
  expect_mpi(mpi.finalized(&is_finalized), "say whether it is finalized");
  if (is_finalized != 0) {
    throw InvalidArgument("MPI is finalized: make the group before, and end it before");
  }
  expect_mpi(mpi.initialized(&is_initialized), "say whether it is initialized");
  if (is_initialized != 0) return false;
  int provided = 0;
  expect_mpi(mpi.init_thread(nullptr, nullptr, kThreadFunneled, &provided), "initialize");
  return true;
}

// This process's end of a communicator, and its votes there.
class MpiVotes {
 public:
  MpiVotes(const MpiLibrary& mpi, std::chrono::milliseconds limit)
      : mpi_(mpi), limit_(limit), is_ours_(initialize(mpi)) {
    // A duplicated communicator, so that its messages do not mix with others.
    expect_mpi(mpi_.comm_dup(mpi_.comm_world, &comm_), "make a communicator");
    expect_mpi(mpi_.comm_set_errhandler(comm_, mpi_.errors_return), "return errors");
    expect_mpi(mpi_.comm_rank(comm_, &rank_), "tell the rank");
    expect_mpi(mpi_.comm_size(comm_, &size_), "tell how many ranks there are");
  }
  ~MpiVotes() {
    if (has_failed_) {  // the others may be gone, and a vote may still write to the blocks
      (void)blocks_.release();
      return;
    }
    int code = mpi_.comm_free(&comm_);
    if (code == kMpiSuccess && is_ours_) code = mpi_.finalize();
    if (code != kMpiSuccess) log_event(LogLevel::kError, "mpi_group_not_ended error={}", code);
  }
  MpiVotes(const MpiVotes&) = delete;
  MpiVotes& operator=(const MpiVotes&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  void exchange(Block& block) {
    has_failed_ = true;  // until it succeeds
    blocks_->given = block;
    Handle request = nullptr;
    expect_mpi(mpi_.iallreduce(blocks_->given.data(), blocks_->least.data(),
                               static_cast<int>(BlockGroup::kBlockWords), mpi_.uint64, mpi_.minimum,
                               comm_, &request),
               "send a vote");
    const auto end = std::chrono::steady_clock::now() + limit_;
    for (int is_done = 0; is_done == 0;) {
      expect_mpi(mpi_.test(&request, &is_done, nullptr), "wait for a vote");
      if (is_done != 0) break;
      if (std::chrono::steady_clock::now() > end) {
        throw GroupError(str_format("not all of the {} ranks came within {} ms; this is rank {}",
                                    size_, limit_.count(), rank_));
      }
      std::this_thread::yield();
    }
    has_failed_ = false;
    block = blocks_->least;
  }

 private:
  struct Blocks {
    Block given;
    Block least;
  };

  const MpiLibrary& mpi_;
  const std::chrono::milliseconds limit_;
  const bool is_ours_;  // MPI was initialized here
  Handle comm_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
  bool has_failed_ = false;
  std::unique_ptr<Blocks> blocks_ = std::make_unique<Blocks>();
};

}  // namespace

std::unique_ptr<Group> make_mpi_group(const MpiOptions& options) {
  const auto votes = std::make_shared<MpiVotes>(mpi(options.library), options.time_limit);
  return std::make_unique<BlockGroup>(votes->rank(), votes->size(),
                                      [votes](Block& block) { votes->exchange(block); });
}

}  // namespace cgtree
