#include "fed/run/computed_speed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/plain/clock.h"
#include "base/system/device.h"
#include "base/system/machine.h"
#include "fed/round/round.h"
#include "fed/run/machine_speed.h"
#include "models/cost.h"

namespace evenkeel::fed {
namespace {

constexpr int64_t kLargeModel = int64_t{2} << 30;  // bytes; more would be read for minutes
constexpr double kProductSeconds = 0.3;
constexpr int64_t kProductWidth = 2048, kProductRows = 256;
constexpr int64_t kSampledRows = 32;  // of each task, for the mean length of a prompt

double speed_of_product(c10::Device device, at::ScalarType dtype) {
  const auto options = at::TensorOptions().device(device).dtype(dtype);
  const auto x_TI = at::ones({kProductRows, kProductWidth}, options);
  const auto w_IO = at::ones({kProductWidth, kProductWidth}, options);
  const auto one_product = [&] { at::mm(x_TI, w_IO).sum().to(at::kFloat).item<float>(); };  // waits for the device
  one_product();
  const auto begin = std::chrono::steady_clock::now();
  double count = 0;
  for (; count < 1 || seconds_since(begin) < kProductSeconds; ++count) one_product();
  return 2 * count * kProductRows * kProductWidth * kProductWidth / seconds_since(begin);
}

/// Returns true if the device has instructions for products of bfloat16.
bool multiplies_bfloat16(c10::Device device) {
  if (!device.is_cpu()) return true;
  const auto flags = machine::processor_field("flags") + machine::processor_field("Features");
  return flags.find("bf16") != flags.npos;
}

/// Returns the sites with one input and one output each.
lora::Sites smallest(lora::Sites sites) {
  for (auto& [name, site] : sites) site.in = site.out = 1;
  return sites;
}

double mean_row_length(const Shards& shards) {
  double tokens = 0, rows = 0;
  for (const auto& shard : shards.examples)
    for (const auto& row : shard) tokens += static_cast<double>(row.ids.size()), ++rows;
  return rows > 0 ? tokens / rows : 1;
}

/// Returns the mean number of tokens of a test row, prompt and answer, over tasks.
double mean_scored_length(const ClientContext& context) {
  const auto& evaluate = context.config.evaluate;
  const int64_t limit = evaluate.limit > 0 ? std::min(kSampledRows, evaluate.limit) : kSampledRows;
  double tokens = 0, rows = 0;
  for (const auto& task : context.config.tasks_here()) {
    const auto prepared = context.test_rows({.task = task, .limit = limit});
    if (prepared->task().scoring == data::Scoring::kNll) continue;
    for (size_t row = 0; row < prepared->rows().size(); ++row, ++rows)
      tokens += static_cast<double>(prepared->prompt(row).size()) + static_cast<double>(evaluate.max_new_tokens);
  }
  return rows > 0 ? tokens / rows : static_cast<double>(context.config.data.cutoff);
}

/// Returns the multiply-adds of a forward pass over a sequence, per token.
models::ForwardCost cost_of_token(const Server& server, double length, int64_t top_k) {
  const models::CostShape shape{.tokens = 1, .length = std::llround(length), .top_k = top_k};
  return models::forward_cost(server.model, shape, server.sites, server.max_rank());
}

double flops_of_scored_row(const Experiment& e) {
  const double length = mean_scored_length(e.fabric.context);
  const auto& budgets = e.server.config.evaluate.budgets;
  double flops = 0;
  for (const double budget : budgets) {
    const int64_t top_k = active_experts(e.server.model, budget, "evaluate.budgets");
    flops += 2 * length * models::total(cost_of_token(e.server, length, top_k));
  }
  return flops / static_cast<double>(std::max<size_t>(1, budgets.size()));
}

}  // namespace

bool is_large(const std::filesystem::path& model_folder) {
  return models::weight_file_bytes(model_folder) > kLargeModel;
}

/// The points of an evaluation depend on how the method routes, and that on its state, which is made for sites of the
/// smallest size here.
RunWork counted_work(Experiment& dry_run) {
  auto& server = dry_run.server;
  auto sites = std::exchange(server.sites, smallest(server.sites));
  const auto ones = [&](const std::string& site, const methods::GradientSample&) {
    const int64_t experts = server.sites.at(site).experts;
    return experts > 0 ? at::ones({experts, 1, 1}) : at::ones({1, 1});
  };
  auto work = work_of(dry_run, server.method->initialize(server.view(0, ones)));
  server.sites = std::move(sites);
  return work;
}

RunFlops run_flops(const Experiment& dry_run) {
  const double length = mean_row_length(dry_run.fabric.shards);
  RunFlops flops{.of_token = {}, .of_row = flops_of_scored_row(dry_run)};
  for (const int64_t top_k : measured_top_ks(dry_run))
    flops.of_token[top_k] = models::total(models::training_flops(cost_of_token(dry_run.server, length, top_k)));
  return flops;
}

double foreseen_flops(const RunWork& work, const RunFlops& flops) {
  double sum = work.scored_rows * flops.of_row;
  for (const auto& [top_k, tokens] : work.tokens) sum += tokens * at_top_k(flops.of_token, top_k);
  return sum;
}

double product_speed(c10::Device device, bool may_round) {
  const double exact = speed_of_product(device, at::kFloat);
  return may_round && multiplies_bfloat16(device) ? std::max(exact, speed_of_product(device, at::kBFloat16)) : exact;
}

double product_speed(const ModelSection& model) {
  return product_speed(find_device(model.device, "model.device"), model.compute_dtype != ComputeDtype::kFloat32);
}

RunSpeeds computed_speeds(const RunFlops& flops, double product_speed) {
  RunSpeeds speeds{.tokens_per_second = {}, .seconds_per_row = flops.of_row / product_speed};
  for (const auto& [top_k, of_token] : flops.of_token) speeds.tokens_per_second[top_k] = product_speed / of_token;
  return speeds;
}

}  // namespace evenkeel::fed
