/// Measures one LoRA training step on an OLMoE folder: forward, loss at every position, backward, AdamW, with random
/// token ids. Usage: train_step MODEL --batch B --length L --top-k K --rank R --steps N --threads T. Prints one JSON
/// line. --shapes BxLxK ... prints a line for each shape. --device cuda computes on a GPU and reports its allocator's
/// peak. --profile N adds N steps at the end, recorded by operator. --accumulation A gives a step A micro-batches of B
/// rows, merged up to --merge-tokens. --data and --tokenizer use rows of the commonsense training set with the loss on
/// their answers; --rows FILE writes their token ids for another program.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <iostream>

#include "base/plain/clock.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/system/device.h"
#include "base/system/process.h"
#include "bench/operator_profile.h"
#include "bench/peak_memory.h"
#include "bench/products_by_name.h"
#include "data/prompt.h"
#include "data/tasks.h"
#include "models/causal_lm.h"
#include "train/local_training.h"
#include "train/optimizer.h"
#include "train/residence.h"

namespace evenkeel {
namespace {

struct Shape {
  int64_t batch = 8, length = 256, top_k = 1;
  std::string text() const { return concat(batch, "x", length, "x", top_k); }
};

struct Job {
  std::string model, products = "measured", data, tokenizer, rows, device = "cpu", engine;
  Shape shape;
  std::vector<std::string> shapes;
  int64_t rank = 20, steps = 5, accumulation = 1, merge_tokens = 2048, profile = 0;
  int threads = 2;
};

/// "8x256x1": batch, length, experts per token.
Shape shape_of(const std::string& text) {
  Shape shape;
  const int read =
      std::sscanf(text.c_str(), "%" SCNd64 "x%" SCNd64 "x%" SCNd64, &shape.batch, &shape.length, &shape.top_k);
  EK_CHECK(read == 3 && shape.text() == text, kConfig, "--shapes has ", text, ", allowed: BATCHxLENGTHxK");
  return shape;
}

int64_t rows_of_step(const Job& job) { return job.shape.batch * job.accumulation; }

/// Returns rows of the upper bits of a linear congruential generator modulo 2^64, which is easy to repeat in any
/// language.
std::vector<data::Example> random_rows(const Job& job, int64_t vocab_size) {
  std::vector<data::Example> rows(static_cast<size_t>(job.steps * rows_of_step(job)));
  uint64_t state = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto step = i / static_cast<size_t>(rows_of_step(job));
    if (i % static_cast<size_t>(rows_of_step(job)) == 0) state = 2 * step + 1;
    for (int64_t t = 0; t < job.shape.length; ++t) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      rows[i].ids.push_back(static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
    }
  }
  return rows;
}

/// Returns the rows of all steps, in the order in which they are drawn.
std::vector<data::Example> commonsense_rows(const Job& job) {
  const auto tokenizer = tokenizer::Tokenizer::load(job.tokenizer);
  const auto set = data::training_rows("commonsense", {.path = job.data, .limit = job.steps * rows_of_step(job)});
  const auto rows = data::tokenize_rows(set.rows, tokenizer, {.cutoff = job.shape.length}).examples;
  EK_CHECK(static_cast<int64_t>(rows.size()) == job.steps * rows_of_step(job), kData, rows.size(),
           " rows keep a target, asked ", job.steps * rows_of_step(job));
  OrderedJson written = OrderedJson::array();
  for (const auto& row : rows) written.push_back({{"ids", row.ids}, {"first_target", row.first_target}});
  if (!job.rows.empty()) write_file_atomic(job.rows, written.dump());
  return rows;
}

/// Returns the forward passes of all steps.
std::vector<std::vector<data::PackedBatch>> passes_of(const Job& job, int64_t vocab_size) {
  const auto rows = job.data.empty() ? random_rows(job, vocab_size) : commonsense_rows(job);
  auto next = rows.begin();
  std::vector<std::vector<data::PackedBatch>> steps(static_cast<size_t>(job.steps));
  for (auto& passes : steps) {
    std::vector<train::ExampleRows> micro_batches(static_cast<size_t>(job.accumulation));
    for (auto& micro_batch : micro_batches)
      for (int64_t i = 0; i < job.shape.batch; ++i) micro_batch.push_back(&*next++);
    for (const auto& pass : train::merged(micro_batches, job.merge_tokens))
      passes.push_back(data::pack_shared(pass, job.shape.batch));
  }
  return steps;
}

/// Runs one step: the gradients of the mean of the micro-batches' means, then `update`. \return that mean, read at the
/// end
template <typename Update>
double learn(const models::CausalLm& model, const std::vector<data::PackedBatch>& passes,
             const models::ForwardOptions& forward, int64_t accumulation, const Update& update) {
  std::vector<at::Tensor> means;
  for (const auto& batch : passes) {
    at::Tensor total;
    for (const auto& loss : model.losses(batch, forward)) {
      const auto mean = loss.sum / static_cast<double>(loss.count * accumulation);
      total = total.defined() ? total + mean : mean;
    }
    total.backward();
    means.push_back(total.detach());
  }
  update();
  return at::stack(means).sum().item<double>();
}

std::vector<at::Tensor> leaves_of(lora::AdapterState& adapters) {
  std::vector<at::Tensor> leaves;
  for (auto& [site, factors] : adapters)
    for (auto* factor : {&factors.a, &factors.b}) leaves.push_back(factor->set_requires_grad(true));
  return leaves;
}

/// Returns the peak memory since restart_peak(), of the process or of the device's allocator.
double peak_gib(c10::Device device) {
  if (device.is_cpu()) return static_cast<double>(peak_memory_kib()) / (1 << 20);
  return static_cast<double>(device_memory(device).peak) / (1 << 30);
}

void restart_peak(c10::Device device) {
  restart_peak_memory();
  if (device.is_cpu()) return;
  give_back_device_memory(device);
  reset_peak(device);
}

nn::Compute compute_of(const Job& job, c10::Device device) {
  if (job.engine != "aten" && device.is_cpu()) return {.products = bench::products_by_name(job.products)};
  return {.engine = nn::EngineKind::kAten, .inner = device.is_cpu() ? at::kFloat : at::kBFloat16};
}

/// Runs `step` job.profile times and returns the time of each operator. All times and counts are sums over the steps.
template <typename Step>
OrderedJson profiled(const Job& job, c10::Device device, const Step& step) {
  constexpr size_t kListed = 30;
  step();  // the recorded steps begin with the allocator's memory and the device's clock as in a long run
  synchronize(device);
  bench::OperatorProfile profile(device);
  for (int64_t i = 0; i < job.profile; ++i) step();
  synchronize(device);
  auto result = profile.finish(kListed);
  result["steps"] = job.profile;
  return result;
}

/// Runs steps of one shape, with new adapters and moments.
OrderedJson run_shape(const Job& job, const models::CausalLm& model, const nn::Compute& compute, c10::Device device) {
  const std::vector<std::string> targets = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                            "gate_proj", "up_proj", "down_proj"};
  auto copies = StorageCopies::to(device);
  auto adapters = train::copied(lora::make_adapters(model.sites(targets), job.rank, 1.0, 7), copies);
  train::AdamW optimizer(leaves_of(adapters), {}, compute.engine);
  models::ForwardOptions forward;
  forward.adapters = &adapters;
  forward.router.top_k = job.shape.top_k;
  forward.compute = compute;
  const auto steps = passes_of(job, model.spec().vocab_size);
  restart_peak(device);  // loading is not measured

