// Serves batches of requests with a package of AOTInductor, eagerly and through cgtree, and prints
// requests per second by bucket.
//
//   examples/aoti_server/export.py --out=decoder.pt2
//   aoti_server decoder.pt2 --json=result.json
//
// Start reading at server.cc. Each step uploads the tokens of a batch, runs the model and downloads
// the next tokens. Exit status: 0 if both modes agree, 1 if they do not, 2 for errors.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "examples/aoti_server/server.h"

namespace cgtree::aoti_server {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string package;
  std::string device = "auto";
  std::int64_t max_batch = 64;
  std::int64_t length = 16;
  std::int64_t vocabulary = 4096;
  std::int64_t steps = 200;
  unsigned seed = 1;
  std::string json;
};

// The requests served in one bucket.
struct Row {
  std::int64_t bucket = 0;
  std::int64_t requests = 0;
  double eager = 0;  // seconds
  double cgtree = 0;
  std::int64_t different = 0;  // tokens that differ from the eager tokens of the padded batch
};

std::vector<std::int64_t> powers_of_two(std::int64_t most) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size < most; size *= 2)
    sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

// Batches of random sizes that are padded to one bucket, in memory of the host.
std::vector<at::Tensor> make_batches(const Options& options, std::int64_t after,
                                     std::int64_t bucket, std::mt19937& random) {
  std::vector<at::Tensor> batches;
  std::uniform_int_distribution<std::int64_t> size(after + 1, bucket);
  for (std::int64_t i = 0; i < options.steps; ++i)
    batches.push_back(at::randint(options.vocabulary, {size(random), options.length}, at::kLong));
  return batches;
}

template <typename Step>
double seconds(const std::vector<at::Tensor>& batches, c10::Device device, const Step& step) {
  for (std::size_t i = 0; i < std::min<std::size_t>(batches.size(), 10); ++i)
    (void)step(batches[i].to(device)).cpu();
  const auto begin = Clock::now();
  for (const at::Tensor& batch : batches)
    (void)step(batch.to(device)).cpu();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::int64_t count_different(Server& server, const std::vector<at::Tensor>& batches,
                             std::int64_t bucket, c10::Device device) {
  std::int64_t different = 0;
  for (const at::Tensor& batch : batches) {
    const std::int64_t size = batch.size(0);
    const at::Tensor padded = at::zeros({bucket, batch.size(1)}, at::kLong);
    padded.slice(0, 0, size).copy_(batch);
    const at::Tensor expected = server.eager(padded.to(device)).slice(0, 0, size);
    different += (server.replayed(batch.to(device)) != expected).sum().item<std::int64_t>();
  }
  return different;
}

void print(const std::vector<Row>& rows, const FunctionStats& stats) {
  std::printf("%8s%12s%16s%16s%10s%12s\n", "bucket", "requests", "eager req/s", "cgtree req/s",
              "faster", "different");
  for (const Row& row : rows) {
    const auto requests = static_cast<double>(row.requests);
    std::printf("%8ld%12ld%16.0f%16.0f%9.2fx%12ld\n", row.bucket, row.requests,
                requests / row.eager, requests / row.cgtree, row.eager / row.cgtree, row.different);
  }
  std::printf("\n%lu calls, %lu replays, %lu recordings\n", stats.calls, stats.replays,
              stats.recordings);
}

void write_json(const std::vector<Row>& rows, const FunctionStats& stats, const Options& options,
                Device device) {
  std::ofstream file(options.json);
  file << "{\"device\": \"" << to_string(device) << "\", \"steps\": " << options.steps
       << ", \"length\": " << options.length << ", \"calls\": " << stats.calls
       << ", \"replays\": " << stats.replays << ", \"recordings\": " << stats.recordings
       << ", \"buckets\": [";
  const char* separator = "";
  for (const Row& row : rows) {
    file << separator << "\n  {\"bucket\": " << row.bucket << ", \"requests\": " << row.requests
         << ", \"eager_seconds\": " << row.eager << ", \"cgtree_seconds\": " << row.cgtree
         << ", \"different\": " << row.different << "}";
    separator = ",";
  }
  file << "]}\n";
  if (!file.flush()) throw InvalidArgument("cannot write " + options.json);
}

int run(const Options& options) {
  const c10::InferenceMode inference;
  const Device device = options.device == "auto"   ? Device::best()
                        : options.device == "cuda" ? Device::cuda()
                                                   : Device::host();
  const c10::Device where = to_torch_device(device);
  const std::vector<std::int64_t> buckets = powers_of_two(options.max_batch);
  Server server(options.package, device, buckets);
  server.prepare(options.length);
  at::manual_seed(options.seed);
  std::mt19937 random(options.seed);
  std::vector<Row> rows;
  std::int64_t after = 0;
  bool is_equal = true;
  for (const std::int64_t bucket : buckets) {
    const std::vector<at::Tensor> batches = make_batches(options, after, bucket, random);
    Row& row = rows.emplace_back(Row{.bucket = bucket});
    for (const at::Tensor& batch : batches)
      row.requests += batch.size(0);
    row.different = count_different(server, batches, bucket, where);
    row.eager = seconds(batches, where, [&](const at::Tensor& t) { return server.eager(t); });
    row.cgtree = seconds(batches, where, [&](const at::Tensor& t) { return server.replayed(t); });
    is_equal = is_equal && row.different == 0;
    after = bucket;
  }
  print(rows, server.stats());
  if (!options.json.empty()) write_json(rows, server.stats(), options, device);
  std::printf("%s\n", is_equal ? "every token is equal" : "tokens differ: this is a bug");
  return is_equal ? 0 : 1;
}

Options parse(int argc, char** argv, CLI::App& app) {
  Options o;
  app.option_defaults()->always_capture_default();
  app.add_option("package", o.package, "a package that export.py has written")->required();
  app.add_option("--device", o.device, "auto is a GPU if there is one, else the host")
      ->check(CLI::IsMember({"auto", "host", "cuda"}));
  app.add_option("--max-batch", o.max_batch, "requests of the largest bucket")
      ->check(CLI::Range(1, 65536));
  app.add_option("--length", o.length, "tokens of a request, as exported")
      ->check(CLI::Range(1, 65536));
  app.add_option("--vocabulary", o.vocabulary, "as exported")->check(CLI::PositiveNumber);
  app.add_option("--steps", o.steps, "batches of each bucket")->check(CLI::Range(1, 1'000'000));
  app.add_option("--seed", o.seed, "of the requests");
  app.add_option("--json", o.json, "a file for the results");
  app.parse(argc, argv);
  return o;
}

}  // namespace
}  // namespace cgtree::aoti_server

int main(int argc, char** argv) {
  CLI::App app("Serves batches with a package of AOTInductor, eagerly and through cgtree.",
               "aoti_server");
  try {
    return cgtree::aoti_server::run(cgtree::aoti_server::parse(argc, argv, app));
  } catch (const CLI::CallForHelp&) {
    std::printf("%s", app.help().c_str());
    return 0;
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "aoti_server: %s\n", error.what_without_backtrace());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "aoti_server: %s; see --help\n", error.what());
    return 2;
  }
}
