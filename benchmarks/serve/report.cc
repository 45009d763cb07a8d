// Lays out the table and the JSON of a run, compares tokens, and writes files whole.
#include "benchmarks/serve/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>
#include <variant>

#include "base/error.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree::serve {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

// Adds a row to the table. The cells of modes that were not served stay empty.
template <typename Say>
void add_row(std::string& table, const Report& report, std::string_view label, Say say) {
  const auto cell = [&say](const Served* served) {
    return served != nullptr ? say(*served) : std::string();
  };
  fmt::format_to(std::back_inserter(table), "{:<26}{:>14}{:>14}\n", label,
                 cell(report.eager ? &*report.eager : nullptr), cell(report.cgtree()));
}

std::uint64_t skips(const Served& served, int reason) {
  return served.context.skips[static_cast<std::size_t>(reason)];
}

void add_skips(std::string& table, const Report& report) {
  for (int i = 0; i < kSkipReasonCount; ++i) {
    const Served* const cgtree = report.cgtree();
    if ((!report.eager || skips(*report.eager, i) == 0) &&
        (cgtree == nullptr || skips(*cgtree, i) == 0)) {
      continue;
    }
    add_row(table, report, fmt::format("skips: {}", name(static_cast<SkipReason>(i))),
            [&](const Served& s) { return fmt::format("{}", skips(s, i)); });
  }
}

std::string percent(double share) {
  return fmt::format("{:.2f} %", 100 * share);
}

std::string policy_table(const std::vector<PolicyRun>& runs) {
  std::string table =
      fmt::format("\n{:<10}{:>7}{:>10}{:>9}{:>9}{:>6}{:>6}{:>8}{:>8}{:>12}{:>12}{:>11}\n", "policy",
                  "budget", "replayed", "padded", "prefill", "made", "kept", "evicted", "host us",
                  "pool bytes", "graph bytes", "tokens/s");
  for (const PolicyRun& run : runs) {
    const Served& s = run.served;
    fmt::format_to(std::back_inserter(table),
                   "{:<10}{:>7}{:>10}{:>9}{:>9}{:>6}{:>6}{:>8}{:>8.2f}{:>12}{:>12}{:>11.0f}\n",
                   name(run.policy), run.budget == 0 ? "none" : fmt::format("{}", run.budget),
                   percent(s.replay_share()), percent(s.decode_work.share()),
                   percent(s.prefill_work.share()), s.context.recordings, s.context.kept_recordings,
                   s.context.evictions, s.host_us_per_step, s.context.pool_reserved_bytes,
                   s.context.graph_bytes, s.tokens_per_second());
  }
  return table + "\nreplayed: of decode steps; padded, prefill: share of rows that are padding\n";
}

std::string heading(const Report& report) {
  const Options& options = report.options;
  const ModelConfig& model = options.model;
  const DeviceFacts& facts = report.device;
  return fmt::format(
      "{} requests, {} tokens in {} steps on {}{}\n"
      "{} layers, hidden {}, {} heads, {} of keys, vocabulary {}, context {}, max batch {}\n\n",
      report.requests, report.main().generated, report.main().steps, to_string(facts.device),
      facts.name.empty() ? "" : fmt::format(" ({})", facts.name), model.layers, model.hidden,
      model.heads, model.kv_heads, model.vocabulary, options.context, options.max_batch);
}

std::string verdict(const Report& report) {
  if (const PolicyRun* const run = report.differing()) {
    return fmt::format("\ntokens differ, policy {}, budget {}: {}\n", name(run->policy),
                       run->budget, to_string(*run->difference));
  }
  if (report.eager && !report.runs.empty()) return "\nevery token equal in both modes\n";
  return {};
}

Json timing_json(const Served& served) {
  return {{"tokens_per_second", served.tokens_per_second()},
          {"host_us_per_step", served.host_us_per_step},
          {"step_us_p50", served.step_us_p50},
          {"step_us_p99", served.step_us_p99},
          {"seconds", served.seconds}};
}

Json model_json(const Options& options) {
  const ModelConfig& model = options.model;
  return {{"layers", model.layers},
          {"hidden", model.hidden},
          {"heads", model.heads},
          {"kv_heads", model.kv_heads},
          {"head_size", model.head_size},
          {"ffn", model.ffn},
          {"vocabulary", model.vocabulary},
          {"context", options.context},
          {"max_batch", options.max_batch},
          {"ranks", options.ranks},
          {"parameters", model.parameters()},
          {"seed", options.seed}};
}

Json stats_json(const FunctionStats& stats) {
  Json json = {{"calls", stats.calls},           {"warm_ups", stats.warm_ups},
               {"recordings", stats.recordings}, {"replays", stats.replays},
               {"evictions", stats.evictions},   {"skips", Json::object()}};
  for (int i = 0; i < kSkipReasonCount; ++i) {
    json["skips"][std::string(name(static_cast<SkipReason>(i)))] =
        stats.skips[static_cast<std::size_t>(i)];
  }
  return json;
}

