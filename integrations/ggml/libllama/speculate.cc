// Speculative decoding with libllama, a target and a draft model, as in llama-server with
// --spec-type draft-simple: greedy, one sequence. Counts ggml's log lines about CUDA graphs:
// "warmup complete" and "warmup reset" (llama.cpp#28652).
//
// usage: speculate MODEL DRAFT|none [--tokens N] [--draft_max N] [--vary 0|1] [--gpu 0|1] [--seed
// N] [--prompt N]
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

static int warm_ups = 0, resets = 0;

static void count_or_log(ggml_log_level level, const char* text, void*) {
  if (std::strstr(text, "CUDA graph warmup complete")) ++warm_ups;
  if (std::strstr(text, "CUDA graph warmup reset")) ++resets;
  if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

static double now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Times {
  std::vector<double> decode, wait;
};

struct Model {
  Model(const char* file, bool on_gpu, int context_tokens) {
    llama_model_params of_model = llama_model_default_params();
    of_model.n_gpu_layers = on_gpu ? 99 : 0;
    model = llama_model_load_from_file(file, of_model);
    if (!model) std::exit((std::fprintf(stderr, "no model %s\n", file), 1));
    llama_context_params params = llama_context_default_params();
    params.n_ctx = context_tokens;
    params.n_batch = params.n_ubatch = 512;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.n_threads = params.n_threads_batch = 2;
    context = llama_init_from_model(model, params);
    if (!context) std::exit((std::fprintf(stderr, "no context for %s\n", file), 1));
    vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  }
  // Decodes tokens at positions from `first` on. Returns the likeliest token after each of the last
  // `wanted`.
  std::vector<llama_token> decode(const std::vector<llama_token>& tokens, int first,
                                  std::size_t wanted, Times* times) {
    llama_batch batch = llama_batch_init(static_cast<int>(tokens.size()), 0, 1);
    batch.n_tokens = static_cast<int>(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      batch.token[i] = tokens[i];
      batch.pos[i] = first + static_cast<int>(i);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = i + wanted >= tokens.size();
    }
    const double begin = now();
    if (llama_decode(context, batch) != 0)
      std::exit((std::fprintf(stderr, "llama_decode failed\n"), 1));
    const double submitted = now();
    llama_synchronize(context);
    if (times) times->decode.push_back(submitted - begin), times->wait.push_back(now() - submitted);
    std::vector<llama_token> next;
    for (std::size_t i = tokens.size() - wanted; i < tokens.size(); ++i) {
      const float* logits = llama_get_logits_ith(context, static_cast<int>(i));
      next.push_back(
          static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits));
    }
    llama_batch_free(batch);
    return next;
  }
  void keep(int positions) { llama_memory_seq_rm(llama_get_memory(context), 0, positions, -1); }
  ~Model() {
    llama_free(context);
    llama_model_free(model);
  }

  llama_model* model;
  llama_context* context;
  int vocabulary;
};

static void print(const char* name, std::vector<double> times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (double time : times)
    sum += time;
  std::printf("  \"%s\": {\"calls\": %zu, \"median\": %.1f, \"mean\": %.1f, \"p99\": %.1f},\n",
              name, times.size(), times[times.size() / 2], sum / times.size(),
              times[times.size() * 99 / 100]);
}

int main(int count, char** arguments) {
  if (count < 3)
    return std::fprintf(stderr, "usage: speculate MODEL DRAFT|none [--NAME N]...\n"), 2;
  int wanted = 256, draft_max = 3, vary = 0, gpu = 1, seed = 1, prompt = 64;
  for (int i = 3; i + 1 < count; i += 2) {
    const std::string name = arguments[i];
    const int value = std::atoi(arguments[i + 1]);
    (name == "--tokens"      ? wanted
     : name == "--draft_max" ? draft_max
     : name == "--vary"      ? vary
     : name == "--gpu"       ? gpu
     : name == "--seed"      ? seed
                             : prompt) = value;
  }
  llama_backend_init();
  llama_log_set(count_or_log, nullptr);
  const bool has_draft = std::strcmp(arguments[2], "none") != 0;
  {
    const int context = (prompt + wanted + draft_max + 64 + 255) / 256 * 256;
    Model target(arguments[1], gpu != 0, context);
    Model* draft = has_draft ? new Model(arguments[2], gpu != 0, context) : nullptr;
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<llama_token> text;
    for (int i = 0; i < prompt; ++i)
      text.push_back(259 + static_cast<int>(random() % 31000));
    text.push_back(target.decode(text, 0, 1, nullptr).back());
    std::size_t drafted_to = 0;  // positions that the draft's cache has
    if (draft) {
      draft->decode({text.begin(), text.end() - 1}, 0, 1, nullptr);
      drafted_to = text.size() - 1;
    }
    const int warm_ups_before = warm_ups, resets_before = resets;
    Times of_target, of_draft;
    std::size_t drafted = 0, accepted = 0;
    const double begin = now();
    while (text.size() < static_cast<std::size_t>(prompt + wanted)) {
      std::vector<llama_token> batch{text.back()};
      const int position = static_cast<int>(text.size()) - 1;
      const int most =
          draft ? (vary ? 1 + static_cast<int>(random() % static_cast<unsigned>(draft_max))
                        : draft_max)
                : 0;
      std::vector<llama_token> fed;
      if (draft) fed.assign(text.begin() + static_cast<std::ptrdiff_t>(drafted_to), text.end());
      for (int i = 0; i < most; ++i) {
        const llama_token next =
            draft->decode(fed, static_cast<int>(drafted_to), 1, &of_draft).back();
        drafted_to += fed.size();
        fed.assign(1, next);
        batch.push_back(next);
      }
      const std::vector<llama_token> next =
          target.decode(batch, position, batch.size(), &of_target);
      std::size_t taken = 0;
      do
        text.push_back(next[taken++]);
      while (taken < batch.size() && batch[taken] == next[taken - 1]);
      drafted += batch.size() - 1;
      accepted += taken - 1;
      target.keep(position + static_cast<int>(taken));
      if (draft) {
        drafted_to = std::min(drafted_to, text.size() - 1);
        draft->keep(static_cast<int>(drafted_to));
      }
    }
    const double seconds = (now() - begin) / 1e6;
    std::uint64_t hash = 14695981039346656037U;
    for (int i = 0; i < prompt + wanted; ++i)
      hash = (hash ^ static_cast<std::uint32_t>(text[i])) * 1099511628211U;
    std::printf(
        "{\n  \"tokens\": %zu, \"drafted\": %zu, \"accepted\": %zu, \"tokens_hash\": "
        "\"%016llx\",\n",
        text.size() - prompt, drafted, accepted, static_cast<unsigned long long>(hash));
    print("target_decode_us", of_target.decode);
    print("target_wait_us", of_target.wait);
    print("draft_decode_us", of_draft.decode);
    print("draft_wait_us", of_draft.wait);
    std::printf("  \"warm_ups\": %d, \"resets\": %d,\n", warm_ups - warm_ups_before,
                resets - resets_before);
    std::printf("  \"seconds\": %.4f, \"tokens_per_second\": %.1f\n}\n", seconds,
                (text.size() - prompt) / seconds);
    delete draft;
  }
  return 0;
}