  std::vector<double> seconds, losses;
  std::vector<int64_t> tokens;
  const auto step = [&](const std::vector<data::PackedBatch>& passes) {
    return learn(model, passes, forward, job.accumulation, [&] { optimizer.step(-1, train::Gradients::kZeroed); });
  };
  for (const auto& passes : steps) {
    const auto begin = std::chrono::steady_clock::now();
    losses.push_back(step(passes));
    synchronize(device);
    seconds.push_back(seconds_since(begin));
    tokens.push_back(0);
    for (const auto& batch : passes) tokens.back() += batch.tokens();
  }
  OrderedJson result{{"who", "evenkeel"}, {"path", job.products}, {"shape", job.shape.text()},   {"seconds", seconds},
                     {"losses", losses},  {"tokens", tokens},     {"peak_gib", peak_gib(device)}};
  if (job.profile > 0) result["profile"] = profiled(job, device, [&] { step(steps.back()); });
  return result;
}

void run(Job job) {
  at::set_num_threads(job.threads);
  const auto device = find_device(job.device, "--device");
  settle_device(device);
  const auto compute = compute_of(job, device);
  models::BaseStorage storage;
  storage.engine = compute.engine;
  storage.device = device;
  const auto model = models::load_model(job.model, storage);
  if (job.shapes.empty()) job.shapes.push_back(job.shape.text());
  for (const auto& text : job.shapes) {
    job.shape = shape_of(text);
    std::cout << run_shape(job, *model, compute, device).dump() << std::endl;
  }
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::settle_process(argv);
  CLI::App program("One LoRA training step on an OLMoE folder, timed");
  evenkeel::Job job;
  program.add_option("model", job.model)->required();
  program.add_option("--batch", job.shape.batch);
  program.add_option("--length", job.shape.length);
  program.add_option("--top-k", job.shape.top_k);
  program.add_option("--rank", job.rank);
  program.add_option("--steps", job.steps);
  program.add_option("--accumulation", job.accumulation, "micro-batches of a step");
  program.add_option("--merge-tokens", job.merge_tokens, "as [train] has it")->capture_default_str();
  program.add_option("--threads", job.threads);
  program.add_option("--shapes", job.shapes, "BATCHxLENGTHxK, as many as wanted, in the place of the three");
  program.add_option("--profile", job.profile, "steps that are recorded by operator after the timed ones");
  program.add_option("--device", job.device, "cpu, cuda or cuda:N")->capture_default_str();
  program.add_option("--engine", job.engine, "aten: LibTorch's operators on a CPU too")->check(CLI::IsMember({"aten"}));
  program.add_option("--products", job.products, evenkeel::bench::kProductsHelp)->capture_default_str();
  program.add_option("--data", job.data, "folder of the commonsense sets");
  program.add_option("--tokenizer", job.tokenizer, "OLMoE's tokenizer.json");
  program.add_option("--rows", job.rows);
  CLI11_PARSE(program, argc, argv);
  try {
    evenkeel::run(job);
  } catch (const std::exception& error) {
    std::cerr << "train_step: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