Json share_json(std::optional<double> share) {
  return share ? Json(*share) : Json();
}

// The verified replays, the number of all replays, and the tensors that were compared.
Json verification_json(const Served& served) {
  const ContextStats& stats = served.context;
  const double share =
      stats.replays == 0 ? 0
                         : static_cast<double>(stats.verified) / static_cast<double>(stats.replays);
  Json json = {{"verify_every", served.verification.every},
               {"verified", stats.verified},
               {"differed", stats.differed},
               {"verified_share", share},
               {"left_out", Json::object()},
               {"functions", Json::object()}};
  for (int i = 0; i < kUnverifiedReasonCount; ++i) {
    json["left_out"][std::string(name(static_cast<UnverifiedReason>(i)))] =
        stats.unverified[static_cast<std::size_t>(i)];
  }
  for (const FunctionVerification& function : served.verification.functions) {
    Json entry = {{"verified", function.verified},
                  {"recordings_verified", function.verified_recordings},
                  {"recordings_waiting", function.waiting_recordings},
                  {"recordings_left_out", function.unverified_recordings},
                  {"compared", Json::array()}};
    for (const VerifiedTensor& tensor : function.tensors) {
      entry["compared"].push_back({{"what", tensor.what}, {"largest_difference", tensor.largest}});
    }
    json["functions"][function.function] = std::move(entry);
  }
  return json;
}

Json policy_json(const PolicyRun& run, bool compared) {
  const Served& s = run.served;
  Json json = {{"policy", name(run.policy)},
               {"budget", run.budget},
               {"tokens_equal", compared ? Json(!run.difference) : Json()},
               {"replay_share", s.replay_share()},
               {"replay_share_after_100", share_json(s.replay_share_after_100)},
               {"decode_padded_share", s.decode_work.share()},
               {"prefill_padded_share", s.prefill_work.share()},
               {"recordings_made", s.context.recordings},
               {"recordings_kept", s.context.kept_recordings},
               {"evictions", s.context.evictions},
               {"pool_bytes", s.context.pool_reserved_bytes},
               {"graph_bytes", s.context.graph_bytes},
               {"decode", stats_json(s.decode)},
               {"prefill", stats_json(s.prefill)}};
  json.update(timing_json(s));
  if (s.verification.every > 0) json["verification"] = verification_json(s);
  return json;
}

// All are zero if only the eager mode was served.
void add_counters(Json& json, const Report& report) {
  const Served& main = report.main();
  json.update(stats_json(main.context));
  json["pool_bytes"] = main.context.pool_reserved_bytes;
  json["replay_share_after_100"] = share_json(main.replay_share_after_100);
}

using Tokens = TokenLists::value_type;

std::optional<std::int32_t> at(const Tokens& tokens, std::size_t index) {
  return index < tokens.size() ? std::optional(tokens[index]) : std::nullopt;
}

[[noreturn]] void fail(const fs::path& path, std::string_view reason) {
  throw InvalidArgument(fmt::format("cannot write '{}': {}", path.string(), reason));
}

// A TemporaryFile is removed at the end of the scope, unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target)
      : target_(target), path_(fmt::format("{}.{}.tmp", target.string(), getpid())) {
    errno = 0;
    file_.open(path_, std::ios::binary | std::ios::trunc);
    if (!file_) fail(target_, std::strerror(errno));
  }
  ~TemporaryFile() {
    std::error_code ignored;
    if (!renamed_) fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::string_view text) {
    errno = 0;
    file_.write(text.data(), static_cast<std::streamsize>(text.size()));
    file_.close();
    if (!file_) fail(target_, std::strerror(errno));
  }

  void rename() {
    std::error_code error;
    fs::rename(path_, target_, error);
    if (error) fail(target_, error.message());
    renamed_ = true;
  }

 private:
  fs::path target_;
  fs::path path_;
  std::ofstream file_;
  bool renamed_ = false;
};

// Returns the file that `path` leads to, so that a link remains a link. Renaming over a device or a
// folder would replace it, so both are refused.
fs::path resolve(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::weakly_canonical(path, error);
  if (error) fail(path, error.message());
  if (path.empty() || !target.has_filename()) fail(path, "it has no file name");
  const fs::file_status status = fs::status(target, error);
  if (fs::is_symlink(target, error)) fail(path, "it is a link to nothing");
  if (fs::is_directory(status)) fail(path, "it is a folder");
  if (fs::exists(status) && !fs::is_regular_file(status)) fail(path, "it is not a regular file");
  return target;
}

}  // namespace

