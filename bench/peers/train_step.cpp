/// One LoRA training step on an OLMoE folder, timed: forward, loss at every position, backward, AdamW. Random token
/// ids. Usage: train_step MODEL --batch B --length L --top-k K --rank R --steps N --threads T. One JSON line on stdout.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>

#include "base/json.h"
#include "base/wait_policy.h"
#include "bench/peak_memory.h"
#include "bench/products_by_name.h"
#include "models/causal_lm.h"
#include "train/optimizer.h"

namespace evenkeel {
namespace {

struct Job {
  std::string model, products = "measured";
  int64_t batch = 8, length = 256, top_k = 1, rank = 20, steps = 5;
  int threads = 2;
};

/// The upper bits of a linear congruence modulo 2^64, which every language can draw.
PackedBatch random_batch(const Job& job, int64_t vocab_size, int64_t step) {
  uint64_t state = 2 * static_cast<uint64_t>(step) + 1;
  std::vector<std::vector<int64_t>> texts(static_cast<size_t>(job.batch));
  for (auto& ids : texts)
    for (int64_t i = 0; i < job.length; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      ids.push_back(static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
    }
  return pack_ids(texts);
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
  forward.products = bench::products_by_name(job.products);
  restart_peak_memory();  // loading does not count

  std::vector<double> seconds, losses;
  for (int64_t step = 0; step < job.steps; ++step) {
    const PackedBatch batch = random_batch(job, model->spec().vocab_size, step);
    const auto begin = std::chrono::steady_clock::now();
    const LossSum loss = model->loss(batch, forward);
    const at::Tensor mean = loss.sum / static_cast<double>(loss.count);
    mean.backward();
    optimizer.step(-1, Gradients::kZeroed);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    losses.push_back(mean.item<double>());
  }
  return {{"who", "evenkeel"},
          {"path", job.products},
          {"seconds", seconds},
          {"losses", losses},
          {"peak_gib", static_cast<double>(peak_memory_kib()) / (1 << 20)}};
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::let_waiting_threads_sleep(argv);
  CLI::App program("One LoRA training step on an OLMoE folder, timed");
  evenkeel::Job job;
  program.add_option("model", job.model)->required();
  program.add_option("--batch", job.batch);
  program.add_option("--length", job.length);
  program.add_option("--top-k", job.top_k);
  program.add_option("--rank", job.rank);
  program.add_option("--steps", job.steps);
  program.add_option("--threads", job.threads);
  program.add_option("--products", job.products, "own, dot, native or widen for all, or measured")
      ->capture_default_str();
  CLI11_PARSE(program, argc, argv);
  try {
    std::cout << evenkeel::run(job).dump() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "train_step: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
