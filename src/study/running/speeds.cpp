#include "study/running/speeds.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/plain/clock.h"
#include "base/system/device.h"
#include "fed/round/round.h"
#include "fed/run/machine_speed.h"
#include "fed/run/make_experiment.h"
#include "fed/run/state_evaluation.h"
#include "models/cost.h"
#include "report/text_grid.h"

namespace evenkeel::study {
namespace {

constexpr int64_t kLargeModel = int64_t{2} << 30;  // bytes; more would be read for minutes
constexpr double kProductSeconds = 0.3;
constexpr int64_t kProductWidth = 2048, kProductRows = 256;
constexpr int64_t kSampledRows = 32;  // of each task, for the mean length of a prompt

/// Returns the FLOP/s of a float32 matrix product.
double product_speed(c10::Device device) {
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  const auto x_TI = at::ones({kProductRows, kProductWidth}, options);
  const auto w_IO = at::ones({kProductWidth, kProductWidth}, options);
  const auto one_product = [&] { at::mm(x_TI, w_IO).sum().item<float>(); };  // the sum waits for the device
  one_product();
  const auto begin = std::chrono::steady_clock::now();
  double count = 0;
  for (; count < 3 || seconds_since(begin) < kProductSeconds; ++count) one_product();
  return 2 * count * kProductRows * kProductWidth * kProductWidth / seconds_since(begin);
}

double mean_row_length(const fed::Shards& shards) {
  double tokens = 0, rows = 0;
  for (const auto& shard : shards.examples)
    for (const auto& row : shard) tokens += static_cast<double>(row.ids.size()), ++rows;
  return rows > 0 ? tokens / rows : 1;
}

/// Returns the mean number of tokens of a test row, prompt and answer, over tasks.
double mean_scored_length(const fed::ClientContext& context) {
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
models::ForwardCost cost_of_token(const fed::Server& server, double length, int64_t top_k) {
  const models::CostShape shape{.tokens = 1, .length = std::llround(length), .top_k = top_k};
  return models::forward_cost(server.model, shape, server.sites, server.max_rank());
}

double flops_of_scored_row(const fed::Experiment& e) {
  const double length = mean_scored_length(e.fabric.context);
  const auto& budgets = e.server.config.evaluate.budgets;
  double flops = 0;
  for (const double budget : budgets)
    flops +=
        2 * length *
        models::total(cost_of_token(e.server, length, fed::active_experts(e.server.model, budget, "evaluate.budgets")));
  return flops / static_cast<double>(std::max<size_t>(1, budgets.size()));
}

}  // namespace

bool is_large(const std::filesystem::path& model_folder) {
  return models::weight_file_bytes(model_folder) > kLargeModel;
}

Speeds measured_speeds(const fed::ExperimentConfig& config, const std::string& arm) {
  return {fed::foresee_run(config).speeds, false, "measured with arm " + arm};
}

Speeds computed_speeds(const fed::Experiment& dry_run) {
  const auto& server = dry_run.server;
  const double speed = product_speed(find_device(server.config.model.device, "model.device"));
  const double length = mean_row_length(dry_run.fabric.shards);
  fed::RunSpeeds speeds{.tokens_per_second = {}, .seconds_per_row = flops_of_scored_row(dry_run) / speed};
  for (const int64_t top_k : fed::measured_top_ks(dry_run))
    speeds.tokens_per_second[top_k] =
        speed / models::total(models::training_flops(cost_of_token(server, length, top_k)));
  return {std::move(speeds), true, concat("from FLOPs and products of ", report::compact(speed), "FLOP/s here")};
}

}  // namespace evenkeel::study
