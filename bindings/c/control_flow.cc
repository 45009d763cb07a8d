// Branches and loops on the device, and the rows that loops hand out, in C.
#include "extensions/flow/control_flow.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "bindings/c/sized_struct.h"
#include "extensions/flow/loop_stream.h"

namespace cgtree::capi {
namespace {

using Enqueue = std::function<std::vector<Tensor>()>;

// Returns null for a body that is missing.
Enqueue body_of(const cgt_body* body, std::string name, std::size_t results) {
  if (body == nullptr || body->enqueue == nullptr) return nullptr;
  return [body, name = std::move(name), results] {
    const Callback callback(name, /*is_body=*/true);
    std::vector<cgt_tensor> made(results, nullptr);
    callback.call([&] { return body->enqueue(body->user, made.data(), made.size()); });
    return tensors_of(made, "result", name);
  };
}

std::function<void()> without_results(const Enqueue& body) {
  if (!body) return nullptr;
  return [&body] { (void)body(); };
}

std::vector<Tensor> branch_of(const Tensor& predicate, const Enqueue& then,
                              const Enqueue& otherwise, const std::vector<Generator>& generators,
                              bool has_results) {
  if (has_results) return branch_results(predicate, then, otherwise, generators);
  branch(predicate, without_results(then), without_results(otherwise), generators);
  return {};
}

std::vector<Tensor> choose_of(const Tensor& index, std::span<const Enqueue> bodies,
                              const std::vector<Generator>& generators, bool has_results) {
  if (has_results) return choose_results(index, bodies, generators);
  std::vector<std::function<void()>> plain;
  for (const Enqueue& body : bodies)
    plain.push_back(without_results(body));
  choose(index, plain, generators);
  return {};
}

// Returns null for null. make() converts the results of a body to those that loop() expects.
template <typename Round, typename Make>
std::function<Round()> round_of(Enqueue enqueue, const Make& make) {
  if (!enqueue) return nullptr;
  return [enqueue = std::move(enqueue), make] { return make(enqueue()); };
}

void give_rounds(Tensor made, cgt_tensor* rounds) {
  if (rounds != nullptr) *rounds = make_tensor(std::move(made));
}

cgt_loop_row c_row_of(const std::optional<LoopRow>& row) noexcept {
  if (!row) return {};
  return {0, row->round, row->loop, row->bytes, row->is_last ? 1 : 0};
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

// The next two keep the predicate or index alive: a body may destroy its handle.

cgt_status cgt_branch(cgt_tensor predicate, const cgt_body* then, const cgt_body* otherwise,
                      const cgt_generator* generators, size_t generator_count, cgt_tensor* results,
                      size_t result_count) {
  return guarded([&] {
    if (result_count > 0) required(results, "the array of results");
    const Tensor flag = tensor_of(predicate, "the predicate");
    std::vector<Tensor> made =
        branch_of(flag, body_of(then, "then() of branch()", result_count),
                  body_of(otherwise, "otherwise() of branch()", result_count),
                  generators_of(generators, generator_count), result_count > 0);
    give_out(made, results);
  });
}

cgt_status cgt_choose(cgt_tensor index, const cgt_body* bodies, size_t body_count,
                      const cgt_generator* generators, size_t generator_count, cgt_tensor* results,
                      size_t result_count) {
  return guarded([&] {
    if (result_count > 0) required(results, "the array of results");
    const Tensor number = tensor_of(index, "the index");
    std::vector<Enqueue> all;
    for (const cgt_body& body : span_of_c(bodies, body_count, "the array of bodies"))
      all.push_back(body_of(&body, str_format("body {} of choose()", all.size()), result_count));
    std::vector<Tensor> made =
        choose_of(number, all, generators_of(generators, generator_count), result_count > 0);
    give_out(made, results);
  });
}

cgt_status cgt_loop(int64_t max_rounds, const cgt_body* body, const cgt_generator* generators,
                    size_t generator_count, cgt_tensor* rounds) {
  return guarded([&] {
    const auto round =
        round_of<Tensor>(body_of(body, "the body of loop()", 1),
                         [](std::vector<Tensor> made) { return std::move(made[0]); });
    give_rounds(loop(max_rounds, round, generators_of(generators, generator_count)), rounds);
  });
}

cgt_status cgt_loop_rows(int64_t max_rounds, cgt_loop_stream stream, const cgt_body* body,
                         const cgt_generator* generators, size_t generator_count,
                         cgt_tensor* rounds) {
  return guarded([&] {
    const auto pin = LoopStreamTable::pin(stream);
    const auto round =
        round_of<LoopRound>(body_of(body, "the body of loop()", 2), [](std::vector<Tensor> made) {
          return LoopRound{std::move(made[0]), std::move(made[1])};
        });
    give_rounds(loop(max_rounds, *pin, round, generators_of(generators, generator_count)), rounds);
  });
}

cgt_status cgt_loop_stream_create(cgt_device device, size_t row_bytes, size_t rows,
                                  cgt_loop_stream* out) {
  return write_result(out,
                      [&] { return LoopStreamTable::make(device_of_c(device), row_bytes, rows); });
}

cgt_status cgt_loop_stream_destroy(cgt_loop_stream stream) {
  return guarded([&] { LoopStreamTable::destroy(stream); });
}

cgt_status cgt_loop_stream_next(cgt_loop_stream stream, void* buffer, size_t capacity,
                                uint64_t max_microseconds, cgt_loop_row* row) {
  return guarded([&] {
    constexpr std::string_view kWhat = "cgt_loop_row";
    constexpr auto kLongest =
        std::chrono::floor<std::chrono::microseconds>(std::chrono::nanoseconds::max());
    const auto pin = LoopStreamTable::pin(stream);
    auto* const bytes = static_cast<std::byte*>(buffer);
    const std::span<std::byte> to = span_of_c(bytes, capacity, "the buffer");
    expect_room(row, kWhat);
    const auto limit = std::min(microseconds_of_c(max_microseconds), kLongest);
    write_struct(c_row_of(pin->next(to, limit)), row, kWhat);
  });
}

cgt_status cgt_loop_stream_stop(cgt_loop_stream stream) {
  return guarded([&] { LoopStreamTable::pin(stream)->stop(); });
}

}  // extern "C"
