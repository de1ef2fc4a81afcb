/// One LoRA training step on an OLMoE folder, timed: forward, loss at every position, backward, AdamW. Random token
/// ids. Usage: train_step MODEL --batch B --length L --top-k K --rank R --steps N --threads T. One JSON line on stdout.
/// With --accumulation A a step has A micro-batches of B rows, merged up to --merge-tokens.
/// With --data and --tokenizer, rows of the commonsense training set and loss on their answers; --rows FILE writes
/// their token ids, for a peer.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/process.h"
#include "bench/peak_memory.h"
#include "bench/products_by_name.h"
#include "data/prompt.h"
#include "data/tasks.h"
#include "models/causal_lm.h"
#include "train/local_training.h"
#include "train/optimizer.h"

namespace evenkeel {
namespace {

struct Job {
  std::string model, products = "measured", data, tokenizer, rows;
  int64_t batch = 8, length = 256, top_k = 1, rank = 20, steps = 5, accumulation = 1, merge_tokens = 2048;
  int threads = 2;
};

int64_t rows_of_step(const Job& job) { return job.batch * job.accumulation; }

/// The upper bits of a linear congruence modulo 2^64, which every language can draw.
std::vector<Example> random_rows(const Job& job, int64_t vocab_size) {
  std::vector<Example> rows(static_cast<size_t>(job.steps * rows_of_step(job)));
  uint64_t state = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto step = i / static_cast<size_t>(rows_of_step(job));
    if (i % static_cast<size_t>(rows_of_step(job)) == 0) state = 2 * step + 1;
    for (int64_t t = 0; t < job.length; ++t) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      rows[i].ids.push_back(static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
    }
  }
  return rows;
}

/// Rows of as many steps, in the order they are drawn.
std::vector<Example> commonsense_rows(const Job& job) {
  const auto tokenizer = Tokenizer::load(job.tokenizer);
  const auto set = training_rows("commonsense", {.path = job.data, .limit = job.steps * rows_of_step(job)});
  const auto rows = tokenize_rows(set.rows, tokenizer, {.cutoff = job.length}).examples;
  EK_CHECK(static_cast<int64_t>(rows.size()) == job.steps * rows_of_step(job), kData, rows.size(),
           " rows keep a target, asked ", job.steps * rows_of_step(job));
  OrderedJson written = OrderedJson::array();
  for (const auto& row : rows) written.push_back({{"ids", row.ids}, {"first_target", row.first_target}});
  if (!job.rows.empty()) write_file_atomic(job.rows, written.dump());
  return rows;
}

/// The passes of all steps.
std::vector<std::vector<PackedBatch>> passes_of(const Job& job, int64_t vocab_size) {
  const auto rows = job.data.empty() ? random_rows(job, vocab_size) : commonsense_rows(job);
  auto next = rows.begin();
  std::vector<std::vector<PackedBatch>> steps(static_cast<size_t>(job.steps));
  for (auto& passes : steps) {
    std::vector<ExampleRows> micro_batches(static_cast<size_t>(job.accumulation));
    for (auto& micro_batch : micro_batches)
      for (int64_t i = 0; i < job.batch; ++i) micro_batch.push_back(&*next++);
    for (const auto& pass : merged(micro_batches, job.merge_tokens)) passes.push_back(pack_shared(pass, job.batch));
  }
  return steps;
}

/// The mean of the micro-batches' means, and its gradients.
double learn(const CausalLm& model, const std::vector<PackedBatch>& passes, const ForwardOptions& forward,
             int64_t accumulation) {
  double mean = 0;
  for (const auto& batch : passes) {
    auto total = at::zeros({});
    for (const auto& loss : model.losses(batch, forward)) total = total + loss.sum / static_cast<double>(loss.count);
    total = total / static_cast<double>(accumulation);
    total.backward();
    mean += total.item<double>();
  }
  return mean;
}

std::vector<at::Tensor> leaves_of(AdapterState& adapters) {
  std::vector<at::Tensor> leaves;
  for (auto& [site, factors] : adapters)
    for (auto* factor : {&factors.a, &factors.b}) leaves.push_back(factor->set_requires_grad(true));
  return leaves;
}

OrderedJson run(const Job& job) {
  at::set_num_threads(job.threads);
  const auto model = load_model(job.model);
  const std::vector<std::string> targets = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                            "gate_proj", "up_proj", "down_proj"};
  AdapterState adapters = make_adapters(model->sites(targets), job.rank, 1.0, 7);
  AdamW optimizer(leaves_of(adapters), {});
  ForwardOptions forward;
  forward.adapters = &adapters;
  forward.router.top_k = job.top_k;
  forward.compute.products = bench::products_by_name(job.products);
  const auto steps = passes_of(job, model->spec().vocab_size);
  restart_peak_memory();  // loading does not count

  std::vector<double> seconds, losses;
  std::vector<int64_t> tokens;
  for (const auto& passes : steps) {
    const auto begin = std::chrono::steady_clock::now();
    losses.push_back(learn(*model, passes, forward, job.accumulation));
    optimizer.step(-1, Gradients::kZeroed);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    tokens.push_back(0);
    for (const auto& batch : passes) tokens.back() += batch.tokens();
  }
  return {{"who", "evenkeel"},  {"path", job.products},
          {"seconds", seconds}, {"losses", losses},
          {"tokens", tokens},   {"peak_gib", static_cast<double>(peak_memory_kib()) / (1 << 20)}};
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::settle_process(argv);
  CLI::App program("One LoRA training step on an OLMoE folder, timed");
  evenkeel::Job job;
  program.add_option("model", job.model)->required();
  program.add_option("--batch", job.batch);
  program.add_option("--length", job.length);
  program.add_option("--top-k", job.top_k);
  program.add_option("--rank", job.rank);
  program.add_option("--steps", job.steps);
  program.add_option("--accumulation", job.accumulation, "micro-batches of a step");
  program.add_option("--merge-tokens", job.merge_tokens, "as [train] has it")->capture_default_str();
  program.add_option("--threads", job.threads);
  program.add_option("--products", job.products, "own, dot, native or widen for all, or measured")
      ->capture_default_str();
  program.add_option("--data", job.data, "folder of the commonsense sets");
  program.add_option("--tokenizer", job.tokenizer, "OLMoE's tokenizer.json");
  program.add_option("--rows", job.rows);
  CLI11_PARSE(program, argc, argv);
  try {
    std::cout << evenkeel::run(job).dump() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "train_step: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
