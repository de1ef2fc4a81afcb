/// Measures generation on an OLMoE folder for prompts of the commonsense sets: greedy, with a fixed number of new
/// tokens. Usage: generate MODEL --tokenizer FILE --data FOLDER --rows N --batch B --new N --top-k K --threads T.
/// Prints one JSON line. --prompts FILE writes the prompts' token ids for another program, or with --read-prompts reads
/// them. --device cuda computes on a GPU and reports its allocator's peak. --runs BxK ... generates one batch of B
/// prompts with K experts per token, prints a line, and goes on to the next pair. --tasks NAME ... evaluates instead,
/// in batches of B rows. --evaluate runs whole evaluations with ranking. It prints the seconds per row of each set, the
/// tokens that the model processed, and the minimal time of a layer's products with the base on this machine.
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <utility>

#include "base/plain/clock.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/system/device.h"
#include "base/system/process.h"
#include "bench/machine_limits.h"
#include "bench/peak_memory.h"
#include "data/prompt.h"
#include "data/tasks.h"
#include "models/causal_lm.h"
#include "models/cost.h"
#include "nn/dense/matmul_probe.h"
#include "scoring/generation.h"
#include "scoring/task_evaluation.h"

namespace evenkeel {
namespace {

const std::vector<std::string> kTasks{"boolq", "piqa", "siqa", "hellaswag", "winogrande", "arc_e", "arc_c", "obqa"};

struct Job {
  std::string model, tokenizer, data, prompts, cache = "float32", device = "cpu", engine;
  std::vector<std::string> runs, tasks;
  int64_t rows = 16, batch = 128, tokens = 32, top_k = 8;
  int threads = 2;
  bool alone = false, evaluate = false, read_prompts = false;
};

data::TaskRows rows_of(const Job& job, const std::string& task) {
  const data::RowOptions from{.path = job.data, .limit = job.rows};
  return data::test_rows(data::find_task(task, from), from);
}

nn::KvType cache_of(const Job& job) { return job.cache == "bfloat16" ? nn::KvType::kBFloat16 : nn::KvType::kExact; }

std::vector<scoring::TokenIds> read_prompts(const Job& job) {
  std::vector<scoring::TokenIds> all;
  const Json json = load_json(job.prompts);
  for (const auto& prompt : JsonView(json, job.prompts).items()) all.push_back(prompt.integers(0));
  return all;
}

/// Returns the prompts of all sets, in the order of the sets.
std::vector<scoring::TokenIds> prompts_of(const Job& job, const tokenizer::Tokenizer& tokenizer) {
  const data::Prompts prompts(tokenizer, data::PromptTemplate::kPaper);
  std::vector<scoring::TokenIds> all;
  for (const auto& task : kTasks)
    for (const auto& row : rows_of(job, task).rows) all.push_back(prompts.encode(prompts.evaluation_prompt(row)));
  return all;
}

OrderedJson generated(const Job& job, const models::CausalLm& model, const models::ForwardOptions& forward,
                      std::span<const scoring::TokenIds> prompts) {
  std::vector<scoring::TokenIds> outputs;
  int64_t tokens = 0;
  for (const auto& prompt : prompts) tokens += static_cast<int64_t>(prompt.size());
  const auto begin = std::chrono::steady_clock::now();
  double prefill = 0;
  for (size_t first = 0; first < prompts.size(); first += static_cast<size_t>(job.batch)) {
    const auto batch = prompts.subspan(first, std::min(static_cast<size_t>(job.batch), prompts.size() - first));
    const auto start = std::chrono::steady_clock::now();
    const auto prefix = job.alone ? scoring::PromptPrefix()
                                  : scoring::run_prefix(model, forward, scoring::common_prefix(batch), cache_of(job));
    auto run = scoring::run_prompts(model, forward, batch,
                                    {.max_new_tokens = job.tokens, .cache = cache_of(job), .prefix = &prefix});
    prefill += seconds_since(start);
    for (auto& ids :
         scoring::generate(model, forward, std::move(run), {.max_new_tokens = job.tokens, .eos = scoring::TokenIds{}}))
      outputs.push_back(std::move(ids));
  }
  return {{"seconds", seconds_since(begin)}, {"prefill", prefill}, {"prompt_tokens", tokens}, {"outputs", outputs}};
}

/// A model that counts the tokens that it processes.
class CountedModel final : public models::CausalLm {
 public:
  explicit CountedModel(const models::CausalLm& model) : model_(model) {}
  /// Returns the tokens of each pass since the last call.
  std::vector<int64_t> take_passes() { return std::exchange(passes_, {}); }