const PolicyRun* Report::differing() const {
  for (const PolicyRun& run : runs) {
    if (run.difference) return &run;
  }
  return nullptr;
}

DeviceFacts device_facts(Device device) {
  DeviceAPI& api = device_api(device);
  DeviceFacts facts{.device = device};
  const AttributeValue name = api.attribute(device.id, DeviceAttribute::kName);
  if (const auto* text = std::get_if<std::string>(&name)) facts.name = *text;
  const AttributeValue driver = api.attribute(device.id, DeviceAttribute::kDriverVersion);
  if (const auto* number = std::get_if<std::int64_t>(&driver)) facts.driver_version = *number;
  const AttributeValue release = api.attribute(device.id, DeviceAttribute::kDriverRelease);
  if (const auto* text = std::get_if<std::string>(&release)) facts.driver = *text;
  return facts;
}

std::string to_table(const Report& report) {
  std::string table = heading(report);
  fmt::format_to(std::back_inserter(table), "{:<26}{:>14}{:>14}\n", "", report.eager ? "eager" : "",
                 report.runs.empty() ? "" : "cgtree");
  const auto add = [&](std::string_view label, auto say) { add_row(table, report, label, say); };
  add("tokens/s", [](const Served& s) { return fmt::format("{:.0f}", s.tokens_per_second()); });
  add("step latency p50, us", [](const Served& s) { return fmt::format("{:.1f}", s.step_us_p50); });
  add("step latency p99, us", [](const Served& s) { return fmt::format("{:.1f}", s.step_us_p99); });
  add("host us per step",
      [](const Served& s) { return fmt::format("{:.2f}", s.host_us_per_step); });
  const auto add_count = [&](std::string_view label, auto count) {
    add(label, [&](const Served& s) { return fmt::format("{}", count(s)); });
  };
  add("decode steps replayed", [](const Served& s) { return percent(s.replay_share()); });
  add("decode rows padded", [](const Served& s) { return percent(s.decode_work.share()); });
  add_count("recordings", [](const Served& s) { return s.context.recordings; });
  add_count("replays", [](const Served& s) { return s.context.replays; });
  add_skips(table, report);
  add_count("pool bytes", [](const Served& s) { return s.context.pool_reserved_bytes; });
  if (!report.runs.empty()) table += policy_table(report.runs);
  if (report.device.device.type == DeviceType::kHost) {
    table += "\non the host device both times include the computation itself\n";
  }
  return table + verdict(report);
}

nlohmann::ordered_json to_json(const Report& report) {
  const Options& options = report.options;
  const bool both = report.eager && !report.runs.empty();
  Json json = {
      {"device", to_string(report.device.device)},
      {"device_name", report.device.name},
      {"driver_version", report.device.driver_version},
      {"driver", report.device.driver},
      {"commit", options.commit},
      {"command", options.command},
      {"model", model_json(options)},
      {"trace",
       options.trace ? fs::path(*options.trace).filename().string() : std::string("seeded")},
      {"prompt", options.prompt},
      {"step_ms", options.step_ms},
      {"requests", report.requests},
      {"tokens", report.main().generated},
      {"steps", report.main().steps},
      {"tokens_equal", both && report.eager ? Json(report.differing() == nullptr) : Json()}};
  add_counters(json, report);
  if (report.eager) json["eager"] = timing_json(*report.eager);
  if (report.cgtree() != nullptr) json["cgtree"] = timing_json(*report.cgtree());
  for (const PolicyRun& run : report.runs)
    json["policies"].push_back(
        policy_json(run, report.eager.has_value() && run.policy != Policy::kLearned));
  return json;
}

std::optional<Difference> find_difference(const TokenLists& eager, const TokenLists& cgtree) {
  static const Tokens kNone;
  for (std::size_t i = 0; i < std::max(eager.size(), cgtree.size()); ++i) {
    const Tokens& a = i < eager.size() ? eager[i] : kNone;
    const Tokens& b = i < cgtree.size() ? cgtree[i] : kNone;
    if (a == b) continue;
    const auto place = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    const auto index = static_cast<std::size_t>(place);
    return Difference{i, index, at(a, index), at(b, index)};
  }
  return std::nullopt;
}

std::string to_string(const Difference& difference) {
  const auto say = [](std::optional<std::int32_t> token) {
    return token ? fmt::format("{}", *token) : std::string("none");
  };
  return fmt::format("request {}, token {}: {} eagerly, {} through cgtree", difference.request,
                     difference.index, say(difference.eager), say(difference.cgtree));
}

void expect_writable(const fs::path& path) {
  const TemporaryFile probe(resolve(path));
}

void write_whole(const fs::path& path, std::string_view text) {
  TemporaryFile file(resolve(path));
  file.write(text);
  file.rename();
}
}  // namespace cgtree::serve