  at::Tensor hidden(const data::PackedBatch& batch, const models::ForwardOptions& options) const override {
    passes_.push_back(batch.tokens());
    return model_.hidden(batch, options);
  }
  const models::ModelSpec& spec() const override { return model_.spec(); }
  const nn::FrozenWeight& head() const override { return model_.head(); }
  const lora::Sites& all_sites() const override { return model_.all_sites(); }
  TensorMap parameters() const override { return model_.parameters(); }
  const std::string& config_json() const override { return model_.config_json(); }

 private:
  const models::CausalLm& model_;
  mutable std::vector<int64_t> passes_;
};

/// The minimal time of one layer's products with a bfloat16 base: the time of the multiply-adds at the rate of dot
/// products, or the time to read once the weights that a pass uses, whichever is longer.
class LayerLimit {
 public:
  LayerLimit(const models::ModelSpec& spec, int64_t top_k, const bench::MachineLimits& machine) : machine_(machine) {
    const auto cost = models::forward_cost(spec, {.tokens = 1, .length = 1, .top_k = top_k});
    attention_ = cost.attention_projections / static_cast<double>(spec.num_layers);
    experts_ = cost.experts / static_cast<double>(spec.num_layers);
    top_k_ = static_cast<double>(top_k);
    num_experts_ = static_cast<double>(spec.num_experts);
  }

  double seconds(int64_t tokens) const {
    const auto n = static_cast<double>(tokens);
    // Expected number with even routing.
    const double met = num_experts_ * (1 - std::pow(1 - top_k_ / num_experts_, n));
    const double multiply = 2e-9 * n * (attention_ + experts_) / machine_.bfloat16_gflops,
                 read = 2e-9 * (attention_ + met * experts_ / top_k_) / machine_.gbytes;
    return std::max(multiply, read);
  }

 private:
  bench::MachineLimits machine_;
  double attention_ = 0, experts_ = 0, top_k_ = 0, num_experts_ = 0;  // multiply-adds per token
};

OrderedJson evaluated(const Job& job, const models::CausalLm& model, const models::ForwardOptions& forward,
                      const tokenizer::Tokenizer& tokenizer) {
  const LayerLimit limit(model.spec(), job.top_k, bench::measure_limits(job.threads));
  CountedModel counted(model);
  OrderedJson seconds = OrderedJson::object(), tokens = seconds, limits = seconds;
  for (const auto& task : kTasks) {
    const auto set = rows_of(job, task);
    const scoring::EvaluationOptions options{
        .max_new_tokens = job.tokens, .batch_size = job.batch, .cache = cache_of(job)};
    const scoring::PreparedTask prepared(data::find_task(task, {.path = job.data}), set, tokenizer, model.spec(),
                                         options);
    const auto score = scoring::evaluate_task({counted, tokenizer, forward}, prepared, options);
    const auto rows = static_cast<double>(score.rows);
    double through = 0, least = 0;
    for (const int64_t pass : counted.take_passes()) {
      through += static_cast<double>(pass);
      least += limit.seconds(pass);
    }
    seconds[task] = score.seconds / rows;
    tokens[task] = through / rows;
    limits[task] = least / rows;
  }
  return {{"seconds_per_row", seconds}, {"tokens_per_row", tokens}, {"layer_limit_per_row", limits}};
}

double peak_gib(c10::Device device) {
  if (device.is_cpu()) return static_cast<double>(peak_memory_kib()) / (1 << 20);
  return static_cast<double>(device_memory(device).peak) / (1 << 30);
}

/// Reads "128x8": batch size and experts per token.
void set_run(Job& job, const std::string& text) {
  const int read = std::sscanf(text.c_str(), "%" SCNd64 "x%" SCNd64, &job.batch, &job.top_k);
  EK_CHECK(read == 2 && concat(job.batch, "x", job.top_k) == text, kConfig, "--runs has ", text, ", allowed: BATCHxK");
}

/// Evaluates the tasks in batches of job.batch rows.
OrderedJson tasks_on_device(const Job& job, const models::CausalLm& model, const models::ForwardOptions& forward) {
  const auto tokenizer = tokenizer::Tokenizer::load(job.tokenizer);
  OrderedJson seconds = OrderedJson::object();
  int64_t rows = 0;
  double all = 0;
  for (const auto& name : job.tasks) {
    const data::RowOptions from{.path = job.data, .limit = job.rows};
    const auto task = data::find_task(name, from);
    const scoring::EvaluationOptions options{
        .max_new_tokens = job.tokens, .batch_size = job.batch, .cache = cache_of(job)};
    const scoring::PreparedTask prepared(task, data::test_rows(task, from), tokenizer, model.spec(), options);
    const auto score = scoring::evaluate_task({model, tokenizer, forward}, prepared, options);
    seconds[name] = score.seconds;
    all += score.seconds;
    rows += score.rows;
  }
  return {{"seconds", all}, {"rows", rows}, {"seconds_of_tasks", seconds}};
}

/// Measures generation for given prompts, or evaluation of tasks, on a device: a line for each of --runs.
void run_on_device(Job job, c10::Device device) {
  settle_device(device);
  models::BaseStorage storage;
  storage.engine = nn::EngineKind::kAten;
  storage.device = device;
  const auto model = models::load_model(job.model, storage);
  models::ForwardOptions forward;
  forward.compute = {.engine = nn::EngineKind::kAten, .inner = device.is_cpu() ? at::kFloat : at::kBFloat16};
  const bool one_batch = !job.runs.empty();
  if (!one_batch) job.runs.push_back(concat(job.batch, "x", job.top_k));
  const auto prompts = job.tasks.empty() ? read_prompts(job) : std::vector<scoring::TokenIds>{};
  for (const auto& text : job.runs) {
    set_run(job, text);
    forward.router.top_k = job.top_k;
    restart_peak_memory();
    give_back_device_memory(device);
    reset_peak(device);
    const size_t count = one_batch ? std::min(prompts.size(), static_cast<size_t>(job.batch)) : prompts.size();
    auto result = job.tasks.empty() ? generated(job, *model, forward, std::span(prompts).first(count))
                                    : tasks_on_device(job, *model, forward);
    result["shape"] = text;
    result["peak_gib"] = peak_gib(device);
    std::cout << result.dump() << std::endl;
  }
}

void run(const Job& job) {
  at::set_num_threads(job.threads);
  if (const auto device = find_device(job.device, "--device"); job.engine == "aten" || !device.is_cpu())
    return run_on_device(job, device);
  const auto tokenizer = tokenizer::Tokenizer::load(job.tokenizer);
  const auto prompts = job.read_prompts ? read_prompts(job) : prompts_of(job, tokenizer);
  if (!job.prompts.empty() && !job.read_prompts) write_file_atomic(job.prompts, OrderedJson(prompts).dump());
  const auto model = models::load_model(job.model);
  models::ForwardOptions forward;
  forward.router.top_k = job.top_k;
  forward.compute.products = nn::fastest_kernels(nn::measure_matmuls());
  restart_peak_memory();  // loading is not measured
  auto result = job.evaluate ? evaluated(job, *model, forward, tokenizer) : generated(job, *model, forward, prompts);
  result["peak_gib"] = peak_gib(c10::kCPU);
  std::cout << result.dump() << std::endl;
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::settle_process(argv);
  CLI::App program("Prompts of the commonsense sets answered on an OLMoE folder, timed");
  evenkeel::Job job;
  program.add_option("model", job.model)->required();
  program.add_option("--tokenizer", job.tokenizer);
  program.add_option("--data", job.data);
  program.add_option("--rows", job.rows, "of each of the eight sets");
  program.add_option("--batch", job.batch);
  program.add_option("--new", job.tokens);
  program.add_option("--top-k", job.top_k);
  program.add_option("--threads", job.threads);
  program.add_option("--cache", job.cache)->check(CLI::IsMember({"float32", "bfloat16"}));
  program.add_option("--prompts", job.prompts);
  program.add_flag("--read-prompts", job.read_prompts, "--prompts is read");
  program.add_option("--device", job.device, "cpu, cuda or cuda:N; another one than cpu needs --read-prompts");
  program.add_option("--runs", job.runs, "on a device: BATCHxK, as many as wanted");
  program.add_option("--tasks", job.tasks, "on a device: names of tasks, --rows of each, with --tokenizer and --data");
  program.add_option("--engine", job.engine, "aten: LibTorch's operators on a CPU too")->check(CLI::IsMember({"aten"}));
  program.add_flag("--alone", job.alone, "each prompt whole, without a shared beginning");
  program.add_flag("--evaluate", job.evaluate);
  CLI11_PARSE(program, argc, argv);
  try {
    evenkeel::run(job);
  } catch (const std::exception& error) {
    std::cerr << "generate: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
